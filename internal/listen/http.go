package listen

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"syscall"
)

// HTTP has srv serve what comes to l, and outlives what passes. A server of net/http by itself ends with the first
// error of accept(2) that does not call itself temporary. The kernel's lack of memory or buffers does not, and
// what a network or a firewall says of one connection does not either: a daemon would end with it, and its calls too.
// The server says it in its log, waits between 5 ms and 1 s, and asks again. What the socket says of itself, that
// it is closed or none, is the end.
//
// Connections leave a quarter of the files that the process may have open to everything else. A log that cannot
// make its next file stops its store, so whoever may connect could end the calls of all others by many connections.
func HTTP(srv *http.Server, l net.Listener) error { return srv.Serve(patient{l, fileLimit()}) }

type patient struct {
	net.Listener
	files uint64 // that the process may have open; 0 is not known
}

func (p patient) Accept() (net.Conn, error) {
	c, err := p.Listener.Accept()
	switch {
	case err == nil && p.full(c):
		err = fmt.Errorf("a connection is closed: three quarters of the %d files that this process may have are open", p.files)
		return nil, passing{errors.Join(err, c.Close())}
	case err == nil || over(err):
		return c, err
	}
	return nil, passing{err}
}

// full tells it by the number of the connection's file. The system gives each file the lowest number that is free, so
// all below it are in use, whatever they are.
func (p patient) full(c net.Conn) bool {
	n, ok := descriptor(c)
	return ok && p.files > 0 && n >= p.files-p.files/4
}

// over tells errors after which no connection comes any more.
func over(err error) bool {
	for _, last := range []error{net.ErrClosed, syscall.EBADF, syscall.EINVAL, syscall.ENOTSOCK} {
		if errors.Is(err, last) {
			return true
		}
	}
	return false
}

// passing is an error that net/http asks whether it is temporary.
type passing struct{ error }

func (p passing) Unwrap() error { return p.error }
func (passing) Timeout() bool   { return false }
func (passing) Temporary() bool { return true }

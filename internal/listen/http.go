package listen

import (
	"errors"
	"net"
	"net/http"
	"syscall"
)

// HTTP has srv serve what comes to l, and outlives what passes. A server of net/http by itself ends with the first
// error of accept(2) that does not call itself temporary. The kernel's lack of memory or buffers does not, and
// what a network or a firewall says of one connection does not either: a daemon would end with it, and its calls too.
// The server says it in its log, waits between 5 ms and 1 s, and asks again. What the socket says of itself, that
// it is closed or none, is the end.
func HTTP(srv *http.Server, l net.Listener) error { return srv.Serve(patient{l}) }

type patient struct{ net.Listener }

func (p patient) Accept() (net.Conn, error) {
	c, err := p.Listener.Accept()
	if err == nil || over(err) {
		return c, err
	}
	return nil, passing{err}
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

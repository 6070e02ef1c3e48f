package listen

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"os"
	"syscall"
)

// HTTP serves srv on l, and continues after errors that pass. By itself, a net/http server ends with the first error
// of accept(2) that is not marked as temporary. A lack of memory or buffers in the kernel is not marked so, nor is an
// error of the network or a firewall about one connection. A daemon would end with such an error, and its calls too.
// With HTTP, the server logs the error, waits between 5 ms and 1 s, and accepts again. Only an error of the listening
// socket itself, for example that it is closed, ends it.
//
// HTTP keeps a quarter of the files that the process may have open free of connections. A store stops if its log cannot
// make its next file, so without this a client could end the calls of all others by opening many connections.
//
// If no connection would be taken for that reason, HTTP returns an error at once.
func HTTP(srv *http.Server, l net.Listener) error {
	if n, known := Room(); known && n < 1 {
		return fmt.Errorf("this process may have %d files open (ulimit -n): that is too few for any connection", fileLimit())
	}
	return srv.Serve(patient{l, fileLimit()})
}

// Room is how many connections a server that begins now can have; known is false if that is not known.
func Room() (n int, known bool) {
	f, err := os.Open(string(os.PathSeparator))
	if errors.Is(err, syscall.EMFILE) {
		return 0, true
	}
	if err != nil {
		return 0, false
	}
	next := uint64(f.Fd()) // the lowest free number
	files := fileLimit()
	return max(int(min(files-files/4, math.MaxInt32))-int(next), 0), f.Close() == nil && files > 0
}

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

// full says whether three quarters of the files are in use, by the number of the connection's file. The system gives a
// new file the lowest free number, so all numbers below it are in use.
func (p patient) full(c net.Conn) bool {
	n, ok := descriptor(c)
	return ok && p.files > 0 && n >= p.files-p.files/4
}

// over reports errors after which no connection can come any more.
func over(err error) bool {
	for _, last := range []error{net.ErrClosed, syscall.EBADF, syscall.EINVAL, syscall.ENOTSOCK} {
		if errors.Is(err, last) {
			return true
		}
	}
	return false
}

// passing is an error that tells net/http that it is temporary.
type passing struct{ error }

func (p passing) Unwrap() error { return p.error }
func (passing) Timeout() bool   { return false }
func (passing) Temporary() bool { return true }

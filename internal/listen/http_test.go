package listen

import (
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"syscall"
	"testing"
	"time"
)

// failing is a listener whose accept4 fails once with each error.
type failing struct {
	net.Listener
	errs []error
}

func (f *failing) Accept() (net.Conn, error) {
	if len(f.errs) == 0 {
		return f.Listener.Accept()
	}
	err := f.errs[0]
	f.errs = f.errs[1:]
	return nil, &net.OpError{Op: "accept", Net: "tcp", Addr: f.Addr(), Err: os.NewSyscallError("accept4", err)}
}

// TestServersOutliveErrorsOfOneConnection: after any temporary error of accept(2) the server still answers.
// A permanent error ends it at once; it does not try for ever.
func TestServersOutliveErrorsOfOneConnection(t *testing.T) {
	pass := []error{
		syscall.ECONNABORTED, syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EPROTO, syscall.EPERM,
		syscall.ENETDOWN, syscall.ENOPROTOOPT, syscall.EHOSTDOWN, syscall.EHOSTUNREACH, syscall.EOPNOTSUPP, syscall.ENETUNREACH,
	}
	for _, err := range pass {
		t.Run(err.Error(), func(t *testing.T) {
			t.Parallel()
			addr, served, srv := serve(t, err)
			client := &http.Client{Timeout: 10 * time.Second}
			resp, getErr := client.Get("http://" + addr)
			if getErr != nil {
				t.Fatalf("nobody answers after %v: %v", err, getErr)
			}
			if err := resp.Body.Close(); err != nil {
				t.Error(err)
			}
			if err := srv.Close(); err != nil {
				t.Error(err)
			}
			if err := <-served; !errors.Is(err, http.ErrServerClosed) {
				t.Error(err)
			}
		})
	}
	for _, err := range []error{syscall.EBADF, syscall.EINVAL, syscall.ENOTSOCK} {
		t.Run(err.Error(), func(t *testing.T) {
			t.Parallel()
			_, served, srv := serve(t, err)
			if got := <-served; !errors.Is(got, err) {
				t.Errorf("%v, want %v", got, err)
			}
			if err := srv.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func serve(t *testing.T, err error) (addr string, served chan error, srv *http.Server) {
	t.Helper()
	l, listenErr := net.Listen("tcp", "127.0.0.1:0")
	if listenErr != nil {
		t.Fatal(listenErr)
	}
	srv = &http.Server{
		Handler: http.NotFoundHandler(), ReadHeaderTimeout: 10 * time.Second, ErrorLog: log.New(io.Discard, "", 0),
	}
	served = make(chan error, 1)
	go func() { served <- HTTP(srv, &failing{l, []error{err, err}}) }()
	return l.Addr().String(), served, srv
}

//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package listen

import (
	"bytes"
	"errors"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// wrapped is a connection that hides its file, as one under TLS does.
type wrapped struct{ net.Conn }

func (w wrapped) NetConn() net.Conn { return w.Conn }

type wrapping struct{ net.Listener }

func (w wrapping) Accept() (net.Conn, error) {
	c, err := w.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return wrapped{c}, nil
}

// lines is a log that a server writes while the test reads it.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestConnectionsLeaveFilesForOthers: clients that open as many connections as they can do not use the last
// quarter of the process's files. The server says so in its log, and answers again once they are gone.
func TestConnectionsLeaveFilesForOthers(t *testing.T) {
	for name, wrap := range map[string]func(net.Listener) net.Listener{
		"plain":   func(l net.Listener) net.Listener { return l },
		"wrapped": func(l net.Listener) net.Listener { return wrapping{l} },
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			// A number of open files at which the connections of this test, whose both ends are in this
			// process, soon reach three quarters of the limit.
			files := (nextFile(t) + 40) / 3 * 4
			said := &lines{}
			srv := &http.Server{Handler: http.NotFoundHandler(), ReadHeaderTimeout: time.Minute, ErrorLog: log.New(said, "", 0)}
			served := make(chan error, 1)
			go func() { served <- srv.Serve(patient{wrap(l), files}) }()
			var held []net.Conn
			for len(held) < 60 && !strings.Contains(said.String(), "a connection is closed") {
				c, err := net.Dial("tcp", l.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				held = append(held, c)
				time.Sleep(time.Millisecond)
			}
			if !strings.Contains(said.String(), "a connection is closed") || len(held) < 5 {
				t.Errorf("the server took %d connections and said %q", len(held), said)
			}
			for _, c := range held {
				if err := c.Close(); err != nil {
					t.Error(err)
				}
			}
			if err := answers(l.Addr().String()); err != nil {
				t.Errorf("nobody answers after the connections are gone: %v", err)
			}
			if err := srv.Close(); err != nil {
				t.Error(err)
			}
			if err := <-served; !errors.Is(err, http.ErrServerClosed) {
				t.Error(err)
			}
		})
	}
}

// TestNoRoomForAnyConnection: a process with so few files that each connection would be closed says so at once.
func TestNoRoomForAnyConnection(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	for _, more := range []uint64{0, 1, 2} { // 0: not even the file that Room opens
		few := was
		few.Cur = nextFile(t) + more
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few); err != nil {
			t.Fatal(err)
		}
		served := make(chan error, 1)
		go func() { served <- HTTP(&http.Server{Handler: http.NotFoundHandler()}, l) }()
		select {
		case err = <-served:
		case <-time.After(5 * time.Second):
			err = errors.New("it serves")
		}
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
			t.Fatal(err)
		}
		if err == nil || !strings.Contains(err.Error(), "too few for any connection") {
			t.Errorf("%d files more than there are: %v", more, err)
		}
	}
}

// nextFile returns the lowest file number that is free.
func nextFile(t *testing.T) uint64 {
	t.Helper()
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	n := uint64(f.Fd())
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return n
}

// answers asks until the server has noticed that its other clients are gone.
func answers(addr string) (err error) {
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	for range 20 {
		var resp *http.Response
		if resp, err = client.Get("http://" + addr); err == nil {
			return resp.Body.Close()
		}
		time.Sleep(50 * time.Millisecond)
	}
	return err
}

// TestLimitOfFilesIsKnown: without it the rule would have no effect.
func TestLimitOfFilesIsKnown(t *testing.T) {
	if n := fileLimit(); n < nextFile(t) {
		t.Errorf("this process may have %d files open, and has more", n)
	}
}

package client

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// daemonOf is a daemon that treats each connection as f says. It counts them.
func daemonOf(t *testing.T, o Options, f func(n int, conn net.Conn)) (*Client, *atomic.Int32) {
	t.Helper()
	l := listener(t)
	var conns atomic.Int32
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return // closed
			}
			n := int(conns.Add(1))
			wg.Go(func() {
				defer conn.Close()
				f(n, conn)
			})
		}
	})
	c := New(l.Addr().String(), o)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
	})
	return c, &conns
}

// request1 reads one request with its body, false where the client is gone.
func request1(r *bufio.Reader) bool {
	req, err := http.ReadRequest(r)
	if err != nil {
		return false
	}
	_, err = io.Copy(io.Discard, req.Body)
	return err == nil
}

const fine = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"

// serveAll answers every request of a connection with the same bytes.
func serveAll(answer string) func(int, net.Conn) {
	return func(_ int, conn net.Conn) {
		for r := bufio.NewReader(conn); request1(r); {
			if _, err := io.WriteString(conn, answer); err != nil {
				return
			}
		}
	}
}

func delivered(ctx context.Context, c *Client) error { return c.Delivered(ctx, tga.ID{}) }

func TestConnectionIsUsedAgain(t *testing.T) {
	for name, x := range map[string]struct {
		answer string
		conns  int32
	}{
		"answered":        {fine, 1},
		"chunks":          {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", 1},
		"no body":         {"HTTP/1.1 204 No Content\r\n\r\n", 1},
		"refused":         {"HTTP/1.1 409 Conflict\r\nContent-Length: 2\r\n\r\n{}", 1},
		"announced":       {"HTTP/1.1 103 Early Hints\r\n\r\n" + fine, 1},
		"last":            {"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}", 3},
		"more than asked": {fine + fine, 3}, // the rest would be taken for the next answer
	} {
		t.Run(name, func(t *testing.T) {
			c, conns := daemonOf(t, Options{}, serveAll(x.answer))
			for range 3 {
				if err := delivered(t.Context(), c); (err != nil) != (name == "refused") {
					t.Fatal(err)
				}
			}
			if n := conns.Load(); n != x.conns {
				t.Errorf("%d connections, want %d", n, x.conns)
			}
		})
	}
}

// TestHangUpBetweenRequests: a daemon that was restarted, or waited long enough, has closed the
// connection. No request is lost on such a connection.
func TestHangUpBetweenRequests(t *testing.T) {
	gone := make(chan struct{}, 3)
	c, conns := daemonOf(t, Options{}, func(_ int, conn net.Conn) {
		if request1(bufio.NewReader(conn)) {
			_, _ = io.WriteString(conn, fine) // the client says whether it came
		}
		_ = conn.Close()
		gone <- struct{}{}
	})
	for range 3 {
		if err := delivered(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		<-gone
	}
	if n := conns.Load(); n != 3 {
		t.Errorf("%d connections", n)
	}
}

// TestOldConnectionIsNotUsed: the daemon could close such a connection at the same moment.
func TestOldConnectionIsNotUsed(t *testing.T) {
	c, conns := daemonOf(t, Options{}, serveAll(fine))
	for range 2 {
		if err := delivered(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		c.conns.idle[0].used = time.Now().Add(-maxIdle)
	}
	if n := conns.Load(); n != 2 {
		t.Errorf("%d connections", n)
	}
}

func TestIdleConnectionsAreBounded(t *testing.T) {
	const most, callers = 2, 5
	var here sync.WaitGroup
	here.Add(callers)
	c, conns := daemonOf(t, Options{MaxIdle: most}, func(_ int, conn net.Conn) {
		if !request1(bufio.NewReader(conn)) {
			return
		}
		here.Done()
		here.Wait()
		if _, err := io.WriteString(conn, fine); err == nil {
			_, _ = conn.Read(make([]byte, 1)) // until the client hangs up
		}
	})
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			if err := delivered(t.Context(), c); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := len(c.conns.idle); n != most || conns.Load() != callers {
		t.Errorf("%d of %d connections are kept", n, conns.Load())
	}
}

// TestCancelledRequestTakesItsConnection: the connection is closed, because the answer may still come.
func TestCancelledRequestTakesItsConnection(t *testing.T) {
	asked := make(chan struct{})
	c, conns := daemonOf(t, Options{}, func(n int, conn net.Conn) {
		if n > 1 {
			serveAll(fine)(n, conn)
			return
		}
		if request1(bufio.NewReader(conn)) {
			close(asked)
			_, _ = conn.Read(make([]byte, 1)) // until the client hangs up
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked
		cancel()
	}()
	if err := delivered(ctx, c); !errors.Is(err, tga.StoreUnavailable) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if err := delivered(t.Context(), c); err != nil || conns.Load() != 2 {
		t.Errorf("%d connections, %v", conns.Load(), err)
	}
}

// TestCancelAfterTheAnswer: the end of a context does not affect a later exchange.
func TestCancelAfterTheAnswer(t *testing.T) {
	c, conns := daemonOf(t, Options{}, serveAll(fine))
	for range 200 {
		ctx, cancel := context.WithCancel(t.Context())
		go cancel()
		if err := delivered(ctx, c); err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if err := delivered(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	t.Log(conns.Load(), "connections")
}

// TestStreamLeftEarly: the unread rest of an answer is not read as the next answer.
func TestStreamLeftEarly(t *testing.T) {
	line := "{\"epoch\":\"1\"}\n"
	c, conns := daemonOf(t, Options{}, func(_ int, conn net.Conn) {
		if request1(bufio.NewReader(conn)) {
			fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", 2*len(line), line)
			_, _ = conn.Read(make([]byte, 1)) // until the client hangs up
		}
	})
	for range 2 {
		for _, err := range c.Entries(t.Context(), tga.ID{}, 0, false) {
			if err != nil {
				t.Fatal(err)
			}
			break
		}
	}
	if n := conns.Load(); n != 2 {
		t.Errorf("%d connections", n)
	}
}

// TestRefusalBeforeTheWholeRequest: a daemon refuses a request that is too long, and does not read
// the rest.
func TestRefusalBeforeTheWholeRequest(t *testing.T) {
	said := `{"type":"x","title":"x","status":413,"detail":"too long","code":"LIMIT_EXCEEDED"}`
	c, conns := daemonOf(t, Options{}, func(_ int, conn net.Conn) {
		if _, err := conn.Read(make([]byte, 10)); err != nil {
			t.Error(err)
		}
		_, err := fmt.Fprintf(conn, "HTTP/1.1 413 Too Large\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", wire.ProblemType, len(said), said)
		if err != nil {
			t.Error(err)
		}
	})
	for n := range int32(2) {
		_, err := c.Resolve(t.Context(), tga.ID{}, runtime.Resolution{Evidence: bytes.Repeat([]byte("e"), 8<<20)})
		if !errors.Is(err, tga.LimitExceeded) {
			t.Errorf("got %v", err)
		}
		if conns.Load() != n+1 {
			t.Errorf("%d connections", conns.Load())
		}
	}
}

func TestAnswersThatAreNone(t *testing.T) {
	long := strings.Repeat("x", 1000)
	for name, answer := range map[string]string{
		"hung up":      "",
		"half a head":  "HTTP/1.1 200 OK\r\nContent-Le",
		"half a body":  "HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n{}",
		"no HTTP":      "SSH-2.0-OpenSSH_9.2\r\n",
		"endless head": "HTTP/1.1 200 OK\r\n" + strings.Repeat("X-Long: "+long+"\r\n", maxHead/len(long)),
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := daemonOf(t, Options{}, func(_ int, conn net.Conn) {
				if request1(bufio.NewReader(conn)) {
					_, _ = io.WriteString(conn, answer) // a client that has enough hangs up
				}
			})
			err := delivered(t.Context(), c)
			if !errors.Is(err, tga.StoreUnavailable) {
				t.Errorf("got %v", err)
			}
			if name == "endless head" && !errors.Is(err, errLongHead) {
				t.Errorf("got %v", err)
			}
			if n := len(c.conns.idle); n != 0 {
				t.Errorf("%d connections are kept", n)
			}
		})
	}
}

// stubborn is a connection whose Close returns an error.
type stubborn struct{ net.Conn }

var errStubborn = errors.New("it will not close")

func (s stubborn) Close() error { return errors.Join(s.Conn.Close(), errStubborn) }

// TestCloseSaysWhatWouldNotClose: a connection that does not close is no fault of the exchange that finds it, and
// Close says so: of one that the daemon hung up and of one that was idle.
func TestCloseSaysWhatWouldNotClose(t *testing.T) {
	for _, hangsUp := range []bool{true, false} {
		l := listener(t)
		var wg sync.WaitGroup
		wg.Go(func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return // closed
				}
				r := bufio.NewReader(conn)
				for request1(r) {
					if _, err := io.WriteString(conn, fine); err != nil || hangsUp {
						break
					}
				}
				if err := conn.Close(); err != nil {
					t.Error(err)
				}
			}
		})
		c := New("", Options{Dial: func(ctx context.Context) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, "unix", l.Addr().String())
			return stubborn{conn}, err
		}})
		for range map[bool]int{true: 2, false: 1}[hangsUp] { // the second finds that the first one's is gone
			if err := delivered(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}
		if hangsUp != (c.conns.failed != nil) {
			t.Errorf("hangs up %v, before the close: %v", hangsUp, c.conns.failed)
		}
		if err := c.Close(); !errors.Is(err, errStubborn) {
			t.Errorf("hangs up %v: %v", hangsUp, err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
	}
}

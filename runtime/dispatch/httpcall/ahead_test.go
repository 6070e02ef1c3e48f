package httpcall

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tgad/tgad/runtime"
)

// delay is how long bytes, and the end of a connection, take to and from a far server.
const delay = 20 * time.Millisecond

// far is a server at the other end of a slow network, in virtual time. It closes a
// connection on which no request comes within idle.
type far struct {
	idle time.Duration
	turn chan struct{} // of length 1: it takes its connections one by one

	dials, requests, open, most atomic.Int32
	all                         sync.WaitGroup
}

func newFar(t *testing.T, f *far) *far {
	t.Cleanup(f.all.Wait)
	return f
}

func (f *far) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	select {
	case <-time.After(2 * delay):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	f.dials.Add(1)
	client, near := net.Pipe()
	away, server := net.Pipe()
	f.all.Go(func() { carry(away, near) })
	f.all.Go(func() { carry(near, away) })
	f.all.Go(func() { f.serve(server) })
	return client, nil
}

// carry takes bytes from one end to the other, and then the end of the connection. What
// arrives after the other side has closed is lost, and nobody is told.
func carry(to, from net.Conn) {
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		time.Sleep(delay)
		if err != nil {
			to.Close()
			return
		}
		to.Write(b[:n])
	}
}

func (f *far) serve(c net.Conn) {
	defer c.Close()
	f.most.Store(max(f.most.Load(), f.open.Add(1)))
	defer f.open.Add(-1)
	if f.turn != nil {
		f.turn <- struct{}{}
		defer func() { <-f.turn }()
	}
	if f.idle != 0 {
		c.SetReadDeadline(time.Now().Add(f.idle))
	}
	r := bufio.NewReader(c)
	if _, err := r.Peek(1); err != nil {
		return
	}
	c.SetReadDeadline(time.Time{})
	req, err := http.ReadRequest(r)
	if err != nil {
		return
	}
	io.Copy(io.Discard, req.Body)
	f.requests.Add(1)
	io.WriteString(c, ok)
}

// TestServerThatClosesWhileIdleCausesNoDoubt makes calls at all distances from each other,
// in an order without pattern, to servers that close unused connections, and to one that
// does not.
func TestServerThatClosesWhileIdleCausesNoDoubt(t *testing.T) {
	for _, idle := range []time.Duration{0, time.Second, 400 * time.Millisecond, 1900 * time.Millisecond} {
		t.Run(idle.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFar(t, &far{idle: idle})
				s := newServer(t, "http://far", Options{Dial: f.dial})
				random := rand.New(rand.NewPCG(1, 1))
				gaps := slices.Concat(random.Perm(250), random.Perm(150), random.Perm(150), random.Perm(150))
				for i, gap := range gaps {
					time.Sleep(time.Duration(gap) * 10 * time.Millisecond)
					if reply, err := s.Dispatch(t.Context(), aCall(1)); err != nil || string(reply.Result) != "body" {
						t.Fatalf("call %d, %d ms after the one before: %+v, %v", i, 10*gap, reply, err)
					}
				}
				if n := f.requests.Load(); int(n) != len(gaps) {
					t.Errorf("%d requests arrived for %d calls", n, len(gaps))
				}
			})
		})
	}
}

// TestConnectedAhead: calls that follow each other do not wait for a handshake, and what
// they leave is closed within 2 s.
func TestConnectedAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFar(t, &far{})
		s := newServer(t, "http://far", Options{Dial: f.dial})
		dispatch := func() time.Duration {
			start := time.Now()
			if _, err := s.Dispatch(t.Context(), aCall(1)); err != nil {
				t.Fatal(err)
			}
			return time.Since(start)
		}
		dispatch()
		dispatch() // only now do calls follow each other
		for i := range 20 {
			if took := dispatch(); took != 2*delay {
				t.Errorf("call %d took %v, want the way there and back", i, took)
			}
		}
		// A call that is prepared connects while its attempt is made durable.
		time.Sleep(time.Minute)
		if _, err := s.Prepare(t.Context(), aCall(1)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(delay)
		if took := dispatch(); took != 3*delay {
			t.Errorf("took %v after half of the handshake", took)
		}
		if time.Sleep(time.Minute); f.open.Load() != 0 {
			t.Errorf("%d connections are open", f.open.Load())
		}
		// A lone call makes no connection but its own.
		before := f.dials.Load()
		if took := dispatch(); took != 4*delay || f.dials.Load() != before+1 {
			t.Errorf("took %v with %d connections", took, f.dials.Load()-before)
		}
	})
}

// TestIdleConnectionsEnd: what no call uses is closed after 2 s, and not before. Then the
// server has shown that it keeps connections that long.
func TestIdleConnectionsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFar(t, &far{})
		s := newServer(t, "http://far", Options{Dial: f.dial})
		for range 2 {
			if _, err := s.Dispatch(t.Context(), aCall(1)); err != nil {
				t.Fatal(err)
			}
		}
		// It was begun when the second call had its connection, and was ready with its answer.
		time.Sleep(maxIdle - time.Millisecond)
		if n := f.open.Load(); n != 1 {
			t.Errorf("%d connections wait", n)
		}
		time.Sleep(time.Millisecond + delay)
		synctest.Wait()
		if n := f.open.Load(); n != 0 {
			t.Errorf("%d connections are open after %v", n, maxIdle)
		}
		if s.ahead.trust != maxIdle/2 {
			t.Errorf("trusted up to %v", s.ahead.trust)
		}
	})
}

// TestSerialServerIsNotHeldUp: a server that takes its connections one by one never waits
// for a request on a connection that gets none while another one has a request.
func TestSerialServerIsNotHeldUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFar(t, &far{turn: make(chan struct{}, 1)})
		s := newServer(t, "http://far", Options{Dial: f.dial})
		for _, gap := range []time.Duration{0, 0, 0, 200, 260, 100, 900, 10, 1100, 0, 1999, 0, 2001, 0, 0, 500} {
			time.Sleep(gap * time.Millisecond)
			start := time.Now()
			if _, err := s.Dispatch(t.Context(), aCall(1)); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(start); took > 6*delay {
				t.Errorf("a call took %v, %d ms after the one before", took, gap)
			}
		}
	})
}

// TestServerThatKeepsNothing: if a server closes unused connections at once, none is made ahead
// for it for a while.
func TestServerThatKeepsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFar(t, &far{idle: time.Millisecond})
		// The handshake of TCP ends at this side when it ends at the server.
		s := newServer(t, "http://far", Options{Dial: func(context.Context, string, string) (net.Conn, error) {
			f.dials.Add(1)
			client, server := net.Pipe()
			f.all.Go(func() { f.serve(server) })
			return client, nil
		}})
		const calls = 100
		for range calls {
			time.Sleep(100 * time.Millisecond)
			if reply, err := s.Dispatch(t.Context(), aCall(1)); err != nil || string(reply.Result) != "body" {
				t.Fatalf("%+v, %v", reply, err)
			}
		}
		if n := f.dials.Load(); n > calls+2 {
			t.Errorf("%d connections for %d calls", n, calls)
		}
	})
}

// TestLimitOfConnectionsAhead: at its limit there are as many connections as it says, and
// never one more.
func TestLimitOfConnectionsAhead(t *testing.T) {
	for _, c := range []struct{ ahead, want int }{{-1, 0}, {0, DefaultAhead}, {1, 1}, {3, 3}} {
		synctest.Test(t, func(t *testing.T) {
			f := newFar(t, &far{})
			s := newServer(t, "http://far", Options{Dial: f.dial, Ahead: c.ahead})
			for range 3 {
				var all sync.WaitGroup
				for range 3 * DefaultAhead {
					all.Go(func() {
						if _, err := s.Dispatch(t.Context(), aCall(1)); err != nil {
							t.Error(err)
						}
					})
				}
				all.Wait()
				synctest.Wait()
				time.Sleep(2 * delay)
				synctest.Wait()
				if n := f.open.Load(); int(n) != c.want {
					t.Errorf("limit %d: %d connections wait", c.ahead, n)
				}
			}
			if n := f.most.Load(); int(n) > 3*DefaultAhead+c.want {
				t.Errorf("limit %d: %d connections at once", c.ahead, n)
			}
		})
	}
}

// TestCloseEndsADial: no goroutine is left, even if the server never ends a handshake.
func TestCloseEndsADial(t *testing.T) {
	w := serve(t, false, answer(ok))
	var dials atomic.Int32
	begun := make(chan struct{})
	s := newServer(t, w.url(), Options{Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
		if dials.Add(1) <= 2 {
			return (&net.Dialer{}).DialContext(ctx, network, addr)
		}
		close(begun)
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	for range 2 {
		if _, err := s.Dispatch(t.Context(), aCall(1)); err != nil {
			t.Fatal(err)
		}
	}
	<-begun
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	// Later calls are made all the same, without a connection ahead.
	dials.Store(1)
	if _, err := s.Dispatch(t.Context(), aCall(1)); err != nil || dials.Load() != 2 {
		t.Errorf("%v, %d dials", err, dials.Load())
	}
}

// waiting makes s have a connection that waits, and returns it.
func waiting(t *testing.T, s *Server) *spare {
	t.Helper()
	if _, err := s.Dispatch(t.Context(), aCall(1)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Prepare(t.Context(), aCall(1)); err != nil {
		t.Fatal(err)
	}
	s.ahead.mu.Lock()
	first := s.ahead.spares[0]
	s.ahead.mu.Unlock()
	if <-first.ready; first.err != nil {
		t.Fatal(first.err)
	}
	return first
}

// otherEnd returns the server's end of a connection, of those that it accepted.
func otherEnd(accepted chan *net.TCPConn, c net.Conn) *net.TCPConn {
	for s := range accepted {
		if s.RemoteAddr().String() == c.LocalAddr().String() {
			return s
		}
	}
	panic("it accepts connections as long as the test runs")
}

// TestUnaskedBytes: bytes that a server sends before the request are no answer to it. The check
// of the socket alone finds the end of a connection before a byte is written.
func TestUnaskedBytes(t *testing.T) {
	for name, act := range map[string]func(c *net.TCPConn){
		"answer": func(c *net.TCPConn) { io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged") },
		"408":    func(c *net.TCPConn) { io.WriteString(c, status(408, "Connection: close\r\n")); c.CloseWrite() },
		"end":    func(c *net.TCPConn) { c.CloseWrite() },
		"reset":  reset,
	} {
		t.Run(name, func(t *testing.T) {
			conns := make(chan *net.TCPConn, 10)
			w := serve(t, true, func(w *witness, c *net.TCPConn, r *bufio.Reader) {
				conns <- c
				if w.read(r) {
					io.WriteString(c, ok)
				}
			})
			s := newServer(t, w.url(), Options{})
			first := waiting(t, s)
			act(otherEnd(conns, first.conn.socket))
			for !unread(first.conn.socket) && len(first.heard) == 0 {
				time.Sleep(time.Millisecond)
			}
			if reply, err := s.Dispatch(t.Context(), aCall(1)); what(reply, err) != "SUCCESS " || string(reply.Result) != "body" {
				t.Errorf("got %+v, %v", reply, err)
			}
			if n := w.requests.Load(); n != 2 {
				t.Errorf("%d requests arrived for 2 calls", n)
			}

			// The look right before the first byte, where nobody reads from the connection.
			var d net.Dialer
			c, err := d.DialContext(t.Context(), "tcp", w.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			act(otherEnd(conns, c))
			for !unread(c) {
				time.Sleep(time.Millisecond)
			}
			late := &wire{Conn: c, socket: c, waited: true}
			if n, err := late.Write([]byte("POST")); n != 0 || !errors.Is(err, errStale) || late.End() {
				t.Errorf("wrote %d, %v, left %v", n, err, late.left)
			}
		})
	}
}

// cutting is a connection that the server cuts between the check and the write. Its reader learns
// of that only after the write. Otherwise the reader would close the connection before the write,
// and no byte would leave.
type cutting struct {
	*net.TCPConn
	cut          func()
	begun, wrote chan struct{}
}

func (c *cutting) Write(b []byte) (int, error) {
	close(c.begun) // it is written to once
	defer close(c.wrote)
	c.cut()
	return c.TCPConn.Write(b)
}

func (c *cutting) Read(b []byte) (int, error) {
	n, err := c.TCPConn.Read(b)
	select {
	case <-c.begun:
		<-c.wrote
	default:
	}
	return n, err
}

// TestCutBetweenLookAndWrite: a server that resets the connection in that moment gets the
// call on another one; one that closes it may have read the bytes that left.
func TestCutBetweenLookAndWrite(t *testing.T) {
	for _, c := range []struct {
		name     string
		cut      func(c *net.TCPConn)
		want     string
		requests int32
	}{
		{"reset: no byte left", reset, "SUCCESS ", 2},
		{"closed: bytes left", func(c *net.TCPConn) { c.Close() }, "doubt", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			conns := make(chan *net.TCPConn, 10)
			w := serve(t, true, func(w *witness, c *net.TCPConn, r *bufio.Reader) {
				conns <- c
				if w.read(r) {
					io.WriteString(c, ok)
				}
			})
			var dials atomic.Int32
			s := newServer(t, w.url(), Options{Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
				if err != nil || dials.Add(1) != 2 {
					return conn, err
				}
				return &cutting{conn.(*net.TCPConn), func() {
					c.cut(otherEnd(conns, conn))
					for !unread(conn) {
						time.Sleep(time.Millisecond)
					}
				}, make(chan struct{}), make(chan struct{})}, nil
			}})
			waiting(t, s)
			reply, err := s.Dispatch(t.Context(), aCall(1))
			if what(reply, err) != c.want || w.requests.Load() != c.requests {
				t.Errorf("got %+v, %v, %d requests; want %q, %d", reply, err, w.requests.Load(), c.want, c.requests)
			}
		})
	}
}

// TestAheadOverTLS: the handshake is done before the call, for each version of TLS, and
// tickets that a server sends of its own are not taken for bytes that nobody asked for.
func TestAheadOverTLS(t *testing.T) {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		t.Run(tls.VersionName(version), func(t *testing.T) {
			var requests atomic.Int32
			w := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
			w.TLS = &tls.Config{MinVersion: version, MaxVersion: version}
			w.Config.ErrorLog = log.New(io.Discard, "", 0)
			w.StartTLS()
			defer w.Close()
			roots := x509.NewCertPool()
			roots.AddCert(w.Certificate())
			s := newServer(t, w.URL, Options{TLS: &tls.Config{RootCAs: roots}})
			first := waiting(t, s)
			for unread(first.conn.socket) {
				time.Sleep(time.Millisecond) // the goroutine takes tickets in
			}
			_, waited, err := exchange(t, s)
			if err != nil || !waited || requests.Load() != 2 {
				t.Errorf("waited %v, %v, %d requests", waited, err, requests.Load())
			}
			// The server closes what waits: the call goes to another connection.
			first = waiting(t, s)
			w.CloseClientConnections()
			for !unread(first.conn.socket) && len(first.heard) == 0 {
				time.Sleep(time.Millisecond)
			}
			if reply, err := s.Dispatch(t.Context(), aCall(1)); what(reply, err) != "SUCCESS " || requests.Load() != 4 {
				t.Errorf("got %+v, %v, %d requests", reply, err, requests.Load())
			}
		})
	}
}

func exchange(t *testing.T, s *Server) (runtime.Reply, bool, error) {
	t.Helper()
	resp, waited, err := s.exchange(t.Context(), aCall(1))
	if err != nil {
		return runtime.Reply{}, waited, err
	}
	reply, err := readAnswer(resp.Body, 100)
	return reply, waited, errors.Join(err, resp.Body.Close())
}

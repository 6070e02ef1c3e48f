package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"time"

	"github.com/tgad/tgad/bench/internal/load"
	"github.com/tgad/tgad/runtime/dispatch/httpcall"
)

// oneWay is how long the proxy holds a byte back: the way there and back takes 20 ms.
const oneWay = 10 * time.Millisecond

// farCalls adds calls of a tool server on HTTPS that is far away, with connections made
// ahead and without.
func (s *suite) farCalls(db *load.Store) error {
	if !s.any("call_far", "call_far_cold") {
		return nil
	}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		if _, err := io.WriteString(w, `{"paid":true}`); err != nil {
			return // the caller went away
		}
	}))
	s.closing(func() error { server.Close(); return nil })
	p, err := newProxy(server.Listener.Addr().String())
	if err != nil {
		return err
	}
	s.closing(p.close)
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	for _, c := range []struct {
		name  string
		ahead int
	}{{"call_far_cold", -1}, {"call_far", 0}} {
		far, err := httpcall.New("https://"+p.Addr().String(), httpcall.Options{TLS: &tls.Config{RootCAs: roots}, Ahead: c.ahead})
		if err != nil {
			return err
		}
		s.closing(far.Close)
		for _, writers := range []int{1, 16} {
			subject, err := db.Call(c.name, writers, far)
			if err != nil {
				return err
			}
			s.add(subject)
		}
	}
	return nil
}

// proxy stands before a server and delays what passes.
type proxy struct {
	net.Listener
	server string
	all    sync.WaitGroup

	mu   sync.Mutex
	open map[net.Conn]bool
	err  error // the first things that went wrong in the proxy itself
}

func newProxy(server string) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{Listener: l, server: server, open: map[net.Conn]bool{}}
	p.all.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			p.all.Go(func() { p.join(near) })
		}
	})
	return p, nil
}

func (p *proxy) join(near net.Conn) {
	away, err := net.Dial("tcp", p.server)
	if err != nil {
		p.failed(err)
		p.shut(near)
		return
	}
	p.mu.Lock()
	p.open[near], p.open[away] = true, true
	p.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { p.carry(away, near) })
	both.Go(func() { p.carry(near, away) })
	both.Wait()
	p.mu.Lock()
	delete(p.open, near)
	delete(p.open, away)
	p.mu.Unlock()
}

// chunk is what was read at once, nil for the end, and when it arrives.
type chunk struct {
	b   []byte
	due time.Time
}

// carry hands on what it reads, oneWay later, and then the end. An error of either side is
// the end of both: their peers see it.
func (p *proxy) carry(to, from net.Conn) {
	queue := make(chan chunk, 1024)
	go func() {
		defer close(queue)
		for {
			b := make([]byte, 32<<10)
			n, err := from.Read(b)
			queue <- chunk{b[:n], time.Now().Add(oneWay)}
			if err != nil {
				return
			}
		}
	}()
	for c := range queue {
		time.Sleep(time.Until(c.due))
		if _, err := to.Write(c.b); err != nil {
			p.shut(from)
		}
	}
	p.shut(to)
}

// shut closes a connection, which may have ended by itself.
func (p *proxy) shut(c net.Conn) {
	if err := c.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		p.failed(err)
	}
}

// failed keeps what goes wrong in the proxy itself, for close to return: a benchmark through
// it measures something else then.
func (p *proxy) failed(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = errors.Join(p.err, err)
}

func (p *proxy) close() error {
	err := p.Listener.Close()
	p.mu.Lock()
	open := slices.Collect(maps.Keys(p.open))
	p.mu.Unlock()
	for _, c := range open {
		p.shut(c)
	}
	p.all.Wait()
	return errors.Join(err, p.err)
}

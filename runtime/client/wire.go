package client

import (
	"bufio"
	"context"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"sync"
	"time"
)

// wires is a pool of connections to one socket.
//
// An exchange runs in its caller's goroutine from the first byte to the last. The
// transport of net/http keeps two goroutines for each connection, and on a machine that is
// otherwise idle waking a processor for them costs as much as the rest of a short exchange
// (docs/PERFORMANCE.md).
type wires struct {
	socket string
	dial   func(context.Context) (net.Conn, error)
	most   int // idle ones

	mu   sync.Mutex
	idle []*wire // the one used last at the end
}

// wire is one connection. One exchange at a time has it.
type wire struct {
	net.Conn
	in   *bufio.Reader
	left int64 // bytes that may still be read
	used time.Time
}

const (
	// maxIdle is how long a connection is kept without an exchange. It is less than what the
	// daemon waits (limits.idle_timeout), which is the one that hangs up otherwise.
	maxIdle = 30 * time.Second
	// maxHead bounds an answer's status line and headers.
	maxHead = 1 << 20
)

var errLongHead = errors.New("the answer's headers have no end")

// longAgo is a deadline that ends whatever waits.
var longAgo = time.Unix(1, 0)

// exchange sends the text of a request and reads the head of its answer. The connection is
// kept once the body of the answer was read to its end and closed. The end of the context
// ends the exchange, and reading the body too.
func (p *wires) exchange(ctx context.Context, text []byte) (*http.Response, error) {
	w, err := p.take(ctx)
	if err != nil {
		return nil, err
	}
	// Where it has begun, the deadline may fall at any time: then it has no other exchange.
	stop := context.AfterFunc(ctx, func() { _ = w.SetDeadline(longAgo) })
	resp, err := w.exchange(text)
	if err != nil {
		stop()
		return nil, errors.Join(err, w.Close())
	}
	resp.Body = &answer{body: resp.Body, end: func(whole bool) error {
		if stop() && whole && !resp.Close && w.in.Buffered() == 0 {
			return p.put(w)
		}
		return w.Close()
	}}
	return resp, nil
}

// take returns a connection that nobody uses.
func (p *wires) take(ctx context.Context) (*wire, error) {
	for {
		p.mu.Lock()
		n := len(p.idle)
		if n == 0 {
			p.mu.Unlock()
			break
		}
		w := p.idle[n-1]
		p.idle = p.idle[:n-1]
		p.mu.Unlock()
		if time.Since(w.used) < maxIdle && quiet(w.Conn) {
			return w, nil
		}
		_ = w.Close() // the daemon hung up: nothing was asked on it
	}
	conn, err := p.dial(ctx)
	if err != nil {
		return nil, err
	}
	w := &wire{Conn: conn}
	w.in = bufio.NewReader(w)
	return w, nil
}

// put keeps a connection for the next exchange, and lets those go that were not used for
// long.
func (p *wires) put(w *wire) (err error) {
	w.used = time.Now()
	var over []*wire
	p.mu.Lock()
	for len(p.idle) > 0 && (len(p.idle) >= p.most || w.used.Sub(p.idle[0].used) >= maxIdle) {
		over, p.idle = append(over, p.idle[0]), p.idle[1:]
	}
	p.idle = append(p.idle, w)
	p.mu.Unlock()
	for _, w := range over {
		err = errors.Join(err, w.Close())
	}
	return err
}

// close ends the idle connections.
func (p *wires) close() {
	p.mu.Lock()
	over := p.idle
	p.idle = nil
	p.mu.Unlock()
	for _, w := range over {
		_ = w.Close() // it has nothing to say any more
	}
}

// exchange writes a request and reads the head of its answer.
func (w *wire) exchange(text []byte) (*http.Response, error) {
	_, sent := w.Conn.Write(text)
	// A daemon that refuses a request may say so before it has all of it, and hang up.
	for {
		w.left = maxHead
		resp, err := http.ReadResponse(w.in, nil)
		switch {
		case err != nil && sent != nil:
			return nil, sent
		case err != nil:
			return nil, err
		case resp.StatusCode >= 200:
			w.left = math.MaxInt64
			return resp, nil
		}
	}
}

// Read reads from the connection, up to the bound.
func (w *wire) Read(b []byte) (int, error) {
	if w.left <= 0 {
		return 0, errLongHead
	}
	n, err := w.Conn.Read(b[:min(int64(len(b)), w.left)])
	w.left -= int64(n)
	return n, err
}

// answer is the body of an answer. Close does not read what is left of it.
type answer struct {
	body  io.Reader
	whole bool
	end   func(whole bool) error // nil once closed
}

func (a *answer) Read(b []byte) (int, error) {
	if a.end == nil {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := a.body.Read(b)
	a.whole = a.whole || err == io.EOF
	return n, err
}

func (a *answer) Close() error {
	end := a.end
	if end == nil {
		return nil
	}
	a.end = nil
	return end(a.whole)
}

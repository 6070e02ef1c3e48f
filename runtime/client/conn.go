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

// conns is a pool of connections to one socket.
//
// An exchange runs in its caller's goroutine from the first byte to the last. The
// transport of net/http keeps two goroutines for each connection. On a machine that is
// otherwise idle, waking a processor for them costs as much as the rest of a short exchange
// (docs/PERFORMANCE.md).
type conns struct {
	socket string
	dial   func(context.Context) (net.Conn, error)
	most   int // most idle connections

	mu     sync.Mutex
	idle   []*conn // the most recently used one is the last
	failed error   // of the first connection that could not be closed
}

// conn is one connection. One exchange at a time uses it.
type conn struct {
	net.Conn
	in   *bufio.Reader
	left int64 // bytes that may still be read
	used time.Time
}

const (
	// maxIdle is how long a connection is kept without an exchange. It is less than the
	// daemon's limits.idle_timeout, after which the daemon closes the connection.
	maxIdle = 30 * time.Second
	// maxHead bounds an answer's status line and headers.
	maxHead = 1 << 20
)

var errLongHead = errors.New("the answer's headers have no end")

// longAgo is a deadline in the past: it ends every Read and Write that waits.
var longAgo = time.Unix(1, 0)

// exchange sends the text of a request and reads the head of its answer. The connection is
// kept once the body of the answer was read to its end and closed. The end of the context
// ends the exchange, and reading the body too.
func (p *conns) exchange(ctx context.Context, text []byte) (*http.Response, error) {
	c, err := p.take(ctx)
	if err != nil {
		return nil, err
	}
	// Once this function has started, it may set the deadline at any time, so the connection
	// is not used again.
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(longAgo) })
	resp, err := c.exchange(text)
	if err != nil {
		stop()
		return nil, errors.Join(err, c.Close())
	}
	resp.Body = &answer{body: resp.Body, end: func(whole bool) error {
		if stop() && whole && !resp.Close && c.in.Buffered() == 0 {
			return p.put(c)
		}
		return c.Close()
	}}
	return resp, nil
}

// take returns an idle connection, or a new one.
func (p *conns) take(ctx context.Context) (*conn, error) {
	for {
		p.mu.Lock()
		n := len(p.idle)
		if n == 0 {
			p.mu.Unlock()
			break
		}
		c := p.idle[n-1]
		p.idle = p.idle[:n-1]
		p.mu.Unlock()
		if time.Since(c.used) < maxIdle && quiet(c.Conn) {
			return c, nil
		}
		p.drop(c) // it is too old, or the daemon closed it; no request was sent on it
	}
	dialed, err := p.dial(ctx)
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: dialed}
	c.in = bufio.NewReader(c)
	return c, nil
}

// put keeps a connection for the next exchange, and closes connections that are too many or
// were idle for too long.
func (p *conns) put(c *conn) (err error) {
	c.used = time.Now()
	var over []*conn
	p.mu.Lock()
	for len(p.idle) > 0 && (len(p.idle) >= p.most || c.used.Sub(p.idle[0].used) >= maxIdle) {
		over, p.idle = append(over, p.idle[0]), p.idle[1:]
	}
	p.idle = append(p.idle, c)
	p.mu.Unlock()
	for _, c := range over {
		err = errors.Join(err, c.Close())
	}
	return err
}

// drop closes a connection that has no exchange. If that fails, the next exchange does not fail: close returns the error.
func (p *conns) drop(c *conn) {
	if err := c.Close(); err != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.failed == nil {
			p.failed = err
		}
	}
}

// close closes the idle connections. It returns why a connection could not be closed, now or before.
func (p *conns) close() error {
	p.mu.Lock()
	over := p.idle
	p.idle = nil
	p.mu.Unlock()
	for _, c := range over {
		p.drop(c)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed
}

// exchange writes a request and reads the head of its answer.
func (c *conn) exchange(text []byte) (*http.Response, error) {
	_, sent := c.Conn.Write(text)
	// A daemon that refuses a request may answer before it has read all of it, and close the
	// connection. So read the answer even if the Write failed.
	for {
		c.left = maxHead
		resp, err := http.ReadResponse(c.in, nil)
		switch {
		case err != nil && sent != nil:
			return nil, sent
		case err != nil:
			return nil, err
		case resp.StatusCode >= 200:
			c.left = math.MaxInt64
			return resp, nil
		}
	}
}

// Read reads from the connection, at most left bytes.
func (c *conn) Read(b []byte) (int, error) {
	if c.left <= 0 {
		return 0, errLongHead
	}
	n, err := c.Conn.Read(b[:min(int64(len(b)), c.left)])
	c.left -= int64(n)
	return n, err
}

// answer is the body of an answer. Close does not read the rest of it.
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

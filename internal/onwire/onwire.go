// Package onwire says whether a request to a tool was put on the wire. It defines *not sent* for
// every transport: the operating system got no byte of the request, and will get none. Only then
// may the same attempt be made again. In every other case the call is in doubt.
//
// # Invariants
//
//	unsent  if the error is ErrNotSent, the server saw no byte              [Request.Fault], [Wrote]  TestNotSentIsTrue
//	doubt   a connection that cannot count its bytes may have sent some     [Request.Fault]           TestRequestCountsEveryConnection
package onwire

import (
	"context"
	"fmt"
	"net"
	"net/http/httptrace"
	"sync"

	"github.com/tgad/tgad/runtime"
)

// NotSent returns [runtime.ErrNotSent] with a cause, which may be nil.
func NotSent(cause error) error {
	if cause == nil {
		return runtime.ErrNotSent
	}
	return fmt.Errorf("%w: %w", runtime.ErrNotSent, cause)
}

// Wrote returns the error of a write to a pipe of which the system accepted n bytes: [NotSent] if n
// is 0.
func Wrote(n int64, err error) error {
	switch {
	case err == nil:
		return nil
	case n == 0:
		return NotSent(err)
	}
	return fmt.Errorf("after %d bytes: %w", n, err)
}

// Ender is a connection of one request that knows whether a byte of the request may have left. End
// also blocks all further bytes: the transport's writer may come late, when the caller has been told
// "not sent" already.
type Ender interface{ End() (left bool) }

// Request tracks the connections that one HTTP request gets. Each connection must serve only this
// request.
type Request struct {
	// Late is called when the request has a connection, before the first byte. If it returns an
	// error, nothing is sent. Nil means never late.
	Late func() error

	mu    sync.Mutex
	conns []net.Conn // the request may have been sent on these
	late  error
}

// Follow returns the context with which the request must be made.
func (r *Request) Follow(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.Late != nil {
			if r.late = r.Late(); r.late != nil {
				_ = i.Conn.Close() // before the first byte, so none is sent
				return
			}
		}
		r.conns = append(r.conns, i.Conn)
	}})
}

// Conn returns the newest connection of the request, nil if it has none.
func (r *Request) Conn() net.Conn {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.conns) == 0 {
		return nil
	}
	return r.conns[len(r.conns)-1]
}

// Fault returns the meaning of an error of the request: [NotSent] if no byte of the request can
// have left. net/http may have tried several connections, and each of them counts.
func (r *Request) Fault(err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.late != nil {
		err = r.late
	}
	if err == nil {
		return nil
	}
	left := false
	for _, c := range r.conns {
		if e, counts := c.(Ender); !counts || e.End() {
			left = true
		}
	}
	if left {
		return err
	}
	return NotSent(err)
}

// Package onwire says whether a request to a tool was put on the wire. It is the one meaning of
// *not sent* for every transport: the system was given no byte of the request, and will be given
// none. Only then may the same attempt be made again; all else is doubt.
//
// # Invariants
//
//	unsent  no byte was seen by the server where the error is ErrNotSent    [Request.Fault], [Wrote]  TestNotSentIsTrue
//	doubt   a connection that cannot count its bytes may have passed some   [Request.Fault]           TestRequestCountsEveryConnection
package onwire

import (
	"context"
	"fmt"
	"net"
	"net/http/httptrace"
	"sync"

	"github.com/tgad/tgad/runtime"
)

// NotSent is [runtime.ErrNotSent] with its cause; nil is none.
func NotSent(cause error) error {
	if cause == nil {
		return runtime.ErrNotSent
	}
	return fmt.Errorf("%w: %w", runtime.ErrNotSent, cause)
}

// Wrote is the error of a write to a pipe, of which the system took n bytes.
func Wrote(n int64, err error) error {
	switch {
	case err == nil:
		return nil
	case n == 0:
		return NotSent(err)
	}
	return fmt.Errorf("after %d bytes: %w", n, err)
}

// Ender is a connection of one request that knows whether a byte of it may have left. End lets no
// further byte leave: the transport's writer may come late, after the caller was told "not sent".
type Ender interface{ End() (left bool) }

// Request follows one HTTP request to the connections that it is given. Each of them must be of
// this request alone.
type Request struct {
	// Late is asked when a connection is there, before its first byte: with an error none goes
	// out. Nil is never late.
	Late func() error

	mu    sync.Mutex
	conns []net.Conn // that the request may have gone to
	late  error
}

// Follow returns the context that the request is made with.
func (r *Request) Follow(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.Late != nil {
			if r.late = r.Late(); r.late != nil {
				_ = i.Conn.Close() // before its first byte, so it takes none
				return
			}
		}
		r.conns = append(r.conns, i.Conn)
	}})
}

// Conn is the newest connection of the request, nil where it has none.
func (r *Request) Conn() net.Conn {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.conns) == 0 {
		return nil
	}
	return r.conns[len(r.conns)-1]
}

// Fault is what the error of a request's way means: [NotSent] where no byte of it can have left.
// net/http may have tried more than one connection, and each of them counts.
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

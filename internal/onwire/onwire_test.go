package onwire

import (
	"errors"
	"io"
	"net"
	"net/http/httptrace"
	"os"
	"testing"

	"github.com/tgad/tgad/runtime"
)

// counting is a connection that reports whether a byte of its request left.
type counting struct {
	net.Conn
	left, ended bool
}

func (c *counting) End() bool { c.ended = true; return c.left }

// blind is a connection that cannot report this.
type blind struct {
	net.Conn
	closed bool
}

func (b *blind) Close() error { b.closed = true; return nil }

// TestRequestCountsEveryConnection: a byte on any connection of the request is doubt, and so is a connection
// that cannot count.
func TestRequestCountsEveryConnection(t *testing.T) {
	none, some := func() net.Conn { return &counting{} }, func() net.Conn { return &counting{left: true} }
	unknown := func() net.Conn { return &blind{} }
	for _, c := range []struct {
		name   string
		conns  []func() net.Conn
		unsent bool
	}{
		{"never connected", nil, true},
		{"connected, and no byte left", []func() net.Conn{none}, true},
		{"a byte left", []func() net.Conn{some}, false},
		{"connected, and nobody counts", []func() net.Conn{unknown}, false},
		{"no byte on two", []func() net.Conn{none, none}, true},
		{"a byte on the first of two", []func() net.Conn{some, none}, false},
		{"a byte on the second of two", []func() net.Conn{none, some}, false},
		{"nobody counts on the first of two", []func() net.Conn{unknown, none}, false},
	} {
		var way Request
		trace := httptrace.ContextClientTrace(way.Follow(t.Context()))
		var all []net.Conn
		for _, make := range c.conns {
			all = append(all, make())
			trace.GotConn(httptrace.GotConnInfo{Conn: all[len(all)-1]})
		}
		if err := way.Fault(nil); err != nil {
			t.Errorf("%s: no error became %v", c.name, err)
		}
		err := way.Fault(io.ErrUnexpectedEOF)
		if errors.Is(err, runtime.ErrNotSent) != c.unsent || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: %v", c.name, err)
		}
		for _, conn := range all {
			if e, ok := conn.(*counting); ok && !e.ended {
				t.Errorf("%s: a late byte could still leave", c.name)
			}
		}
	}
}

// TestLateRequestTakesItsConnectionAlong: the connection is closed before its first byte.
func TestLateRequestTakesItsConnectionAlong(t *testing.T) {
	over := errors.New("over")
	way := Request{Late: func() error { return over }}
	conn := &blind{}
	httptrace.ContextClientTrace(way.Follow(t.Context())).GotConn(httptrace.GotConnInfo{Conn: conn})
	if err := way.Fault(net.ErrClosed); !errors.Is(err, runtime.ErrNotSent) || !errors.Is(err, over) || !conn.closed {
		t.Errorf("%v, closed %t", err, conn.closed)
	}
}

// TestWrote: for a pipe the number of written bytes is known.
func TestWrote(t *testing.T) {
	for _, c := range []struct {
		name   string
		n      int64
		err    error
		unsent bool
	}{
		{"closed before the frame", 0, os.ErrClosed, true},
		{"closed after a part of it", 1, os.ErrClosed, false},
		{"whole", 9, nil, false},
	} {
		if err := Wrote(c.n, c.err); errors.Is(err, runtime.ErrNotSent) != c.unsent || !errors.Is(err, c.err) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

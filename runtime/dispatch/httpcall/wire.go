package httpcall

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime/debug"
	"sync"
)

// wire is the connection of one dispatch. It knows whether a byte of the request may
// have left.
type wire struct {
	net.Conn
	// exact says that a Write that returns 0 bytes put none on the wire. TLS cannot
	// say so: it may have written part of a record.
	exact bool
	// waited says that the connection was made before its dispatch, and socket is the
	// connection below TLS.
	waited bool
	socket net.Conn

	mu      sync.Mutex
	ended   bool
	writing int // Writes under way
	left    bool
}

var (
	errEnded = errors.New("the dispatch has ended")
	errStale = errors.New("the server closed the connection, or spoke on it, before the request")
)

// Write refuses after the dispatch has ended: the transport writes in a goroutine of its
// own, which may be late, after the caller was told "not sent".
func (w *wire) Write(b []byte) (int, error) {
	w.mu.Lock()
	if w.ended {
		w.mu.Unlock()
		return 0, errEnded
	}
	if !w.left && w.arrived() {
		w.mu.Unlock()
		return 0, errStale
	}
	w.writing++
	w.mu.Unlock()

	n, err := w.Conn.Write(b)

	w.mu.Lock()
	w.writing--
	if n > 0 || !w.exact {
		w.left = true
	}
	w.mu.Unlock()
	return n, err
}

// arrived reports whether anything arrived on a connection that waited. Then no request may
// use it: a server that sends something before a request is about to close the connection, and
// an answer that came before the request cannot be the answer to it.
func (w *wire) arrived() bool { return w.waited && unread(w.socket) }

// End implements [onwire.Ender].
func (w *wire) End() (left bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	return w.left || w.writing > 0
}

type dialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// plain connects without TLS, and secure with TLS. The bytes of the TLS handshake are not part
// of the request.
func plain(dial dialFunc) dialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &wire{Conn: c, socket: c, exact: true}, nil
	}
}

func secure(dial dialFunc, config *tls.Config) dialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		config := config.Clone()
		if config.ServerName == "" {
			host, _, err := net.SplitHostPort(addr)
			if err != nil {
				return nil, errors.Join(err, c.Close())
			}
			config.ServerName = host
		}
		t := tls.Client(c, config)
		if err := t.HandshakeContext(ctx); err != nil {
			return nil, errors.Join(err, c.Close())
		}
		return &wire{Conn: t, socket: c}, nil
	}
}

// caught turns a panic of the program's Dial, or of a function of its TLS configuration, into an error. The
// transport dials in goroutines of its own, in which a panic ends the process.
func caught(dial dialFunc) dialFunc {
	return func(ctx context.Context, network, addr string) (conn net.Conn, err error) {
		defer func() {
			if p := recover(); p != nil {
				slog.Error("panic", "in", "Options.Dial", "value", fmt.Sprint(p), "stack", string(debug.Stack()))
				conn, err = nil, fmt.Errorf("dial %s panicked: %v", addr, p)
			}
		}()
		return dial(ctx, network, addr)
	}
}

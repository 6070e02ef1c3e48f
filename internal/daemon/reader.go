package daemon

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/internal/listen"
)

// Reader answers the routes that need only the log, for a store that no process has open. It
// runs the daemon's own code on a store opened for reading, so a verb prints the same whether a
// daemon runs or not. No other process can reach it: it has no socket on disk.
type Reader struct {
	d      *Daemon
	srv    *http.Server
	pairs  *pairs
	served chan error
}

// OpenReader opens the store in dir for reading. Until Close, no other process can open the store.
// OpenReader fails with STATE_LOCK_ACQUIRE_FAILED if another process has it open. c says which tool
// servers there are, and nil that they are not known; OpenReader starts none of them.
func OpenReader(dir, version string, c *config.Config) (*Reader, error) {
	if c == nil {
		c = config.Default()
	}
	d, err := open(context.Background(), Options{Data: dir, Config: c, Logger: slog.New(slog.DiscardHandler), Clock: time.Now, Version: version, readOnly: true})
	if err != nil {
		return nil, err
	}
	r := &Reader{d: d, pairs: newPairs(), served: make(chan error, 1)}
	r.srv = &http.Server{Handler: d, ConnContext: identify, MaxHeaderBytes: maxHeaderBytes, DisableGeneralOptionsHandler: true, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelWarn)}
	go func() { r.served <- listen.HTTP(r.srv, d.door(r.pairs)) }()
	return r, nil
}

// Dial makes a connection to the reader, for client.Options.
func (r *Reader) Dial(ctx context.Context) (net.Conn, error) { return r.pairs.dial(ctx) }

// Close ends the connections and closes the store.
func (r *Reader) Close() error {
	close(r.d.drain) // a stream ends
	err := r.srv.Close()
	if served := <-r.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return errors.Join(err, r.d.close())
}

// pairs is a listener whose connections are pairs of sockets without a name.
type pairs struct {
	accept chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPairs() *pairs { return &pairs{accept: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pairs) dial(ctx context.Context) (net.Conn, error) {
	near, far, err := socketPair()
	if err != nil {
		return nil, unavailable("make a pair of sockets", err)
	}
	select {
	case p.accept <- far:
		return near, nil
	case <-p.closed:
		err = net.ErrClosed
	case <-ctx.Done():
		err = ctx.Err()
	}
	return nil, errors.Join(err, near.Close(), far.Close())
}

func (p *pairs) Accept() (net.Conn, error) {
	select {
	case c := <-p.accept:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pairs) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pairs) Addr() net.Addr { return &net.UnixAddr{Net: "unix"} }

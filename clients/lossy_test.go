//go:build unix

package clients

import (
	"errors"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
)

// lossy is a socket in front of the daemon's. It loses answers: the daemon has acted, and the client does
// not learn it.
type lossy struct {
	socket string
	lose   atomic.Int32 // number of the next answers to lose
}

func newLossy(t *testing.T, w *world) *lossy {
	t.Helper()
	l := &lossy{socket: filepath.Join(w.dir, "lossy")}
	listener, err := net.Listen("unix", l.socket)
	if err != nil {
		t.Fatal(err)
	}
	var open sync.WaitGroup
	open.Go(func() {
		for {
			c, err := listener.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				t.Error(err)
				return
			}
			open.Go(func() { l.pass(c, w.socket) })
		}
	})
	t.Cleanup(func() {
		if err := listener.Close(); err != nil {
			t.Error(err)
		}
		open.Wait()
	})
	return l
}

// pass forwards one connection in both directions until an answer is to be lost.
func (l *lossy) pass(client net.Conn, socket string) {
	defer client.Close()
	daemon, err := net.Dial("unix", socket)
	if err != nil {
		return // as if no daemon ran
	}
	go func() {
		defer daemon.Close()
		b := make([]byte, 64<<10)
		for {
			n, err := client.Read(b)
			if err != nil {
				return
			}
			if _, err := daemon.Write(b[:n]); err != nil {
				return
			}
		}
	}()
	b := make([]byte, 64<<10)
	for {
		n, err := daemon.Read(b)
		if err != nil {
			return
		}
		if l.lose.Load() > 0 {
			l.lose.Add(-1)
			return
		}
		if _, err := client.Write(b[:n]); err != nil {
			return
		}
	}
}

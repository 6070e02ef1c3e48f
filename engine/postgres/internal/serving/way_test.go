package serving_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// way is what lies between one replica and one server: it carries bytes both ways, and can be cut.
type way struct {
	listener net.Listener

	mu    sync.Mutex
	moved *sync.Cond
	to    string // socket of the server, "" where there is none
	cut   bool
	holds [2]bool       // of each direction: bytes wait, and go on later, also where their sender has gone
	drops [2]bool       // of each direction: bytes are lost, and so is all that follows on the connection
	armed chan struct{} // where it is set: answers to appends are held, and it is closed with the first one
	first bool          // and there was none yet
	open  map[*carried]bool
}

// Directions of a way.
const (
	toServer = iota
	toReplica
)

// socketName is that of a server's socket in its directory.
const socketName = ".s.PGSQL.5432"

// newWay makes a way whose socket lies in a directory, as a server's does.
func newWay(t *testing.T, dir string) *way {
	t.Helper()
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(dir, socketName))
	if err != nil {
		t.Fatal(err)
	}
	w := &way{listener: l, open: map[*carried]bool{}}
	w.moved = sync.NewCond(&w.mu)
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		w.leadTo("")
		w.set(func() { w.cut = true })
	})
	go w.accept()
	return w
}

// leadTo has new connections go to another server.
func (w *way) leadTo(socket string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.to = socket
}

// set changes what becomes of bytes. A cut ends every connection.
func (w *way) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
	if w.cut {
		for c := range w.open {
			c.end()
		}
	}
	w.moved.Broadcast()
}

// appendBytes is how many bytes an append has at least: its statements come as one.
const appendBytes = 1000

// holdsAnswers has the way hold the answers to appends from now on, and says when there was one. All else
// goes on, so more appends come.
func (w *way) holdsAnswers() (held <-chan struct{}) {
	c := make(chan struct{})
	w.set(func() { w.armed, w.first = c, true })
	return c
}

// heal lets bytes through again. A connection that has lost some ends.
func (w *way) heal() {
	w.set(func() {
		w.cut, w.holds, w.drops, w.armed = false, [2]bool{}, [2]bool{}, nil
		for c := range w.open {
			c.unanswered = false
			if c.lost != [2]bool{} {
				c.end()
			}
		}
	})
}

func (w *way) accept() {
	for {
		client, err := w.listener.Accept()
		if err != nil {
			return
		}
		w.mu.Lock()
		to, cut := w.to, w.cut
		w.mu.Unlock()
		server, err := net.Dial("unix", to)
		if err != nil || cut {
			client.Close()
			if err == nil {
				server.Close()
			}
			continue
		}
		c := &carried{way: w, ends: [2]net.Conn{toServer: server, toReplica: client}}
		w.mu.Lock()
		w.open[c] = true
		w.mu.Unlock()
		go c.carry(toServer)
		go c.carry(toReplica)
	}
}

// carried is one connection.
type carried struct {
	way  *way
	ends [2]net.Conn // by the direction that leads there
	lost [2]bool     // under the way's lock
	done int         // directions that have ended
	// unanswered is set where an append went to the server, whose answer is held.
	unanswered bool
}

func (c *carried) end() {
	for _, e := range c.ends {
		_ = e.Close() // its other side ends it too
	}
}

// carry moves the bytes of one direction. Where their receiver has gone, or their sender, the other
// direction goes on to its own end: a database does what it was told by somebody who is gone.
func (c *carried) carry(direction int) {
	from, to := c.ends[1-direction], c.ends[direction]
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if c.way.passes(c, direction, n) && n > 0 {
			_, werr := to.Write(buffer[:n])
			if werr != nil && errors.Is(werr, net.ErrClosed) {
				break
			}
		}
		if err != nil {
			break
		}
	}
	_ = to.Close() // it may be closed already
	c.way.mu.Lock()
	defer c.way.mu.Unlock()
	if c.done++; c.done == 2 {
		delete(c.way.open, c)
	}
}

// passes waits until bytes go on, and reports whether they are not lost.
func (w *way) passes(c *carried, direction, n int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.armed != nil && direction == toServer && n > appendBytes {
		c.unanswered = true
		if w.first {
			close(w.armed)
			w.first = false
		}
	}
	for (w.holds[direction] || direction == toReplica && c.unanswered) && !w.cut {
		w.moved.Wait()
	}
	c.lost[direction] = c.lost[direction] || w.drops[direction] || w.cut
	return !c.lost[direction]
}

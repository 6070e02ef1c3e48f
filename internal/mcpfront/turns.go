package mcpfront

import (
	"sync"

	"github.com/tgad/tgad/internal/mcpfront/frames"
)

// turns are writes of a client's messages to a tool server, in the order of the messages. If the client has several
// conversations, its next message must not wait until this tool server reads: it may be for another one. So the writes wait
// in a queue. There are as many requests in it as may be under way, and as many other messages. With one conversation the
// client itself waits.
type turns struct {
	c     *conv
	mu    sync.Mutex
	queue []turn
	tells int // turns in the queue that are no requests
	runs  bool
}

type turn struct {
	write func()
	tells bool
}

// take makes the write of a request after the writes before it.
func (t *turns) take(write func()) { t.add(turn{write: write}) }

// tell makes the write of another message: a notification, or the answer to a question of the tool server's. Nothing else bounds
// how many of them a client sends, so one too many is dropped. The tool server has not read any of those before it.
func (t *turns) tell(f *frames.Frame, write func()) {
	if t.add(turn{write, true}) {
		return
	}
	t.c.s.Log.Warn("dropped a message: too many wait for a tool server that does not read", "method", f.Method)
	f.Close()
}

func (t *turns) add(next turn) bool {
	if !t.c.lasting {
		next.write()
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if next.tells {
		if t.tells >= t.c.s.opts.MaxRequests {
			return false
		}
		t.tells++
	}
	t.queue = append(t.queue, next)
	if !t.runs {
		t.runs = true
		t.c.work.Go(t.run)
	}
	return true
}

// run makes the writes in the queue.
func (t *turns) run() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.queue) > 0 {
		next := t.queue[0]
		t.queue = t.queue[1:]
		if next.tells {
			t.tells--
		}
		t.mu.Unlock()
		next.write()
		t.mu.Lock()
	}
	t.runs = false
}

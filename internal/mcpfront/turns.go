package mcpfront

import "sync"

// turns are writes of a client's messages to a tool server, in the order of the messages. If the client has several
// conversations, its next message must not wait until this tool server reads: it may be for another one. So the writes wait
// in a queue; as many requests may be in it as may be under way. With one conversation the client itself waits.
type turns struct {
	c     *conv
	mu    sync.Mutex
	queue []func()
	runs  bool
}

// take makes a write after those before it.
func (t *turns) take(write func()) {
	if !t.c.lasting {
		write()
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.queue = append(t.queue, write)
	if !t.runs {
		t.runs = true
		t.c.work.Go(t.run)
	}
}

// run makes the writes in the queue.
func (t *turns) run() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.queue) > 0 {
		write := t.queue[0]
		t.queue = t.queue[1:]
		t.mu.Unlock()
		write()
		t.mu.Lock()
	}
	t.runs = false
}

package main

import "sync"

// group is a group commit: whoever comes while a commit runs waits for the next, which
// takes them all. Stores that commit one caller at a time get it put before them, so
// that what is compared is the store and not the lack of a queue.
type group struct {
	mu      sync.Mutex
	work    sync.Cond
	pending []record
	closed  bool
	done    chan struct{}
}

type record struct {
	key, value []byte
	reply      chan error
}

func newGroup(commit func([]record) error) *group {
	g := &group{done: make(chan struct{})}
	g.work.L = &g.mu
	go func() {
		defer close(g.done)
		var batch []record
		for {
			g.mu.Lock()
			for len(g.pending) == 0 && !g.closed {
				g.work.Wait()
			}
			batch, g.pending = g.pending, batch[:0]
			g.mu.Unlock()
			if len(batch) == 0 {
				return
			}
			err := commit(batch)
			for _, r := range batch {
				r.reply <- err
			}
		}
	}()
	return g
}

func (g *group) put(key, value []byte) error {
	r := record{key: key, value: value, reply: make(chan error, 1)}
	g.mu.Lock()
	g.pending = append(g.pending, r)
	g.mu.Unlock()
	g.work.Signal()
	return <-r.reply
}

func (g *group) close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.work.Signal()
	<-g.done
}

package main

import "sync"

// group is a group commit: callers that come while a commit runs wait for the next one, which
// takes them all. It is put in front of stores that commit one caller at a time, so that the
// store is compared and not the lack of a queue.
type group struct {
	mu     sync.Mutex
	work   sync.Cond
	next   *batch
	closed bool
	done   chan struct{}
}

// batch is what one commit takes. Its waiters are woken by one channel, as tgad's are.
type batch struct {
	records []record
	err     error
	done    chan struct{}
}

type record struct{ key, value []byte }

func newBatch() *batch { return &batch{done: make(chan struct{})} }

func newGroup(commit func([]record) error) *group {
	g := &group{next: newBatch(), done: make(chan struct{})}
	g.work.L = &g.mu
	go func() {
		defer close(g.done)
		for {
			g.mu.Lock()
			for len(g.next.records) == 0 && !g.closed {
				g.work.Wait()
			}
			b := g.next
			g.next = newBatch()
			g.mu.Unlock()
			if len(b.records) == 0 {
				return
			}
			b.err = commit(b.records)
			close(b.done)
		}
	}()
	return g
}

func (g *group) put(key, value []byte) error {
	g.mu.Lock()
	b := g.next
	b.records = append(b.records, record{key, value})
	g.mu.Unlock()
	g.work.Signal()
	<-b.done
	return b.err
}

func (g *group) close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.work.Signal()
	<-g.done
}

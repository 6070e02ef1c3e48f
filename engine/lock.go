package engine

import (
	"context"
	"slices"
	"sync"

	"github.com/tgad/tgad/schemas/tga"
)

// locks is a set of mutexes named by K. A name costs memory only while it is held or
// waited for, so the set is bounded by the calls in flight. Waiters are served in the
// order they came.
type locks[K comparable] struct {
	mu   sync.Mutex
	held map[K][]chan struct{} // waiters of a held name; absent = free
}

func (l *locks[K]) init() { l.held = make(map[K][]chan struct{}) }

// try takes k if it is free.
func (l *locks[K]) try(k K) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, held := l.held[k]; held {
		return false
	}
	l.held[k] = nil
	return true
}

// lock takes k, waiting until ctx ends or stop is closed. On error k is not held.
func (l *locks[K]) lock(ctx context.Context, stop <-chan struct{}, k K) error {
	l.mu.Lock()
	waiters, held := l.held[k]
	if !held {
		l.held[k] = nil
		l.mu.Unlock()
		return nil
	}
	turn := make(chan struct{})
	l.held[k] = append(waiters, turn)
	l.mu.Unlock()

	var err error
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-stop:
		err = tga.StoreUnavailable
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.held[k], turn); i >= 0 {
		l.held[k] = slices.Delete(l.held[k], i, i+1)
	} else {
		l.passOn(k) // k was handed to this call while it gave up
	}
	return err
}

func (l *locks[K]) unlock(k K) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.passOn(k)
}

// passOn hands k to the first waiter or frees it. l.mu is held.
func (l *locks[K]) passOn(k K) {
	waiters := l.held[k]
	if len(waiters) == 0 {
		delete(l.held, k)
		return
	}
	close(waiters[0])
	l.held[k] = waiters[1:]
}

// hub tells subscribers of a topic that something about it changed. A subscriber that
// subscribes before it looks cannot miss a change.
type hub[K comparable] struct {
	mu     sync.Mutex
	topics map[K]*topic
}

type topic struct {
	changed chan struct{}
	readers int
}

func (h *hub[K]) init() { h.topics = make(map[K]*topic) }

// subscribe returns a channel that is closed at the next notify of k. The caller must call
// cancel when it no longer listens.
func (h *hub[K]) subscribe(k K) (changed <-chan struct{}, cancel func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topics[k]
	if t == nil {
		t = &topic{changed: make(chan struct{})}
		h.topics[k] = t
	}
	t.readers++
	return t.changed, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if t.readers--; t.readers == 0 && h.topics[k] == t {
			delete(h.topics, k)
		}
	}
}

func (h *hub[K]) notify(k K) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t := h.topics[k]; t != nil {
		close(t.changed)
		delete(h.topics, k)
	}
}

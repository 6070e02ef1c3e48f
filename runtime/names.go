package runtime

import (
	"context"
	"sync"
)

// nameLocks has one lock for each name, as long as somebody holds or waits for it.
type nameLocks struct {
	// mu is held only to read or change the map, never while waiting for a lock in it. A lock is
	// deleted when nobody holds or waits for it. wants is counted under mu, so nobody can get a
	// lock that is being deleted.
	mu   sync.Mutex
	held map[string]*nameLock
}

type nameLock struct {
	free  chan struct{} // holds one token while nobody has the lock
	wants int
}

func (n *nameLocks) lock(ctx context.Context, name string) (release func(), err error) {
	n.mu.Lock()
	if n.held == nil {
		n.held = map[string]*nameLock{}
	}
	l := n.held[name]
	if l == nil {
		l = &nameLock{free: make(chan struct{}, 1)}
		l.free <- struct{}{}
		n.held[name] = l
	}
	l.wants++
	n.mu.Unlock()
	leave := func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if l.wants--; l.wants == 0 {
			delete(n.held, name)
		}
	}
	select {
	case <-l.free:
		return sync.OnceFunc(func() { l.free <- struct{}{}; leave() }), nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}

// lockAll takes the locks of several names, in sorted order: so callers that want some of the
// same names cannot deadlock.
func (n *nameLocks) lockAll(ctx context.Context, sorted []string) (release func(), err error) {
	var held []func()
	release = func() {
		for _, r := range held {
			r()
		}
	}
	for _, name := range sorted {
		r, err := n.lock(ctx, name)
		if err != nil {
			release()
			return nil, err
		}
		held = append(held, r)
	}
	return release, nil
}

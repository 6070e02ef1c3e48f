package runtime

import (
	"context"
	"sync"
	"time"

	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/wal/chain"
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

// listLocks are the locks of the lists that identical calls share, by the identity of the calls. Where other processes
// write to the store too, a lock has two parts: that of a name here, and the lease of the list in the store.
type listLocks struct {
	names *nameLocks
	store Store
}

// listWait is how long a lock waits for another process, if its context has no deadline.
const listWait = 30 * time.Second

// listLock is held until release. lease is that of the list, or zero if the store is not shared.
type listLock struct {
	release func()
	lease   chain.Lease
}

func (ls *listLocks) lock(ctx context.Context, identity string) (listLock, error) {
	release, err := ls.names.lock(ctx, identity)
	if err != nil || !ls.store.Shared() {
		return listLock{release: release}, err
	}
	lease, err := leaseOfList(ctx, ls.store, keyspace.UndeliveredKey(identity))
	if err != nil {
		release()
		return listLock{}, err
	}
	return listLock{func() { ls.store.Release(lease); release() }, lease}, nil
}

// leaseOfList takes the lease of a list, which is a stream.
func leaseOfList(ctx context.Context, store Store, row []byte) (chain.Lease, error) {
	stream, _, err := keyspace.ParseStream(row)
	if err != nil {
		return chain.Lease{}, err
	}
	if _, ends := ctx.Deadline(); !ends { // without one Acquire does not wait
		var end context.CancelFunc
		ctx, end = context.WithTimeout(ctx, listWait)
		defer end()
	}
	return store.Acquire(ctx, stream)
}

// lockAll takes the locks of several identities, in sorted order: so callers that want some of the
// same identities cannot deadlock, in one process or in several.
func (ls *listLocks) lockAll(ctx context.Context, sorted []string) (locks map[string]listLock, release func(), err error) {
	locks = map[string]listLock{}
	var releases []func()
	release = func() {
		for _, r := range releases {
			r()
		}
	}
	for _, identity := range sorted {
		l, err := ls.lock(ctx, identity)
		if err != nil {
			release()
			return nil, nil, err
		}
		locks[identity], releases = l, append(releases, l.release)
	}
	return locks, release, nil
}

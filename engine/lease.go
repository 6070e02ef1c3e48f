package engine

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// leases knows who may append to which trace. A lease lives in memory and ends with the
// process. The incarnation in its epoch keeps a lease of an earlier process from counting as
// current. Only its holder or a person's decision ([DB.Overtake]) ends a lease. There is no
// take-over by time-out: after one, a paused holder and its successor could both send.
//
// A weak lease is one that was lent to a peer for a trace that is not the peer's own. It
// orders the appends of that peer, and it keeps nobody else out.
type leases struct {
	queue locks[tga.ID] // held from Acquire to Release; not by a weak lease

	raising     sync.Mutex // held while a further incarnation is begun
	mu          sync.Mutex
	held        map[tga.ID]chain.Epoch
	lent        map[tga.ID]bool // of the held leases: the holder is outside this process
	weak        map[tga.ID]bool // of the lent leases: the trace is not the holder's own
	first       uint32          // incarnation of the open
	incarnation uint32          // of the newest epoch: larger than first once so many epochs were granted that the counter had to begin again
	counter     uint32          // counter part of the newest epoch that was granted
}

func (l *leases) init() {
	l.queue.init()
	l.held, l.lent, l.weak = make(map[tga.ID]chain.Epoch), make(map[tga.ID]bool), make(map[tga.ID]bool)
}

// begin begins an incarnation. No lease is held then: a store that is reopened was frozen, and
// a frozen store grants no lease.
func (l *leases) begin(incarnation uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.first, l.incarnation, l.counter = incarnation, incarnation, 0
}

// lastEpochs is the counter from which an Acquire begins a new incarnation. More callers than are left will not be in an Acquire
// at once.
const lastEpochs = math.MaxUint32 - 1<<20

// goOn begins a new incarnation of the same open when the counter of this one nears its end: a gateway with 50,000 calls a second
// is there within a day. It is durable before an epoch of it is granted, as at an open. Leases that are held stay current.
func (l *leases) goOn(o *opened) error {
	l.raising.Lock()
	defer l.raising.Unlock()
	newest := l.newest()
	if uint32(newest) < lastEpochs {
		return nil // another caller has done it
	}
	next := uint64(newest.Incarnation()) + 1
	if err := o.incarnate(next, false, func(*writer) {}); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.incarnation, l.counter = uint32(next), 0
	return nil
}

func (l *leases) grant(id tga.ID) (chain.Lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.next(id)
}

// next grants the trace a new epoch. l.mu is held.
func (l *leases) next(id tga.ID) (chain.Lease, error) {
	if l.counter == math.MaxUint32 {
		return chain.Lease{}, tga.Errorf(tga.StoreUnavailable, "no epoch is left in incarnation %d: open the store again", l.incarnation).In(id)
	}
	l.counter++
	epoch := chain.Epoch(l.incarnation)<<32 | chain.Epoch(l.counter)
	l.held[id] = epoch
	delete(l.lent, id)
	delete(l.weak, id)
	return chain.Lease{TraceID: id, Epoch: epoch}, nil
}

// overtake gives a held trace a new epoch. The holder's epoch ends, and the new holder takes
// over its lock in queue. ok is false if nobody holds that lock, or if lentOnly is set and the
// holder is in this process.
func (l *leases) overtake(id tga.ID, lentOnly bool) (lease chain.Lease, ok bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, held := l.held[id]; !held || l.weak[id] || lentOnly && !l.lent[id] {
		return chain.Lease{}, false, nil
	}
	lease, err = l.next(id)
	return lease, err == nil, err
}

// lend marks a lease as held outside this process. It reports whether the lease is weak: the
// caller must then give back its lock in queue.
func (l *leases) lend(lease chain.Lease, own bool) (weak bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held[lease.TraceID] != lease.Epoch {
		return false
	}
	l.lent[lease.TraceID] = true
	if !own {
		l.weak[lease.TraceID] = true
	}
	return !own
}

// check returns nil for the trace's current lease. Its errors distinguish a lease that was
// overtaken from a lease that was never granted.
func (l *leases) check(lease chain.Lease) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	current, held := l.held[lease.TraceID]
	if held && current == lease.Epoch {
		return nil
	}
	newest := chain.Epoch(l.incarnation)<<32 | chain.Epoch(l.counter)
	if uint32(lease.Epoch) == 0 || lease.Epoch > newest {
		return tga.Errorf(tga.StateLockAcquireFailed, "append to trace %s: no lease with epoch %#x was granted", lease.TraceID, uint64(lease.Epoch)).In(lease.TraceID)
	}
	return tga.Errorf(tga.StateConcurrentExecution, "append to trace %s under epoch %#x: current is %#x", lease.TraceID, uint64(lease.Epoch), uint64(current)).In(lease.TraceID)
}

// release ends a lease. It reports whether the lease held the lock in queue, which the caller
// must then give back.
func (l *leases) release(lease chain.Lease) (queued bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held[lease.TraceID] != lease.Epoch || lease.Epoch == 0 {
		return false
	}
	queued = !l.weak[lease.TraceID]
	delete(l.held, lease.TraceID)
	delete(l.lent, lease.TraceID)
	delete(l.weak, lease.TraceID)
	return queued
}

// holds reports whether somebody holds a lease of the trace that is not weak. A weak lease
// does not show that its holder is executing the trace.
func (l *leases) holds(id tga.ID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, held := l.held[id]
	return held && !l.weak[id]
}

func (l *leases) isWeak(id tga.ID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.weak[id]
}

func (l *leases) isLent(id tga.ID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lent[id]
}

// newest returns the newest epoch that was granted.
func (l *leases) newest() chain.Epoch {
	l.mu.Lock()
	defer l.mu.Unlock()
	return chain.Epoch(l.incarnation)<<32 | chain.Epoch(l.counter)
}

// opened returns the incarnation of the open.
func (l *leases) opened() uint32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.first
}

// granted returns how many leases are held, and the incarnation of their epochs.
func (l *leases) granted() (held int, incarnation uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.held), l.incarnation
}

// Acquire grants the lease of a trace, which need not exist yet. While another caller holds
// it, Acquire waits until ctx ends; if ctx has no deadline, Acquire does not wait. It then
// returns STATE_LOCK_ACQUIRE_FAILED, and the holder keeps its lease. A frozen store grants no
// lease: STORE_UNAVAILABLE.
//
// The lease is granted once no append under an earlier lease is under way, so its holder
// reads everything that earlier holders wrote.
func (db *DB) Acquire(ctx context.Context, id tga.ID) (chain.Lease, error) {
	if err := db.health.enter(); err != nil {
		return chain.Lease{}, err
	}
	defer db.health.leave()
	if err := db.writable(); err != nil {
		return chain.Lease{}, err
	}
	if !db.leases.queue.try(id) {
		if _, waits := ctx.Deadline(); !waits {
			return chain.Lease{}, tga.Errorf(tga.StateLockAcquireFailed, "acquire trace %s: another holds its lease", id).In(id)
		}
		if err := db.leases.queue.lock(ctx, db.health.stopped(), id); err != nil {
			return chain.Lease{}, db.health.waitFailed("acquire trace "+id.String()+": another holds its lease", id, err)
		}
	}
	if err := db.traces.lock(ctx, id); err != nil {
		db.leases.queue.unlock(id)
		return chain.Lease{}, err
	}
	defer db.traces.unlock(id)
	lease, err := db.leases.grant(id)
	if err != nil {
		db.leases.queue.unlock(id)
		return lease, err
	}
	if uint32(lease.Epoch) >= lastEpochs {
		if err := db.leases.goOn(db.opened); err != nil {
			db.Release(lease)
			return chain.Lease{}, err
		}
	}
	return lease, nil
}

// Lend is Acquire for a peer outside this process. The peer sends no call of this process, so
// [DB.Overtake] takes such a lease back when a person votes.
//
// own gets the current trace and says whether its next artifact is the peer's to append; a
// trace without an entry has the state 0. If own returns false, the lease is weak: it keeps
// out only other peers that would get a weak lease. Everybody else gets the trace at once, as
// if nobody held it.
func (db *DB) Lend(ctx context.Context, id tga.ID, own func(*chain.Trace) bool) (chain.Lease, error) {
	asks := func() (bool, error) {
		t, err := db.Load(ctx, id)
		if tga.CodeOf(err) == tga.NotFound {
			t, err = chain.NewTrace(id), nil
		}
		if err != nil {
			return false, err
		}
		return own(t), nil
	}
	mine, err := asks()
	if err != nil {
		return chain.Lease{}, err
	}
	for !mine && db.leases.isWeak(id) {
		failed := func(why error) error {
			return db.health.waitFailed("acquire trace "+id.String()+": another peer holds its lease", id, why)
		}
		if _, waits := ctx.Deadline(); !waits {
			return chain.Lease{}, failed(context.DeadlineExceeded)
		}
		select {
		case <-time.After(overtakePause):
		case <-ctx.Done():
			return chain.Lease{}, failed(ctx.Err())
		case <-db.health.stopped():
			return chain.Lease{}, failed(tga.StoreUnavailable)
		}
	}
	lease, err := db.Acquire(ctx, id)
	if err != nil {
		return lease, err
	}
	// Under the lease the trace does not change, so this answer of own holds.
	if mine, err = asks(); err != nil {
		db.Release(lease)
		return chain.Lease{}, err
	}
	if db.leases.lend(lease, mine) {
		db.leases.queue.unlock(id)
		db.released.notify(id)
	}
	return lease, nil
}

// overtakePause is how long Overtake waits between two looks at a lease that it may not
// take, or that is just being handed on.
const overtakePause = time.Millisecond

// Overtake grants the lease of a trace at once, whoever holds it. The holder's epoch ends,
// and its later appends are refused with STATE_CONCURRENT_EXECUTION. Overtake does not stop
// bytes that the holder has already sent. With lentOnly it overtakes only a lease that was
// lent, and waits for any other lease as [DB.Acquire] does.
//
// The lease is granted once no append under an earlier lease is under way.
func (db *DB) Overtake(ctx context.Context, id tga.ID, lentOnly bool) (chain.Lease, error) {
	if err := db.health.enter(); err != nil {
		return chain.Lease{}, err
	}
	defer db.health.leave()
	if err := db.writable(); err != nil {
		return chain.Lease{}, err
	}
	for {
		lease, ok, err := db.leases.overtake(id, lentOnly)
		if err != nil {
			return chain.Lease{}, err
		}
		if ok {
			// Wait for appends under the old lease that passed the check of leases before.
			if err := db.traces.lock(ctx, id); err != nil {
				db.Release(lease)
				return chain.Lease{}, err
			}
			db.traces.unlock(id)
			return lease, nil
		}
		lease, err = db.Acquire(withoutDeadline{ctx}, id)
		if tga.CodeOf(err) != tga.StateLockAcquireFailed {
			return lease, err
		}
		// Another caller holds the lease, or it is just being handed to a waiting caller.
		if _, waits := ctx.Deadline(); lentOnly && !waits && db.leases.holds(id) && !db.leases.isLent(id) {
			return lease, err
		}
		select {
		case <-time.After(overtakePause):
		case <-ctx.Done():
			return chain.Lease{}, db.health.waitFailed("overtake trace "+id.String(), id, ctx.Err())
		case <-db.health.stopped():
			return chain.Lease{}, db.health.waitFailed("overtake trace "+id.String(), id, tga.StoreUnavailable)
		}
	}
}

// withoutDeadline is a context without a deadline: Acquire does not wait for another holder.
type withoutDeadline struct{ context.Context }

func (withoutDeadline) Deadline() (time.Time, bool) { return time.Time{}, false }

// Current reports whether a lease is still its trace's newest.
func (db *DB) Current(lease chain.Lease) bool { return db.leases.check(lease) == nil }

// While returns ctx unchanged: only one process has the store, so a lease cannot be lost to
// another process.
func (db *DB) While(ctx context.Context, _ chain.Lease) (context.Context, context.CancelFunc) {
	return ctx, func() {}
}

// Departed reports whether an epoch is from an earlier open of the store. The process of that
// open had to end or close the store before this open.
func (db *DB) Departed(epoch chain.Epoch) bool { return epoch.Incarnation() < db.leases.opened() }

// Held is Current: only one process has the store, so every holder is in this process.
func (db *DB) Held(lease chain.Lease) bool { return db.Current(lease) }

// Release ends a lease. If the lease is not current, Release does nothing.
func (db *DB) Release(lease chain.Lease) {
	if db.leases.release(lease) {
		db.leases.queue.unlock(lease.TraceID)
		db.released.notify(lease.TraceID)
	}
}

// Holder says whether somebody holds the lease of a trace now. Only one process has the
// store, so the answer is always known.
func (db *DB) Holder(id tga.ID) ledger.Liveness {
	if db.leases.holds(id) {
		return ledger.HolderAlive
	}
	return ledger.HolderGone
}

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

// leases knows who may append to which trace. A lease lives in memory: it dies with
// the process, and the incarnation in the epoch keeps one of an earlier process from
// being taken for current. Nothing ends a lease but its holder and a
// person's word ([DB.Overtake]): a take-over by time-out is how a paused holder and its
// successor both send. A weak lease is one that was lent to somebody about what is not
// theirs: it orders that peer's own appends and keeps nobody out.
type leases struct {
	queue locks[tga.ID] // held from Acquire to Release; not by a weak lease

	mu          sync.Mutex
	held        map[tga.ID]chain.Epoch
	lent        map[tga.ID]bool // of those held: by somebody outside this process
	weak        map[tga.ID]bool // of those lent: about what another did
	incarnation uint32
	counter     uint32 // of the newest epoch granted
}

func (l *leases) init() {
	l.queue.init()
	l.held, l.lent, l.weak = make(map[tga.ID]chain.Epoch), make(map[tga.ID]bool), make(map[tga.ID]bool)
}

// begin begins an incarnation. Nobody holds a lease: a store that is opened anew was frozen, and
// a frozen store grants none.
func (l *leases) begin(incarnation uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.incarnation, l.counter = incarnation, 0
}

func (l *leases) grant(id tga.ID) (chain.Lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.next(id)
}

// next makes the newest epoch the trace's. l.mu is held.
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

// overtake gives a held trace the newest epoch: the holder's is over from here on, and its
// place in the queue is the new holder's. ok is false where nobody is in that place, or only
// is lent and the holder is of this process.
func (l *leases) overtake(id tga.ID, lentOnly bool) (lease chain.Lease, ok bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, held := l.held[id]; !held || l.weak[id] || lentOnly && !l.lent[id] {
		return chain.Lease{}, false, nil
	}
	lease, err = l.next(id)
	return lease, err == nil, err
}

// lend marks a lease as held outside this process. It reports whether the lease is weak: then
// it has no place in the queue from here on.
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

// check returns nil for the trace's current lease. It tells a lease that was
// overtaken from one that was never granted.
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

// release ends a lease. It reports whether the lease had the place in the queue, which is
// then to be given up.
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

// holds reports whether somebody is at the trace. A weak lease is nobody's life sign.
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

// granted returns how many leases are held, and the incarnation of their epochs.
func (l *leases) granted() (held int, incarnation uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.held), l.incarnation
}

// Acquire grants the lease of a trace, which need not exist yet. While another holds
// it, Acquire waits until ctx ends; a ctx without a deadline does not wait. The error
// is STATE_LOCK_ACQUIRE_FAILED and leaves the holder's lease alone. A frozen store
// grants none: STORE_UNAVAILABLE.
//
// The lease is granted once no append under an earlier one is under way: what its
// holder reads is all that earlier holders wrote.
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
	}
	return lease, err
}

// Lend is Acquire for somebody outside this process, who sends nothing of this process's:
// [DB.Overtake] takes such a lease back for the vote of a person.
//
// own says of the trace as it stands whether what is to come is the peer's to append; a
// trace without an entry has the state 0. Where it is not, the lease is weak: it keeps other
// peers out that are no more than that, and everybody else takes the trace at once, as if
// nobody held it.
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
	// Under the lease nothing moves: now it is certain whose the trace is.
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

// Overtake grants the lease of a trace at once, whoever holds it: the holder's epoch is
// over, and what it appends from now on is refused with STATE_CONCURRENT_EXECUTION. It
// stops no byte that the holder has on the wire. With lentOnly it overtakes a lease that
// was lent and waits for any other, as [DB.Acquire] does.
//
// The lease is granted once no append under an earlier one is under way.
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
			// Appends that passed their check before are under way: they are waited for.
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
		// Another has it, or it is being handed on to one who waited.
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

// withoutDeadline is a context that Acquire does not wait under.
type withoutDeadline struct{ context.Context }

func (withoutDeadline) Deadline() (time.Time, bool) { return time.Time{}, false }

// Current reports whether a lease is still its trace's newest.
func (db *DB) Current(lease chain.Lease) bool { return db.leases.check(lease) == nil }

// While returns ctx: one process has the store, so nobody overtakes a lease unseen.
func (db *DB) While(ctx context.Context, _ chain.Lease) (context.Context, context.CancelFunc) {
	return ctx, func() {}
}

// Departed reports whether an epoch is of an earlier open of the store: its process had to end
// before this one could open it.
func (db *DB) Departed(epoch chain.Epoch) bool {
	_, incarnation := db.leases.granted()
	return epoch.Incarnation() < incarnation
}

// Held is Current: one process has the store, so who holds a lease is one of it.
func (db *DB) Held(lease chain.Lease) bool { return db.Current(lease) }

// Release ends a lease; of one that is not current it does nothing.
func (db *DB) Release(lease chain.Lease) {
	if db.leases.release(lease) {
		db.leases.queue.unlock(lease.TraceID)
		db.released.notify(lease.TraceID)
	}
}

// Holder says whether somebody holds the lease of a trace now. One process has the
// store, so it always knows.
func (db *DB) Holder(id tga.ID) ledger.Liveness {
	if db.leases.holds(id) {
		return ledger.HolderAlive
	}
	return ledger.HolderGone
}

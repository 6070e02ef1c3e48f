package engine

import (
	"context"
	"sync"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// traces are the traces of an open store: what of each is durable, and what is on its way.
//
// A trace has one lock, held from the check of an append to its place in the queue of commits.
// Under it the trace's newest state is in one of four places, and nobody else changes which:
// the step in tails while it is on its way, then the cache, then the index; or nowhere, for a
// trace that is new. The committer alone takes a step out of tails, after the cache has it.
type traces struct {
	index  *index
	health *health

	locks locks[tga.ID]      // a trace, from its check to its place in the queue of commits
	tails tails              // steps in that queue, and those being synced
	cache *lru[tga.ID, fold] // what was used last of what is durable
	begun newTraces          // which new traces need not be looked for
}

// openTraces returns the traces of an index. Until it is known of begun from which id on there are
// none, each is looked for.
func openTraces(x *index, cache *lru[tga.ID, fold]) *traces {
	t := &traces{index: x, health: x.health, cache: cache}
	t.locks.init()
	t.tails.init()
	t.begun.init(nowhere)
	return t
}

// lock takes the lock of a trace once all its appends are durable: what its holder
// reads is on disk.
func (t *traces) lock(ctx context.Context, id tga.ID) error {
	if err := t.lockQueued(ctx, id); err != nil {
		return err
	}
	tail := t.tails.get(id)
	if tail == nil {
		return nil
	}
	// What is in flight was queued under the lock, so while it is held there is no later
	// tail to wait for.
	err := error(nil)
	select {
	case <-tail.commit.group.done:
		err = tail.commit.group.err
	case <-ctx.Done():
		err = t.health.waitFailed("wait for trace "+id.String(), id, ctx.Err())
	case <-t.health.poisoned:
		err = t.health.sick()
	}
	if err != nil {
		t.unlock(id)
	}
	return err
}

// lockQueued takes the lock of a trace whose newest appends may still be on their way.
func (t *traces) lockQueued(ctx context.Context, id tga.ID) error {
	if err := t.locks.lock(ctx, t.health.poisoned, id); err != nil {
		return t.health.waitFailed("wait for trace "+id.String(), id, err)
	}
	return nil
}

// unlock gives the lock of a trace back.
func (t *traces) unlock(id tga.ID) { t.locks.unlock(id) }

// fold returns a trace as it is on disk, the empty one where the id was never used.
// The trace's lock is held.
func (t *traces) fold(id tga.ID) (fold, error) {
	if f, ok := t.cache.get(id); ok {
		return f, nil
	}
	f, err := t.index.replay(id)
	if err == nil && f.Head.Seq > 0 {
		t.cache.put(id, f, foldSize(f.Trace))
	}
	return f, err
}

// tip returns a trace as its queued appends will leave it, and the commit of the newest of
// them, nil where all is durable. The trace's lock is held.
func (t *traces) tip(id tga.ID) (fold, *commitment, error) {
	if s := t.tails.get(id); s != nil {
		return s.fold(), s.commit, nil
	}
	if f, ok := t.cache.get(id); ok {
		return f, nil, nil
	}
	// What is appended to and not in the cache is new, most of the time.
	if t.begun.absent(id) {
		return fold{Trace: chain.NewTrace(id)}, nil, nil
	}
	if unused, err := t.index.unused(id); unused || err != nil {
		return fold{Trace: chain.NewTrace(id)}, nil, err
	}
	f, err := t.fold(id)
	return f, nil, err
}

// entries reads the entries of a trace after a sequence number. A trace is small (four entries,
// bounded answers), so it is read at once and nothing is held while the caller looks at it. With
// an error it returns the entries before what is damaged.
func (t *traces) entries(ctx context.Context, id tga.ID, after uint64) (list []chain.Entry, err error) {
	if err := t.lock(ctx, id); err != nil {
		return nil, err
	}
	defer t.unlock(id)
	rows, err := t.index.rows(id)
	if err != nil {
		return nil, recoveryFailed(id, err)
	}
	all, err := rows.decode()
	for _, e := range all.Entries {
		if e.Seq > after {
			list = append(list, e)
		}
	}
	if err != nil {
		err = recoveryFailed(id, err)
	}
	return list, err
}

// publish shows a durable step.
func (t *traces) publish(s *step) {
	t.cache.put(s.after.ID, s.fold(), foldSize(s.after))
	t.tails.remove(s) // after the cache has it: a reader finds it in one of the two
}

// tails knows the newest step of each trace that has one in flight.
type tails struct {
	mu   sync.Mutex
	byID map[tga.ID]*step
}

func (t *tails) init() { t.byID = make(map[tga.ID]*step) }

func (t *tails) put(s *step) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.byID[s.after.ID] = s
}

func (t *tails) get(id tga.ID) *step {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byID[id]
}

func (t *tails) remove(s *step) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byID[s.after.ID] == s {
		delete(t.byID, s.after.ID)
	}
}

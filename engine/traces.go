package engine

import (
	"context"
	"sync"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// traces are the traces of an open store: the durable state of each, and its queued steps.
//
// Each trace has one lock, held from the check of an append until it is in the queue of commits.
// The holder of the lock finds the newest state of the trace in the first of these places that has
// it: tails, for a step that is not durable yet; the cache; the index. A new trace is in none of
// them. Only the committer removes a step from tails, after it has put the trace into the cache.
type traces struct {
	index  *index
	health *health

	locks locks[tga.ID]      // of traces, each held from the check of an append until it is queued
	tails tails              // the steps that are queued or being synced
	cache *lru[tga.ID, fold] // the durable traces used last
	begun newTraces          // knows which ids are new, without a look-up
}

// openTraces returns the traces of an index. Until begun is given the largest id of the store, each
// new trace is looked up in the index.
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
	// A step is queued under the lock. This caller holds the lock, so no later step can
	// follow this tail.
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

// lockQueued takes the lock of a trace whose newest appends may not be durable yet.
func (t *traces) lockQueued(ctx context.Context, id tga.ID) error {
	if err := t.locks.lock(ctx, t.health.poisoned, id); err != nil {
		return t.health.waitFailed("wait for trace "+id.String(), id, err)
	}
	return nil
}

// unlock gives the lock of a trace back.
func (t *traces) unlock(id tga.ID) { t.locks.unlock(id) }

// fold returns a trace as it is on disk, an empty trace if the id was never used.
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

// tip returns the trace that its queued appends will lead to, and the commitment of the newest
// of them, nil if all are durable. The trace's lock is held.
func (t *traces) tip(id tga.ID) (fold, *commitment, error) {
	if s := t.tails.get(id); s != nil {
		return s.fold(), s.commit, nil
	}
	if f, ok := t.cache.get(id); ok {
		return f, nil, nil
	}
	// A trace that gets an append and is not in the cache is new, most of the time.
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
// bounded answers), so entries reads all of it and holds no lock while the caller uses the list. If
// an entry is damaged, it returns the entries before that one and an error.
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

// publish makes a durable step visible to readers.
func (t *traces) publish(s *step) {
	t.cache.put(s.after.ID, s.fold(), foldSize(s.after))
	t.tails.remove(s) // after the cache has it: a reader finds it in one of the two
}

// tails has, for each trace with steps in flight, the newest of them.
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

package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"github.com/tgad/tgad/internal/sealrules"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// erasedState is a state that is to be erased: a scope of an agent's state, or a family of working states.
type erasedState struct {
	Stream tga.ID   `json:"stream"`
	Values []tga.ID `json:"values,omitempty"` // streams of the keys of a scope
}

// besides reports whether a body may be an old value of an erased state. Such a value was replaced or
// deleted, and no row says any more to which state it belonged.
func (m *erasing) besides(key []byte) bool {
	kind, ok := keyspace.KindOf(key)
	return m.Beside && ok && (kind == keyspace.Stream || kind == keyspace.Blob)
}

// planStates finds the states that are to be erased.
func (a *eraser) planStates(what *Erasure, m *erasing, done *Erased) error {
	names := map[tga.ID]string{}
	for _, s := range what.Agents {
		name := "the state of agent " + s.Agent
		if s.Session != "" {
			name += ", session " + s.Session
		}
		names[keyspace.AgentStream(s.Agent, s.Session)] = name
	}
	for _, id := range each(slices.Collect(maps.Keys(names))) {
		if err := a.planState(names[id], id, true, m, done); err != nil {
			return err
		}
	}
	for _, id := range each(what.States) {
		if err := a.planState("working state "+id.String(), id, false, m, done); err != nil {
			return err
		}
	}
	return nil
}

// planState finds the rows and keys of a state that is to be erased, and whether it can be erased now.
// NOT_FOUND: nothing was ever written to it.
func (a *eraser) planState(name string, id tga.ID, scope bool, m *erasing, done *Erased) error {
	if a.leases.holds(id) {
		return tga.Errorf(tga.StateLockAcquireFailed, "erase %s: another process or call holds its lease", name)
	}
	head, err := a.index.get(append([]byte{byte(keyspace.Stream)}, keyspace.StreamKey(id, 0)...))
	if err != nil {
		return err
	}
	keys, err := a.index.keptKeys(keyspace.Stream, id[:])
	if err != nil {
		return err
	}
	s, sealed := erasedState{Stream: id}, len(keys) > 0
	if scope {
		if s.Values, err = a.valuesOf(id); err != nil {
			return err
		}
	}
	rows := 0
	if err := a.eachOfState(&s, func(_, stored []byte) {
		if rows++; len(stored) > 0 {
			keys = append(keys, sealrules.KeyOf(stored))
		}
	}); err != nil {
		return err
	}
	already, err := sealrules.OfState(name, head, rows, sealed)
	if already {
		done.Already++
	}
	if already || err != nil {
		return err
	}
	if len(keys) == 0 { // all its values were deleted
		keys = append(keys, 0)
	}
	done.States++
	m.States, m.Beside = append(m.States, s), true
	return a.add(keys, m, done)
}

// valuesOf returns the streams of the keys that the lists of a scope name. It skips a list whose data key
// was destroyed; a store that was restored from before an erasure can have one.
func (a *eraser) valuesOf(scope tga.ID) (streams []tga.ID, err error) {
	_, err = a.eachItem(scope, func(key, stored []byte) error {
		var names []string
		_, n, err := keyspace.ParseStream(key[1:])
		if err != nil || n == 0 || len(stored) == 0 {
			return err
		}
		list, err := sealrules.Open(key, stored, a.index.keys)
		switch {
		case errors.Is(err, chain.ErrKeyDestroyed):
			return nil
		case err != nil:
			return err
		}
		if err := json.Unmarshal(list, &names); err != nil {
			return damaged("erase: the list %x of a state's keys: %w", n, err)
		}
		for _, name := range names {
			streams = append(streams, keyspace.ValueStream(scope, name))
		}
		return nil
	})
	return streams, err
}

// eachOfState calls f with each row of a state and its stored value, except its head.
func (a *eraser) eachOfState(s *erasedState, f func(key, stored []byte)) error {
	for _, stream := range append(slices.Clip(s.Values), s.Stream) {
		head := append([]byte{byte(keyspace.Stream)}, keyspace.StreamKey(s.Stream, 0)...)
		if _, err := a.eachItem(stream, func(key, stored []byte) error {
			if !bytes.Equal(key, head) {
				f(key, stored)
			}
			return nil
		}); err != nil {
			return err
		}
	}
	lower, upper, err := keyspace.AttachmentBounds(keyspace.Blob, keyspace.NodePrefix(s.Stream))
	for err == nil && lower != nil {
		var rows []kv
		rows, lower, err = a.index.attachmentPage(lower, upper)
		for _, row := range rows {
			f(row.key, row.value)
		}
	}
	return err
}

// states erases states, some at a time. It blocks their leases meanwhile. Each record has what is left of the erasure, so
// a record for each state would make the erasure of many states write far more than they have.
func (a *eraser) states(ctx context.Context, m *erasing) error {
	for len(m.States) > 0 {
		some := slices.SortedFunc(slices.Values(m.States[:min(len(m.States), eraseAtOnce)]), func(x, y erasedState) int {
			return compareIDs(x.Stream, y.Stream) // they are locked in the order of their ids
		})
		ids := make([]tga.ID, len(some))
		for i := range some {
			ids[i] = some[i].Stream
		}
		if err := a.alone(ctx, ids); err != nil {
			return err
		}
		err := a.firstStates(ctx, m, some)
		for _, id := range ids {
			a.leases.queue.unlock(id)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// firstStates erases the first states of an erasure. In one record of the log their heads become a description of the
// erasure, each with a leaf in the global order, and the stored erasure says that the states are empty. A later write
// begins a state anew, under another key, and is not part of the erasure.
func (a *eraser) firstStates(ctx context.Context, m *erasing, some []erasedState) error {
	var rows [][]byte
	for i := range some {
		if err := a.eachOfState(&some[i], func(key, _ []byte) { rows = append(rows, key) }); err != nil {
			return err
		}
	}
	const most = removeBytes / keyspace.MaxLen
	for ; len(rows) > most; rows = rows[:len(rows)-most] {
		w := a.commits.newWriter()
		for _, key := range rows[len(rows)-most:] {
			w.delete(key)
		}
		if err := a.commits.apply(w); err != nil {
			return err
		}
	}
	for i := range some {
		if err := a.lock(ctx, some[i].Stream); err != nil {
			return err
		}
		defer a.unlock(some[i].Stream)
	}
	a.choosing.Lock() // no append can choose the old key and be queued after this record
	defer a.choosing.Unlock()
	next := *m
	next.States, next.Emptied = m.States[len(some):], slices.Clip(m.Emptied)
	w, c := a.commits.newWriter(), new(commitment)
	for _, key := range rows {
		w.delete(key)
	}
	for i := range some {
		s := &some[i]
		next.Emptied = append(append(next.Emptied, s.Stream), s.Values...)
		leaf, err := a.emptyState(w, m, s.Stream)
		w.fail(err)
		leaf.commit = c
		c.steps = append(c.steps, leaf)
	}
	w.fail(next.put(w))
	if err := w.end(c); err != nil {
		return err
	}
	for _, leaf := range c.steps {
		a.tails.put(leaf)
	}
	a.commits.add(c)
	if err := a.commits.await(c); err != nil {
		return err
	}
	*m = next
	for i := range some {
		a.owned.forget(some[i].Stream)
	}
	return nil
}

// emptyState puts the head of an erased state, and returns its leaf.
func (a *eraser) emptyState(w *writer, m *erasing, id tga.ID) (leaf *step, err error) {
	t := chain.NewTrace(id)
	leaf = &step{lease: chain.Lease{TraceID: id, Epoch: a.leases.newest()}, before: fold{Trace: t}, after: t.Successor(), committed: a.times.now()}
	head, err := chain.StateErasure{At: leaf.committed, Who: m.Who, Reason: m.Reason}.Value()
	if err != nil {
		return leaf, tga.Errorf(tga.GenericStateError, "erase: %w", err)
	}
	w.delete(keyspace.AppendMeta(w.key[:0], metaOwner(keyspace.Stream, id[:])))
	w.body(append([]byte{byte(keyspace.Stream)}, keyspace.StreamKey(id, 0)...), head)
	return leaf, nil
}

package engine

import (
	"context"
	"errors"
	"slices"

	"github.com/tgad/tgad/internal/sealrules"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
)

// planStreams finds the streams that are to be erased: journals of turns, and values kept by executors.
func (a *eraser) planStreams(what *Erasure, m *erasing, done *Erased) error {
	for _, id := range each(what.Turns) {
		open, err := a.index.get(append([]byte{byte(keyspace.Stream)}, keyspace.OpenTurnKey(id)...))
		if err != nil {
			return err
		}
		if open != nil {
			return tga.Errorf(tga.StateInvalidTransition, "erase turn %s: it has not ended. Let it run, or decide what it waits for (tgad agent decide)", id)
		}
		if err := a.planStream("turn "+id.String(), id, &done.Turns, m, done); err != nil {
			return err
		}
	}
	namespace := what.Namespace
	if namespace == "" {
		namespace = tga.DefaultNamespace
	}
	for _, server := range slices.Compact(slices.Sorted(slices.Values(what.Kept))) {
		if err := a.planStream("what is kept about "+server, keyspace.KeptStream(namespace, server), &done.Kept, m, done); err != nil {
			return err
		}
	}
	return nil
}

// planStream finds the keys of a stream that is to be erased, and whether it can be erased now.
// NOT_FOUND: it has no item.
func (a *eraser) planStream(name string, id tga.ID, count *int, m *erasing, done *Erased) error {
	if a.leases.holds(id) {
		return tga.Errorf(tga.StateLockAcquireFailed, "erase %s: another process or call holds its lease", name)
	}
	keys, err := a.index.keptKeys(keyspace.Stream, id[:])
	if err != nil {
		return err
	}
	items, err := a.eachItem(id, func(key, stored []byte) error {
		if len(stored) > 0 {
			keys = append(keys, sealrules.KeyOf(stored))
		}
		return nil
	})
	if err != nil {
		return err
	}
	already, err := sealrules.OfStream(name, items, keys)
	if already {
		done.Already++
	}
	if already || err != nil {
		return err
	}
	*count++
	m.Streams = append(m.Streams, id)
	return a.add(keys, m, done)
}

// eachItem calls f with the key and the stored value of each item of a stream, and returns the
// number of items.
func (a *eraser) eachItem(id tga.ID, f func(key, stored []byte) error) (items int, err error) {
	lower, upper, err := keyspace.AttachmentBounds(keyspace.Stream, keyspace.StreamPrefix(id))
	for err == nil && lower != nil {
		var rows []kv
		if rows, lower, err = a.index.attachmentPage(lower, upper); err != nil {
			break
		}
		for _, row := range rows {
			if err := f(row.key, row.value); err != nil {
				return items, err
			}
			items++
		}
	}
	return items, err
}

// streams erases streams, some at a time. It blocks their leases meanwhile.
func (a *eraser) streams(ctx context.Context, m *erasing) error {
	for len(m.Streams) > 0 {
		ids := m.Streams[:min(len(m.Streams), eraseAtOnce)]
		if err := a.alone(ctx, ids); err != nil {
			return err
		}
		err := a.emptied(m, ids)
		for _, id := range ids {
			a.leases.queue.unlock(id)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// emptied erases the streams ids of an erasure. The first item of each stays, as an empty value: a caller that looks
// for the stream finds that it existed, and does not begin it again. The record that empties the first items also says
// that the streams are empty. Their keys are forgotten before their leases are released. So a later write to them is
// not part of the erasure, even if the erasure is continued several times.
func (a *eraser) emptied(m *erasing, ids []tga.ID) error {
	next := *m
	next.Streams, next.Emptied = m.Streams[len(ids):], append(slices.Clip(m.Emptied), ids...)
	w := a.commits.newWriter()
	for _, id := range ids {
		first, err := a.rest(id)
		if err != nil {
			return errors.Join(err, w.drop())
		}
		if first != nil {
			w.body(first, []byte{})
		}
		w.delete(keyspace.AppendMeta(w.key[:0], metaOwner(keyspace.Stream, id[:])))
	}
	w.fail(next.put(w))
	if err := a.commits.apply(w); err != nil {
		return err
	}
	*m = next
	a.owned.forget(ids...)
	return nil
}

// rest deletes the items of a stream after the first one, the last items first, in records of bounded size. It returns
// the key of the first item, nil if the stream has nothing left to erase.
func (a *eraser) rest(id tga.ID) (first []byte, err error) {
	var keys [][]byte
	left := false
	if _, err := a.eachItem(id, func(key, stored []byte) error {
		left = left || len(keys) > 0 || len(stored) > 0
		keys = append(keys, key)
		return nil
	}); err != nil || !left {
		return nil, err
	}
	first, keys = keys[0], keys[1:]
	for len(keys) > 0 {
		w := a.commits.newWriter()
		part := keys[max(0, len(keys)-removeBytes/keyspace.MaxLen):]
		keys = keys[:len(keys)-len(part)]
		for _, key := range part {
			w.delete(key)
		}
		if err := a.commits.apply(w); err != nil {
			return nil, err
		}
	}
	return first, nil
}

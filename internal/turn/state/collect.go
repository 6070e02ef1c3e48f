package state

import (
	"context"
	"errors"
	"slices"

	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// collectKeys is how many keys one batch of a collection handles.
const collectKeys = 256

// Collect drops the values of a scope that nobody can read any more: expired values, and versions
// that were kept for a transaction which has ended or died with its process. Nothing else cleans
// a key that no transaction touches again. Collect returns how many versions it dropped. It takes
// the lease of the scope's stream, which nobody else uses, and holds the scope as a commit does,
// for one batch at a time. It may be interrupted anywhere; what it has dropped until then stays
// dropped. Reads and transactions go on meanwhile.
func (s *Space) Collect(ctx context.Context, name Scope) (dropped int, err error) {
	name, err = name.check()
	if err != nil || name.Mode == None {
		return 0, err
	}
	c := s.enter(name)
	defer s.leave(c)
	lease, err := s.store.Acquire(ctx, c.id)
	if err != nil {
		return 0, err
	}
	defer s.store.Release(lease)
	keys, err := c.listed(ctx)
	if err != nil {
		return 0, err
	}
	for chunk := range slices.Chunk(keys, collectKeys) {
		n, err := c.collect(ctx, lease, chunk)
		if dropped += n; err != nil {
			return dropped, err
		}
	}
	return dropped, nil
}

// CollectSome is [Space.Collect] for no more than most keys of a scope. If the scope has more,
// they are chosen at random, so that repeated calls reach all of them. However large the scope
// is, CollectSome reads at most some thousand items of the store. If another collection of the
// scope is under way, it does nothing.
func (s *Space) CollectSome(ctx context.Context, name Scope, most int) (dropped int, err error) {
	name, err = name.check()
	if err != nil || name.Mode == None || most <= 0 {
		return 0, err
	}
	c := s.enter(name)
	defer s.leave(c)
	lease, err := s.store.Acquire(context.WithoutCancel(ctx), c.id) // without a deadline Acquire does not wait
	if errors.Is(err, tga.StateLockAcquireFailed) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer s.store.Release(lease)
	keys, err := c.sample(ctx, most)
	if err != nil || len(keys) == 0 {
		return 0, err
	}
	return c.collect(ctx, lease, keys)
}

// sample returns as many of the scope's keys as most says, or all if there are fewer. The lists
// of keys are numbered by digests, and the store is read by prefix. If a prefix has too many
// keys, sample extends it by a random byte. If the result is then too short, the lists with the
// following bytes fill it up.
func (c *scope) sample(ctx context.Context, most int) ([]string, error) {
	prefix := keyspace.StreamPrefix(c.id)
	for {
		keys, whole, err := c.some(ctx, prefix, most)
		if err != nil || whole && len(prefix) == len(c.id) {
			return keys, err
		}
		if whole || len(prefix) == len(c.id)+8 { // a single list may have too many
			return c.beside(ctx, prefix, keys, most)
		}
		first := 0
		if len(prefix) == len(c.id) {
			first = keyspace.ListBit
		}
		prefix = append(prefix, byte(first+c.space.pick(256-first)))
	}
}

// beside adds keys from the lists whose prefix differs in the last byte, in the order of that
// byte.
func (c *scope) beside(ctx context.Context, prefix []byte, keys []string, most int) ([]string, error) {
	last := len(prefix) - 1
	for n := range 255 {
		if len(keys) == most {
			break
		}
		next := slices.Clone(prefix)
		next[last] += byte(n + 1)
		if last == len(c.id) && next[last] < keyspace.ListBit {
			continue // not a list but the head
		}
		more, _, err := c.some(ctx, next, most-len(keys))
		if err != nil {
			return nil, err
		}
		keys = append(keys, more...)
	}
	return keys, nil
}

// some returns the first keys of the lists with a prefix, and whether these are all.
func (c *scope) some(ctx context.Context, prefix []byte, most int) (keys []string, whole bool, err error) {
	for a, err := range c.space.store.Attachments(ctx, chain.AttachStream, prefix) {
		if err != nil {
			return nil, false, err
		}
		if _, item, err := keyspace.ParseStream(a.Key); err != nil {
			return nil, false, err
		} else if item == 0 {
			continue
		}
		list, err := decodeList(a.Value)
		if err != nil {
			return nil, false, err
		}
		if keys = append(keys, list...); len(keys) > most {
			return keys[:most], false, nil
		}
	}
	return keys, true, nil
}

func (c *scope) collect(ctx context.Context, lease chain.Lease, keys []string) (int, error) {
	if err := c.lock(ctx); err != nil {
		return 0, err
	}
	defer c.unlock()
	now := c.space.now()
	pins := c.pinned(0, false)
	list := listing{scope: c}
	var items []chain.Attachment
	for _, key := range keys {
		cells, err := c.cells(ctx, key)
		if err != nil {
			return 0, err
		}
		readers := pins
		if at(cells, c.head.Version).alive(now) {
			readers = append(slices.Clone(pins), c.head.Version)
		}
		keep := needed(cells, readers)
		if len(keep) > 0 {
			keep[cells[len(cells)-1].version] = true // otherwise a new reader would find the value that it hides
		}
		for _, v := range cells {
			if !keep[v.version] {
				items = append(items, c.item(c.valueStream(key), v.version, nil))
			}
		}
		if len(keep) == 0 {
			if err := list.change(ctx, key, false); err != nil {
				return 0, err
			}
		}
	}
	dropped := len(items)
	lists, err := list.attachments()
	if items = append(items, lists...); err != nil || len(items) == 0 {
		return 0, err
	}
	if _, err := c.space.store.Append(ctx, lease, chain.Batch{Attachments: items}); err != nil {
		return 0, err
	}
	return dropped, nil
}

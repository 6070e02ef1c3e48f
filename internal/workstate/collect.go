package workstate

import (
	"context"
	"maps"
	"slices"

	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Forks returns the numbers of the family's states, 0 first.
func (s *State) Forks(ctx context.Context) ([]uint32, error) {
	heads, _, err := s.family.records(ctx)
	return slices.Sorted(maps.Keys(heads)), err
}

// nextState returns a number that no state of the family has.
func (f *family) nextState(ctx context.Context) (uint32, error) {
	heads, _, err := f.records(ctx)
	var next uint32
	for number := range heads {
		next = max(next, number+1)
	}
	return next, err
}

// records reads the heads and boundaries of all states of the family.
func (f *family) records(ctx context.Context) (heads map[uint32]headRecord, boundaries []boundaryRecord, err error) {
	heads = map[uint32]headRecord{}
	if f.read == nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		for number := range f.states {
			heads[number] = headRecord{}
		}
		return heads, nil, nil
	}
	for a, err := range f.read.Attachments(ctx, chain.AttachStream, keyspace.StreamPrefix(f.id)) {
		if err != nil {
			return nil, nil, err
		}
		_, number, n, err := keyspace.ParseState(a.Key)
		if err != nil {
			return nil, nil, err
		}
		if len(a.Value) == 0 { // it is erased, in a store from before
			if n == 0 {
				heads[number] = headRecord{}
			}
			continue
		}
		if was, err := chain.ReadStateErasure(a.Value); was != nil || err != nil {
			if err != nil {
				return nil, nil, err
			}
			continue
		}
		if n == 0 {
			var h headRecord
			if err := decodeRecord(a.Value, &h, func() int { return h.Version }); err != nil {
				return nil, nil, err
			}
			heads[number] = h
			continue
		}
		var r boundaryRecord
		if err := decodeRecord(a.Value, &r, func() int { return r.Version }); err != nil {
			return nil, nil, err
		}
		boundaries = append(boundaries, r)
	}
	return heads, boundaries, nil
}

// dropAtOnce is how many nodes a collection drops in one append.
const dropAtOnce = 4096

// Collected says what a collection did.
type Collected struct {
	Live    int   // nodes that are referred to
	Dropped int   // nodes that were not, and are gone
	Bytes   int64 // of those
}

// Collect drops the nodes that no state and no boundary of the family refers to, and lets
// the resources that keep content outside the store do the same. While a transaction is
// in progress it does nothing and returns STATE_LOCK_ACQUIRE_FAILED. Transactions that
// begin during a collection wait. A state collects by itself after [Options.Ring]
// boundaries were dropped since the last collection.
func (s *State) Collect(ctx context.Context) (Collected, error) {
	f := s.family
	if s.inspected {
		return Collected{}, tga.Errorf(tga.PermissionDenied, "the state was opened to be looked at")
	}
	if !f.gate.TryLock() {
		return Collected{}, tga.Errorf(tga.StateLockAcquireFailed, "collection while a transaction is in progress")
	}
	defer f.gate.Unlock()
	return f.collect(ctx)
}

func (f *family) collectIfDue() {
	f.mu.Lock()
	var any *State
	for _, s := range f.states {
		any = s
	}
	f.mu.Unlock()
	if any == nil || f.evicted.Load() < int64(any.opts.Ring) || !f.gate.TryLock() {
		return
	}
	defer f.gate.Unlock()
	if _, err := f.collect(context.Background()); err != nil {
		any.opts.Logger.Warn("working state: collection failed, and is tried again later", "error", err)
	}
}

func (f *family) collect(ctx context.Context) (Collected, error) {
	f.evicted.Store(0)
	roots, err := f.roots(ctx)
	if err != nil {
		return Collected{}, err
	}
	if err := f.collectOutside(ctx, roots); err != nil {
		return Collected{}, err
	}
	if f.store == nil {
		return Collected{}, nil // memory is collected by who holds it
	}
	live := map[[32]byte]bool{}
	for digest := range roots {
		if err := f.mark(ctx, ref{digest, true}, live); err != nil {
			return Collected{}, err
		}
	}
	done := Collected{Live: len(live)}
	var drop []chain.Attachment
	for a, err := range f.read.Attachments(ctx, chain.AttachBlob, keyspace.NodePrefix(f.id)) {
		if err != nil {
			return done, err
		}
		if !live[[32]byte(a.Key)] {
			drop = append(drop, chain.Attachment{Kind: chain.AttachBlob, Key: slices.Clone(a.Key)})
			done.Bytes += int64(len(a.Value))
		}
	}
	// Forget all of them before the first batch. If a later batch fails, a node that is still in
	// the store may refer to one that is not: a state that has it again must write it again.
	f.written(drop)
	for batch := range slices.Chunk(drop, dropAtOnce) {
		if err := f.append(ctx, batch); err != nil {
			return done, err
		}
		done.Dropped += len(batch)
	}
	return done, nil
}

// mark notes a node and what is below it. A node without kids is not read.
func (f *family) mark(ctx context.Context, r ref, live map[[32]byte]bool) error {
	key := keyspace.NodeKey(f.id, r.digest)
	if live[key] {
		return nil
	}
	live[key] = true
	if !r.inner {
		return nil
	}
	kids, _, err := f.blob(ctx, r.digest)
	if err != nil {
		return err
	}
	for _, k := range kids {
		if err := f.mark(ctx, k, live); err != nil {
			return err
		}
	}
	return nil
}

// roots returns the roots that the family refers to, by digest. The node is nil if it is
// not in memory. No transaction is in progress, so every root in memory is in the store.
func (f *family) roots(ctx context.Context) (map[tga.Digest]*Node, error) {
	roots := map[tga.Digest]*Node{}
	f.mu.Lock()
	for _, s := range f.states {
		s.mu.Lock()
		roots[s.root.digest] = s.root
		for _, b := range s.boundaries {
			for _, n := range []*Node{b.pre, b.post} {
				if n != nil {
					roots[n.digest] = n
				}
			}
		}
		s.mu.Unlock()
	}
	f.mu.Unlock()
	heads, boundaries, err := f.records(ctx)
	if err != nil || f.read == nil {
		return roots, err
	}
	names := []string{}
	for _, h := range heads {
		names = append(names, h.Root)
	}
	for _, r := range boundaries {
		names = append(names, r.Pre, r.Post)
	}
	for _, name := range names {
		if name == "" {
			continue
		}
		d, err := tga.ParseDigest(name)
		if err != nil {
			return nil, err
		}
		if _, ok := roots[d]; !ok {
			roots[d] = nil
		}
	}
	return roots, nil
}

// collectOutside tells each resource that keeps content outside the store which of its
// nodes are still referred to.
func (f *family) collectOutside(ctx context.Context, roots map[tga.Digest]*Node) error {
	live := map[string][]*Node{}
	for digest, root := range roots {
		if root == nil {
			refs, data, err := f.blob(ctx, digest)
			if err != nil {
				return err
			}
			root = &Node{data: data, digest: digest}
			for _, r := range refs {
				k := &Node{digest: r.digest}
				if !r.inner { // what a Collector needs is in the node itself
					if _, k.data, err = f.blob(ctx, r.digest); err != nil {
						return err
					}
				}
				root.kids = append(root.kids, k)
			}
		}
		_, resources, err := partsOfRoot(root)
		if err != nil {
			return err
		}
		for name, n := range resources {
			live[name] = append(live[name], n)
		}
	}
	f.mu.Lock()
	states := slices.Collect(maps.Values(f.states))
	f.mu.Unlock()
	for _, s := range states {
		for _, e := range s.resources.entries {
			if c, ok := e.resource.(Collector); ok {
				if err := guarded(func() error { return c.Collect(ctx, live[e.name]) }); err != nil {
					return tga.Errorf(codeOr(err, tga.GenericStateError), "collection of %s: %w", e.name, err)
				}
			}
		}
	}
	return nil
}

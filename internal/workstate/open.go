package workstate

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Open opens the state with this id in a store. If the store has none, Open makes one of
// what session and resources hold. The state holds the lease of its id until
// [State.Close]. If another process holds the lease: STATE_LOCK_ACQUIRE_FAILED.
//
// Slices and resources in memory get their stored content. A resource that calls take
// turns at, such as a directory, is left as it is, unless a transaction that used it did
// not end. Then Open restores the content from before that transaction or, if the
// transaction was a restore, carries the restore out. The content that Open replaces is
// kept as a boundary of its own.
func Open(ctx context.Context, store runtime.Store, id tga.ID, session *Session, resources *Registry, o Options) (*State, error) {
	if store == nil || id.IsZero() {
		return nil, tga.Errorf(tga.ValidationError, "open of a working state: store and id are required")
	}
	lease, err := store.Acquire(ctx, id)
	if err != nil {
		return nil, err
	}
	f := &family{
		store: store, read: store, id: id, lease: lease, token: make(turn, 1),
		stored: map[[32]byte]bool{}, calls: map[tga.ID]*Tx{}, leased: map[tga.ID]chain.Lease{}, states: map[uint32]*State{},
	}
	s, err := f.open(ctx, 0, session, resources, o)
	if err != nil {
		store.Release(lease)
		return nil, err
	}
	return s, nil
}

// Close returns the lease of the family. No call may be in progress.
func (s *State) Close() {
	if s.family.store != nil && !s.inspected {
		s.family.store.Release(s.family.lease)
	}
}

func (f *family) open(ctx context.Context, number uint32, session *Session, resources *Registry, o Options) (*State, error) {
	s := newState(f, number, session, resources, o)
	if err := s.start(ctx); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.states[number] = s
	return s, nil
}

// start gives the state what the store has of it, or makes it there.
func (s *State) start(ctx context.Context) error {
	if err := s.readStream(ctx); err != nil {
		return err
	}
	if s.head.Root == "" {
		root, err := s.capture(ctx)
		if err != nil {
			return err
		}
		return s.create(ctx, root, "", nil)
	}
	if err := s.restoreMemory(ctx); err != nil {
		return err
	}
	if err := s.place(ctx); err != nil {
		return err
	}
	return s.recover(ctx)
}

// place stores the current places of the resources in the state's head.
func (s *State) place(ctx context.Context) error {
	places := maps.Clone(s.head.Places)
	if places == nil {
		places = map[string]Place{}
	}
	maps.Copy(places, s.resources.places())
	if maps.EqualFunc(places, s.head.Places, Place.equal) {
		return nil
	}
	s.head.Places = places
	return s.family.append(ctx, []chain.Attachment{s.family.item(s.number, 0, s.head)})
}

// create writes the head of a new state. elsewhere has the places of the state that it is
// forked from. The content at those places does not belong to the fork, so the fork gets
// an empty place for each of them that it has no resource for.
func (s *State) create(ctx context.Context, root *Node, forked string, elsewhere map[string]Place) error {
	f := s.family
	s.root = root
	places := s.resources.places()
	for name := range elsewhere {
		if _, ok := places[name]; !ok {
			places[name] = Place{}
		}
	}
	s.head = headRecord{Version: tga.WorkingStateVersion, Root: root.digest.String(), Seed: s.seed, Forked: forked, Places: places}
	list, _ := f.nodes(root)
	if err := f.spill(ctx, list); err != nil {
		return err
	}
	list = []chain.Attachment{f.item(s.number, 0, s.head)}
	for _, n := range s.erased {
		list = append(list, chain.Attachment{Kind: chain.AttachStream, Key: keyspace.StateKey(f.id, s.number, n)})
	}
	return f.append(ctx, list)
}

// readStream reads the state's head and boundaries. An erased state has none, and begins
// anew. In a store from before erasures of whole states, its boundaries are still listed,
// each with an empty value.
func (s *State) readStream(ctx context.Context) error {
	f := s.family
	for a, err := range f.read.Attachments(ctx, chain.AttachStream, keyspace.StreamPrefix(f.id)) {
		if err != nil {
			return err
		}
		_, number, n, err := keyspace.ParseState(a.Key)
		if err != nil {
			return err
		}
		if number != s.number {
			continue
		}
		if was, err := chain.ReadStateErasure(a.Value); err != nil {
			return err
		} else if was != nil && n == 0 {
			s.erasure = was
			continue
		}
		if len(a.Value) == 0 {
			s.erased = append(s.erased, n)
			continue
		}
		if n == 0 {
			if err := decodeRecord(a.Value, &s.head, func() int { return s.head.Version }); err != nil {
				return err
			}
			s.seed = s.head.Seed
			continue
		}
		b := &boundary{}
		if err := decodeRecord(a.Value, &b.record, func() int { return b.record.Version }); err != nil {
			return err
		}
		s.boundaries = append(s.boundaries, b)
		s.next = n + 1
	}
	if len(s.erased) > 0 {
		for _, b := range s.boundaries { // from before the store sealed them
			s.erased = append(s.erased, b.record.Number)
		}
		s.head, s.boundaries = headRecord{}, nil
	}
	return nil
}

func decodeRecord(raw []byte, v any, version func() int) error {
	if err := json.Unmarshal(raw, v); err != nil {
		return tga.Errorf(tga.StateChecksumMismatch, "record of a working state: %w", err)
	}
	if got := version(); got != tga.WorkingStateVersion {
		return tga.Errorf(tga.FormatTooNew, "record of a working state has version %d, this program reads %d", got, tga.WorkingStateVersion)
	}
	return nil
}

// restoreMemory gives slices and resources in memory their stored content.
func (s *State) restoreMemory(ctx context.Context) error {
	root, err := s.load(ctx, s.head.Root)
	if err != nil {
		return err
	}
	return s.fill(ctx, root, false)
}

// fill gives slices and resources the content of a root: all of them, or those in memory.
func (s *State) fill(ctx context.Context, root *Node, all bool) error {
	session, resources, err := partsOfRoot(root)
	if err != nil {
		return err
	}
	content, policies, err := sessionFrom(session)
	if err != nil {
		return err
	}
	for name, p := range policies {
		if !s.session.schema.known(name) {
			if err := s.session.schema.register(name, p); err != nil {
				return err
			}
		}
	}
	s.session.set(content)
	for name, n := range resources {
		at := slices.IndexFunc(s.resources.entries, func(e entry) bool { return e.name == name })
		switch {
		case at < 0 || s.resources.entries[at].snapshot == nil:
			s.carried[name] = n
		case all || s.resources.entries[at].branch != nil:
			if err := s.resources.entries[at].snapshot.Restore(ctx, n); err != nil {
				return err
			}
		}
	}
	s.root = root
	return nil
}

// recover ends the transactions that a crash left open. It may be interrupted anywhere:
// a record is closed only after everything that its transaction held is restored.
func (s *State) recover(ctx context.Context) error {
	var open []*boundary
	for _, b := range s.boundaries {
		if b.record.Open {
			open = append(open, b)
		}
	}
	// Innermost first, so that the last restore gives the content from before the
	// outermost transaction.
	for _, b := range slices.Backward(open) {
		if err := s.undo(ctx, b); err != nil {
			return tga.Errorf(tga.RestoreFailed, "after a crash in %s %q: %w", b.record.Kind, b.record.ID, err)
		}
	}
	return nil
}

// undo gives the resources that an open transaction held their content from before it,
// and closes its record. An open restore is carried out instead.
func (s *State) undo(ctx context.Context, b *boundary) error {
	f := s.family
	phase := phasePre
	if b.record.Kind == boundaryRestore && b.record.Post != "" {
		phase = phasePost // what it was to become is durable: carry it out
	}
	target, err := s.sideOf(ctx, b, phase)
	if err != nil {
		return err
	}
	_, nodes, err := partsOfRoot(target)
	if err != nil {
		return err
	}
	if err := s.found(ctx, b); err != nil {
		return err
	}
	for _, name := range b.record.Held {
		r := s.snapshotter(name)
		if r == nil || nodes[name] == nil {
			return tga.Errorf(tga.NotFound, "the resource %s that it used is not registered", name)
		}
		if err := r.Restore(ctx, nodes[name]); err != nil {
			return err
		}
	}
	record := s.amend(b, func(b *boundary) {
		b.record.Open, b.record.Success = false, phase == phasePost
		if phase == phasePre {
			b.record.Code, b.record.Summary = string(tga.EffectInDoubt), "undone after a crash"
		} else {
			s.head.Root = b.record.Post
		}
	})
	list := []chain.Attachment{f.item(s.number, record.Number, record)}
	if phase == phasePost {
		list = append(list, f.item(s.number, 0, s.head))
	}
	if err := f.append(ctx, list); err != nil {
		return err
	}
	if phase == phasePost {
		return s.restoreMemory(ctx)
	}
	return nil
}

// found keeps the content that a crash left in the resources of an open transaction as a
// boundary. So a rollback to that boundary can take recovery's own restore back. The boundary is
// durable before anything is restored: another crash does not take it away. A recovery that is
// tried again and finds the same content makes no second boundary.
func (s *State) found(ctx context.Context, b *boundary) error {
	if len(b.record.Held) == 0 {
		return nil
	}
	session, nodes, err := partsOfRoot(s.root)
	if err != nil {
		return err
	}
	for _, name := range b.record.Held {
		r := s.snapshotter(name)
		if r == nil {
			continue
		}
		if nodes[name], err = r.Snapshot(ctx); err != nil {
			return err
		}
	}
	root, tag := rootOf(session, nodes), "found after a crash in "+b.record.ID
	if slices.ContainsFunc(s.boundaries, func(k *boundary) bool { return k.record.Tag == tag && k.record.Pre == root.digest.String() }) {
		return nil
	}
	id, err := newID()
	if err != nil {
		return err
	}
	keep := &boundary{record: boundaryRecord{
		Version: tga.WorkingStateVersion, Kind: boundaryCheckpoint, ID: id, Tag: tag,
		Success: true, Began: s.opts.Clock().UnixNano(),
	}}
	keep.setPre(root)
	keep.setPost(root)
	s.remember(keep)
	list, size := s.family.nodes(root)
	keep.record.Bytes = size
	if list, err = s.family.ahead(ctx, list, size); err != nil {
		return err
	}
	return s.family.append(ctx, append(list, s.family.item(s.number, keep.record.Number, keep.record)))
}

// load reads a tree of nodes from the store.
func (s *State) load(ctx context.Context, name string) (*Node, error) {
	digest, err := tga.ParseDigest(name)
	if err != nil {
		return nil, err
	}
	known := map[tga.Digest]*Node{}
	s.mu.Lock()
	if s.root != nil {
		s.root.walk(func(tga.Digest) bool { return false }, func(n *Node) { known[n.digest] = n })
	}
	s.mu.Unlock()
	return s.family.load(ctx, digest, known)
}

func (f *family) load(ctx context.Context, digest tga.Digest, known map[tga.Digest]*Node) (*Node, error) {
	if n := known[digest]; n != nil {
		return n, nil
	}
	refs, data, err := f.blob(ctx, digest)
	if err != nil {
		return nil, err
	}
	n := &Node{data: data, digest: digest, kids: make([]*Node, 0, len(refs))}
	for _, r := range refs {
		k, err := f.load(ctx, r.digest, known)
		if err != nil {
			return nil, err
		}
		n.kids = append(n.kids, k)
	}
	known[digest] = n
	f.mu.Lock()
	f.stored[keyspace.NodeKey(f.id, digest)] = true
	f.mu.Unlock()
	return n, nil
}

// blob reads one node and checks its bytes against its digest.
func (f *family) blob(ctx context.Context, digest tga.Digest) ([]ref, []byte, error) {
	if f.read == nil {
		return nil, nil, tga.Errorf(tga.NotFound, "node %s is not at hand", digest)
	}
	key := keyspace.NodeKey(f.id, digest)
	raw, err := f.read.Attachment(ctx, chain.AttachBlob, keyspace.DigestKey(key))
	if err != nil {
		return nil, nil, err
	}
	if raw == nil {
		return nil, nil, tga.Errorf(tga.NotFound, "node %s is not in the store", digest)
	}
	if got := tga.Sum(raw); got != digest {
		err := tga.Errorf(tga.StateChecksumMismatch, "node %s reads as %s", digest, got)
		err.WantDigest, err.GotDigest, err.Where = digest, got, "stored"
		return nil, nil, err
	}
	return decodeNode(raw)
}

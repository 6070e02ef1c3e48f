// Package memstore is a [runtime.Store] in memory, for tests that need very many stores.
//
// A [Disk] is what survives a crash. A [Store] is one process that has the disk open. Opening
// the disk again ends the store before, like a kill: its leases are gone, and its calls fail.
// An append is durable when Append has applied it, and never durable in part.
//
// It passes package storetest and applies the same rules as package engine, those of
// packages wal/chain and ledger. It keeps decoded traces and not frames: other tests check
// that bytes survive.
package memstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Disk is the part of a store that survives the end of a process. Its zero value is empty. One
// open store uses it at a time.
type Disk struct {
	traces      map[tga.ID]*kept
	records     map[[32]byte]ledger.Record
	attachments map[chain.AttachmentKind]map[string][]byte
	newest      tga.Millis
	incarnation uint32
	secret      [32]byte
	open        *Store
}

// kept is a trace on the disk.
type kept struct {
	trace   *chain.Trace
	entries []chain.Entry
}

// Has reports whether the disk has an entry of a trace.
func (d *Disk) Has(trace tga.ID) bool { return d.traces[trace] != nil }

// Fingerprint writes what the disk holds to h, so that two moments can be compared. It leaves
// out the order of appends to different traces, because nothing depends on it here.
func (d *Disk) Fingerprint(h io.Writer) error {
	var b []byte
	for _, id := range slices.SortedFunc(maps.Keys(d.traces), func(a, b tga.ID) int { return bytes.Compare(a[:], b[:]) }) {
		t := d.traces[id].trace
		b = append(append(append(b, id[:]...), t.Head.Digest[:]...), t.NoteHead.Digest[:]...)
	}
	for _, hash := range slices.SortedFunc(maps.Keys(d.records), func(a, b [32]byte) int { return bytes.Compare(a[:], b[:]) }) {
		r := d.records[hash]
		var err error
		if b, err = r.AppendBinary(append(b, hash[:]...)); err != nil {
			return err
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(d.attachments)) {
		for _, key := range slices.Sorted(maps.Keys(d.attachments[kind])) {
			b = append(append(append(b, byte(kind)), key...), d.attachments[kind][key]...)
		}
	}
	b = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(b, uint64(d.newest)), d.incarnation)
	_, err := h.Write(b)
	return err
}

// Leases writes to h which leases the open store granted, and how often. This is the state that
// ends with its process.
func (d *Disk) Leases(h io.Writer) error {
	if d.open == nil {
		return nil
	}
	var b []byte
	for _, id := range slices.SortedFunc(maps.Keys(d.open.granted), func(a, b tga.ID) int { return bytes.Compare(a[:], b[:]) }) {
		b = binary.BigEndian.AppendUint64(append(b, id[:]...), uint64(d.open.held[id]))
		b = binary.BigEndian.AppendUint16(b, d.open.granted[id])
	}
	_, err := h.Write(b)
	return err
}

// Store is one process that has a disk open.
type Store struct {
	clock func() time.Time

	mu      sync.Mutex
	disk    *Disk
	dead    bool
	held    map[tga.ID]chain.Epoch
	granted map[tga.ID]uint16
	changed chan struct{} // closed and replaced at each change of a record or a lease
}

var _ runtime.Store = (*Store)(nil)

// Open opens a disk and ends the store that had it open.
func Open(d *Disk, clock func() time.Time) *Store {
	if d.open != nil {
		d.open.end()
	}
	if d.traces == nil {
		d.traces = map[tga.ID]*kept{}
		d.records = map[[32]byte]ledger.Record{}
		d.attachments = map[chain.AttachmentKind]map[string][]byte{}
		copy(d.secret[:], "the secret of a store in memory.")
	}
	d.incarnation++
	d.open = &Store{clock: clock, disk: d, held: map[tga.ID]chain.Epoch{}, granted: map[tga.ID]uint16{}, changed: make(chan struct{})}
	return d.open
}

func (s *Store) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dead = true
	s.tell()
}

// tell wakes all goroutines that wait for a change. s.mu is held.
func (s *Store) tell() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// enter locks s.mu. It fails, without the lock, if the store is closed.
func (s *Store) enter() error {
	s.mu.Lock()
	if s.dead {
		s.mu.Unlock()
		return tga.Errorf(tga.StoreUnavailable, "the store is closed")
	}
	return nil
}

// await calls look under the lock, again after each change, until look returns true or ctx
// ends.
func (s *Store) await(ctx context.Context, look func() (over bool)) error {
	for {
		if err := s.enter(); err != nil {
			return err
		}
		over, changed := look(), s.changed
		s.mu.Unlock()
		if over {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Acquire implements [runtime.Store].
func (s *Store) Acquire(ctx context.Context, id tga.ID) (lease chain.Lease, err error) {
	grant := func() bool {
		if _, held := s.held[id]; held {
			return false
		}
		s.granted[id]++
		lease = chain.Lease{TraceID: id, Epoch: s.epoch(id, s.granted[id])}
		s.held[id] = lease.Epoch
		return true
	}
	failed := func(why error) error {
		return tga.Errorf(tga.StateLockAcquireFailed, "acquire trace %s: another holds its lease: %w", id, why).In(id)
	}
	if _, waits := ctx.Deadline(); !waits {
		if err := s.enter(); err != nil {
			return lease, err
		}
		defer s.mu.Unlock()
		if !grant() {
			return lease, failed(context.DeadlineExceeded)
		}
		return lease, nil
	}
	if err := s.await(ctx, grant); err != nil {
		if tga.CodeOf(err) == "" {
			err = failed(err)
		}
		return lease, err
	}
	return lease, nil
}

// Overtake implements [runtime.Store]. No other process holds a lease of this store.
func (s *Store) Overtake(ctx context.Context, id tga.ID, lentOnly bool) (chain.Lease, error) {
	if lentOnly {
		return s.Acquire(ctx, id)
	}
	if err := s.enter(); err != nil {
		return chain.Lease{}, err
	}
	defer s.mu.Unlock()
	s.granted[id]++
	lease := chain.Lease{TraceID: id, Epoch: s.epoch(id, s.granted[id])}
	s.held[id] = lease.Epoch
	s.tell()
	return lease, nil
}

// Current implements [runtime.Store].
func (s *Store) Current(lease chain.Lease) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.checkLease(lease) == nil
}

// While implements [runtime.Store]. No other process can take a lease of this store away.
func (s *Store) While(ctx context.Context, _ chain.Lease) (context.Context, context.CancelFunc) {
	return ctx, func() {}
}

// Held implements [runtime.Store].
func (s *Store) Held(lease chain.Lease) bool { return s.Current(lease) }

// Departed implements [runtime.Store].
func (s *Store) Departed(epoch chain.Epoch) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return epoch.Incarnation() < s.disk.incarnation
}

// epoch returns the epoch of the n-th lease of a trace in this incarnation. It does not depend
// on other traces. So a test that runs the same steps in different orders ends in equal states.
func (s *Store) epoch(id tga.ID, n uint16) chain.Epoch {
	return chain.Epoch(s.disk.incarnation)<<32 | chain.Epoch(binary.BigEndian.Uint16(id[14:]))<<16 | chain.Epoch(n)
}

// Release implements [runtime.Store].
func (s *Store) Release(lease chain.Lease) {
	if s.enter() != nil {
		return
	}
	defer s.mu.Unlock()
	if s.held[lease.TraceID] == lease.Epoch && lease.Epoch != 0 {
		delete(s.held, lease.TraceID)
		s.tell()
	}
}

// Holder implements [runtime.Store].
func (s *Store) Holder(trace tga.ID) ledger.Liveness {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, held := s.held[trace]; held {
		return ledger.HolderAlive
	}
	return ledger.HolderGone
}

// checkLease returns nil for the newest lease of its trace. s.mu is held.
func (s *Store) checkLease(lease chain.Lease) error {
	current, held := s.held[lease.TraceID]
	switch {
	case held && current == lease.Epoch:
		return nil
	case uint32(lease.Epoch) == 0 || lease.Epoch > s.epoch(lease.TraceID, s.granted[lease.TraceID]):
		return tga.Errorf(tga.StateLockAcquireFailed, "append to trace %s: no lease with epoch %#x was granted", lease.TraceID, uint64(lease.Epoch)).In(lease.TraceID)
	}
	return tga.Errorf(tga.StateConcurrentExecution, "append to trace %s under epoch %#x: current is %#x", lease.TraceID, uint64(lease.Epoch), uint64(current)).In(lease.TraceID)
}

// Load implements [runtime.Store].
func (s *Store) Load(_ context.Context, trace tga.ID) (*chain.Trace, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	k := s.disk.traces[trace]
	if k == nil {
		return nil, tga.Errorf(tga.NotFound, "there is no trace %s", trace).In(trace)
	}
	return k.trace.Clone(), nil
}

// Entries implements [runtime.Store].
func (s *Store) Entries(_ context.Context, trace tga.ID, after uint64) iter.Seq2[chain.Entry, error] {
	return yielding(s, func() (list []chain.Entry) {
		if k := s.disk.traces[trace]; k != nil && after < uint64(len(k.entries)) {
			list = slices.Clone(k.entries[after:])
		}
		return list
	})
}

// Notes implements [runtime.Store].
func (s *Store) Notes(_ context.Context, trace tga.ID, after uint32) iter.Seq2[tga.Note, error] {
	return yielding(s, func() (list []tga.Note) {
		if k := s.disk.traces[trace]; k != nil && int(after) < len(k.trace.Notes) {
			list = slices.Clone(k.trace.Notes[after:])
		}
		return list
	})
}

// yielding yields the list that read returns, which it calls under the lock.
func yielding[T any](s *Store, read func() []T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		if err := s.enter(); err != nil {
			yield(none, err)
			return
		}
		list := read()
		s.mu.Unlock()
		for _, v := range list {
			if !yield(v, nil) {
				return
			}
		}
	}
}

// WriteCheckpoint implements [runtime.Store].
func (s *Store) WriteCheckpoint(_ context.Context, lease chain.Lease) (cp tga.Checkpoint, err error) {
	if err := s.enter(); err != nil {
		return cp, err
	}
	defer s.mu.Unlock()
	if err := s.checkLease(lease); err != nil {
		return cp, err
	}
	k := s.disk.traces[lease.TraceID]
	if k == nil {
		return cp, tga.Errorf(tga.NotFound, "checkpoint of trace %s: it has no entry", lease.TraceID).In(lease.TraceID)
	}
	return k.trace.Checkpoint(s.now()), nil
}

// Record implements [runtime.Store].
func (s *Store) Record(_ context.Context, key ledger.Key) (*ledger.Record, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	if r, ok := s.disk.records[key.Hash()]; ok {
		return &r, nil
	}
	return nil, nil
}

// Await implements [runtime.Store].
func (s *Store) Await(ctx context.Context, key ledger.Key, seen ledger.Record) error {
	hash := key.Hash()
	return s.await(ctx, func() bool {
		if _, held := s.held[seen.TraceID]; !held && !seen.Attempts.External {
			return true
		}
		now, ok := s.disk.records[hash]
		return !ok || now.Status != seen.Status || now.TraceID != seen.TraceID || now.Attempts != seen.Attempts
	})
}

// OpenTraces implements [runtime.Store].
func (s *Store) OpenTraces(context.Context) iter.Seq2[chain.OpenTrace, error] {
	return yielding(s, func() (list []chain.OpenTrace) {
		for id, k := range s.disk.traces {
			if t := k.trace; !t.Head.State.Terminal() {
				since := t.Entries[len(t.Entries)-1].TS
				list = append(list, chain.OpenTrace{TraceID: id, Namespace: t.Namespace, State: t.Head.State, Since: since, Deadline: t.Deadline})
			}
		}
		slices.SortFunc(list, func(a, b chain.OpenTrace) int { return bytes.Compare(a.TraceID[:], b.TraceID[:]) })
		return list
	})
}

// Attachment implements [runtime.Store].
func (s *Store) Attachment(_ context.Context, kind chain.AttachmentKind, key []byte) ([]byte, error) {
	if _, err := keyspace.AppendAttachment(nil, keyspace.Kind(kind), key); err != nil {
		return nil, err
	}
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	return s.disk.attachments[kind][string(key)], nil
}

// Attachments implements [runtime.Store].
func (s *Store) Attachments(_ context.Context, kind chain.AttachmentKind, prefix []byte) iter.Seq2[chain.Attachment, error] {
	return yielding(s, func() (list []chain.Attachment) {
		of := s.disk.attachments[kind]
		for _, key := range slices.Sorted(maps.Keys(of)) {
			if bytes.HasPrefix([]byte(key), prefix) {
				list = append(list, chain.Attachment{Kind: kind, Key: []byte(key), Value: of[key]})
			}
		}
		return list
	})
}

// Quarantined implements [runtime.Store]: a store in memory never loses an append.
func (s *Store) Quarantined() (tga.Millis, bool) { return 0, false }

// NewestTS implements [runtime.Store].
func (s *Store) NewestTS() tga.Millis {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.disk.newest
}

// RequestDigest implements [runtime.Store].
func (s *Store) RequestDigest(p tga.Proposal) tga.Digest { return tga.RequestDigest(p) }

// Secret implements [runtime.Store].
func (s *Store) Secret() [32]byte { return s.disk.secret }

// Shared implements [runtime.Store].
func (s *Store) Shared() bool { return false }

// now returns the time of the store's clock, which never goes back. s.mu is held.
func (s *Store) now() tga.Millis {
	s.disk.newest = max(s.disk.newest, tga.MillisOf(s.clock()))
	return s.disk.newest
}

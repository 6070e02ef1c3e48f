package workstate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// family is what a state and its forks share: the store, the nodes in it, and the token.
//
// In the store a family has the stream of its id: item 0 of each state is its head, the
// others its boundaries, each under state number << 40 | boundary number. Its nodes are
// blobs under eight bytes of the SHA-256 of the family's id and the first 24 of the
// node's digest: no other owner of blobs has the same keys, so a family can drop what it
// no longer refers to.
type family struct {
	store runtime.Store            // nil for a state in memory, and for one that is only looked at
	read  runtime.AttachmentReader // the store, to read from; nil for a state in memory
	id    tga.ID
	lease chain.Lease
	// gate keeps collection away. Transactions hold it to read, and so does what loads nodes
	// or refers to them, from the look at the boundary to the end. Collection tries to take it
	// to write and never waits for it, so a holder may take it to read again.
	gate  sync.RWMutex
	forks sync.Mutex // held while a fork is made or opened
	token turn       // held from the merge of a commit until it is durable: one commit at a time

	evicted atomic.Int64 // boundaries dropped since the last collection
	lost    atomic.Bool  // see [family.uncertain]

	mu     sync.Mutex
	stored map[[32]byte]bool      // keys of nodes known to be in the store
	calls  map[tga.ID]*Tx         // of the traces that are run now
	leased map[tga.ID]chain.Lease // of traces, as they were taken last through the watched store
	states map[uint32]*State      // open states
}

func (f *family) has(d tga.Digest) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stored[keyspace.NodeKey(f.id, d)]
}

// headRecord is item 0 of a state's stream, JSON.
type headRecord struct {
	Version int    `json:"version"`
	Root    string `json:"root"`
	Seed    uint64 `json:"seed"`
	Forked  string `json:"forked,omitempty"` // id of the boundary it began at
	// Places has every resource that calls take turns at.
	Places map[string]Place `json:"places,omitempty"`
}

// maxSpill is how many bytes of nodes the batch of an entry may hold, and maxNodes how many nodes. If there
// are more, all nodes are written earlier, in batches of their own. A crash in between is harmless: it leaves
// nodes that nothing refers to.
const (
	maxSpill = 64 << 20
	maxNodes = 4096
)

// nodes returns those nodes of a tree that are not in the store.
func (f *family) nodes(root *Node) (out []chain.Attachment, size int64) {
	root.walk(f.has, func(n *Node) {
		key, value := keyspace.NodeKey(f.id, n.digest), n.encode()
		out = append(out, chain.Attachment{Kind: chain.AttachBlob, Key: keyspace.DigestKey(key), Value: value, Owner: f.id})
		size += int64(len(value))
	})
	return out, size
}

// attachments returns what must be written to make the transaction's record durable. An
// open record goes with the nodes of the state before the transaction, a finished record
// with those of the state after it.
func (t *Tx) attachments(ctx context.Context) ([]chain.Attachment, error) {
	s := t.state
	f := s.family
	if f.store == nil {
		t.evict = s.overflow()
		return nil, nil
	}
	if err := f.known(); err != nil {
		return nil, err
	}
	root := t.boundary.pre
	if t.merged != nil && (t.parent == nil || t.boundary.post != nil) {
		root = t.merged
	}
	list, size := f.nodes(root)
	if t.keep && t.boundary.post != nil { // what a restore is to make
		more, n := f.nodes(t.boundary.post)
		list, size = append(list, more...), size+n
	}
	list, err := f.ahead(ctx, list, size)
	if err != nil {
		return nil, err
	}
	record := s.amend(t.boundary, func(b *boundary) { b.record.Bytes += size })
	list = append(list, f.item(s.number, record.Number, record))
	if t.merged != nil && t.parent == nil {
		s.mu.Lock()
		head := s.head
		s.mu.Unlock()
		head.Root = t.merged.digest.String()
		list = append(list, f.item(s.number, 0, head))
		t.evict = s.overflow()
		for _, b := range t.evict {
			list = append(list, chain.Attachment{Kind: chain.AttachStream, Key: keyspace.StateKey(f.id, s.number, b.record.Number)})
		}
	}
	return list, nil
}

func (f *family) item(number uint32, n uint64, v any) chain.Attachment {
	value, err := json.Marshal(v)
	if err != nil {
		panic(err) // records hold strings and numbers, which always have a JSON form
	}
	return chain.Attachment{Kind: chain.AttachStream, Key: keyspace.StateKey(f.id, number, n), Value: value, Owner: f.id}
}

// ahead writes nodes ahead of the record that refers to them if they are too many, or too large, for its batch. It
// returns those that go with the record.
func (f *family) ahead(ctx context.Context, list []chain.Attachment, size int64) ([]chain.Attachment, error) {
	if size <= maxSpill && len(list) <= maxNodes {
		return list, nil
	}
	return nil, f.spill(ctx, list)
}

// spill writes nodes ahead of the record that refers to them.
func (f *family) spill(ctx context.Context, list []chain.Attachment) error {
	for len(list) > 0 {
		n, size := 0, 0
		for n < min(len(list), maxNodes) && (n == 0 || size+len(list[n].Value) <= maxSpill) {
			size += len(list[n].Value)
			n++
		}
		if err := f.append(ctx, list[:n]); err != nil {
			return err
		}
		list = list[n:]
	}
	return nil
}

// append commits attachments that belong to no trace, under the family's own lease.
func (f *family) append(ctx context.Context, list []chain.Attachment) error {
	if f.store == nil || len(list) == 0 {
		return nil
	}
	_, err := f.store.Append(context.WithoutCancel(ctx), f.lease, chain.Batch{Attachments: list})
	f.uncertain(list, err)
	if err == nil {
		f.written(list)
	}
	return err
}

// uncertain notes that nobody knows whether an append with records of the family is in the store. A
// store may answer again later. But what is in memory need not be what the store has, and a record
// that is open there makes a restart take back what later calls changed. So nothing begins or
// commits until [Open] has read what the store has.
func (f *family) uncertain(list []chain.Attachment, err error) {
	own := keyspace.StreamPrefix(f.id)
	if errors.Is(err, tga.StoreUnavailable) && slices.ContainsFunc(list, func(a chain.Attachment) bool {
		return a.Kind == chain.AttachStream && bytes.HasPrefix(a.Key, own)
	}) {
		f.lost.Store(true)
	}
}

func (f *family) known() error {
	if f.lost.Load() {
		return tga.Errorf(tga.StoreUnavailable, "the store did not say whether an append of the working state is durable: open the state again")
	}
	return nil
}

// written notes which nodes are in the store.
func (f *family) written(list []chain.Attachment) {
	f.mu.Lock()
	defer f.mu.Unlock()
	owner := keyspace.NodePrefix(f.id)
	for _, a := range list {
		if a.Kind == chain.AttachBlob && len(a.Key) == 32 && bytes.HasPrefix(a.Key, owner) {
			if key := [32]byte(a.Key); a.Value != nil {
				f.stored[key] = true
			} else {
				delete(f.stored, key)
			}
		}
	}
}

// persistOpen makes the record of a transaction durable before it does anything.
func (t *Tx) persistOpen(ctx context.Context) error {
	list, err := t.attachments(ctx)
	if err == nil {
		err = t.state.family.append(ctx, list)
	}
	t.opened = t.opened || err == nil
	return err
}

// persistDone makes a finished transaction durable on its own, and settles it.
func (t *Tx) persistDone(ctx context.Context) error {
	list, err := t.attachments(ctx)
	if err == nil {
		err = t.state.family.append(ctx, list)
	}
	return t.settled(ctx, err)
}

// settled ends a merged transaction. err is the result of the append that was to make the
// transaction durable.
func (t *Tx) settled(ctx context.Context, err error) error {
	switch {
	case err == nil:
		t.settle(ctx, true)
	case errors.Is(err, tga.StoreUnavailable) && t.state.family.lost.Load():
		// Nobody knows whether the append is on disk. [Open] finds out, and decides whether
		// the files are restored. Until then they stay as they are: see [family.uncertain].
		// If only nodes were to be written ahead, the record is known to be open still.
		t.settle(ctx, false)
	default:
		err = joined(err, t.giveUp(ctx, codeOr(err, tga.GenericStateError), err.Error()))
	}
	return err
}

// giveUp ends a transaction whose call was never sent, or whose answer could not be
// recorded. It records a failure before the next call can use what the transaction held:
// a restart that found the record open would take that call's changes back.
func (t *Tx) giveUp(ctx context.Context, code tga.Code, summary string) error {
	if !t.opened {
		return t.abandon(ctx)
	}
	err := t.takeBack(ctx)
	s := t.state
	record := s.amend(t.boundary, func(b *boundary) {
		t.close(false, code, summary)
		b.post, b.record.Post = nil, ""
	})
	if failed := s.family.append(ctx, []chain.Attachment{s.family.item(s.number, record.Number, record)}); failed != nil {
		err = joined(err, failed)
		// The store has the record open still, and all that the transaction held in it.
		for _, name := range t.held {
			t.breaks(name)
		}
		s.amend(t.boundary, func(b *boundary) {
			b.record.Held = slices.Clone(t.held)
			t.close(false, code, summary)
		})
	}
	t.settle(ctx, false)
	return err
}

// Store returns the store to make the [runtime.Runtime] on. It forwards every call to the
// family's store, and tells the state when the changes of a call are durable. Until then
// no other call sees them.
func (s *State) Store() runtime.Store { return watched{s.family.store, s.family} }

type watched struct {
	runtime.Store
	family *family
}

// Acquire implements [runtime.Store].
func (w watched) Acquire(ctx context.Context, trace tga.ID) (chain.Lease, error) {
	lease, err := w.Store.Acquire(ctx, trace)
	if err == nil {
		w.family.took(lease)
	}
	return lease, err
}

func (f *family) took(lease chain.Lease) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.leased[lease.TraceID] = lease
}

// current says that no other lease of the trace was taken since. Whoever was overtaken still
// appends, in vain, and releases: that does not end the call that is made under the newer lease.
// The caller holds mu.
func (f *family) current(lease chain.Lease) bool {
	now, under := f.leased[lease.TraceID]
	return !under || now == lease
}

// Overtake implements [runtime.Store]. If a call of the trace is changing the state now,
// Overtake waits for it: only the end of that call decides whether its changes are kept. With
// lentOnly it waits as Acquire does, and otherwise also for a caller without a deadline.
func (w watched) Overtake(ctx context.Context, trace tga.ID, lentOnly bool) (chain.Lease, error) {
	w.family.mu.Lock()
	_, under := w.family.leased[trace]
	w.family.mu.Unlock()
	if under {
		if _, waits := ctx.Deadline(); !waits && !lentOnly {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, callWait)
			defer cancel()
		}
		return w.Acquire(ctx, trace)
	}
	lease, err := w.Store.Overtake(ctx, trace, lentOnly)
	if err == nil {
		w.family.took(lease)
	}
	return lease, err
}

// callWait is how long a person's word about a call that is changing the state waits for it.
const callWait = time.Hour

// Append implements [runtime.Store].
func (w watched) Append(ctx context.Context, lease chain.Lease, b chain.Batch) (chain.Appended, error) {
	done, err := w.Store.Append(ctx, lease, b)
	w.family.uncertain(b.Attachments, err)
	w.family.appended(ctx, lease, b, err)
	return done, err
}

// Release implements [runtime.Store].
func (w watched) Release(lease chain.Lease) {
	f := w.family
	f.mu.Lock()
	var t *Tx
	if f.current(lease) {
		t = f.calls[lease.TraceID]
		delete(f.calls, lease.TraceID)
		delete(f.leased, lease.TraceID)
	}
	f.mu.Unlock()
	if t != nil {
		t.report(t.giveUp(context.Background(), tga.ToolError, "the call ended without an answer"))
	}
	w.Store.Release(lease)
	f.collectIfDue()
}

// appended is told of every append of a trace. It settles the trace's transaction if the
// append holds its record, and gives the transaction up if the append failed or ended the
// call without that record.
func (f *family) appended(ctx context.Context, lease chain.Lease, b chain.Batch, err error) {
	ended := slices.ContainsFunc(b.Artifacts, func(a chain.NewArtifact) bool { return a.Artifact.Type == tga.EffectType })
	if err == nil {
		f.written(b.Attachments)
	}
	f.mu.Lock()
	var t *Tx
	if err == nil || f.current(lease) { // a lease that the store took was the current one
		t = f.calls[lease.TraceID]
	}
	if t != nil && (ended || err != nil) {
		delete(f.calls, lease.TraceID)
	}
	f.mu.Unlock()
	if t == nil {
		return
	}
	key := keyspace.StateKey(f.id, t.state.number, t.boundary.record.Number)
	held := slices.ContainsFunc(b.Attachments, func(a chain.Attachment) bool {
		return a.Kind == chain.AttachStream && slices.Equal(a.Key, key)
	})
	t.mu.Lock()
	merged := t.stage == stageMerged
	t.opened = t.opened || held && err == nil
	t.mu.Unlock()
	switch {
	case held && merged:
		t.report(t.settled(ctx, err))
	case err != nil:
		t.report(t.giveUp(ctx, codeOr(err, tga.GenericStateError), err.Error())) // the call is not begun, or is in doubt
	case ended:
		t.report(t.giveUp(ctx, tga.ToolError, "the call was not sent"))
	}
}

func (t *Tx) report(err error) {
	if err != nil {
		t.state.opts.Logger.Error("working state", "call", t.boundary.record.ID, "tool", t.call.Tool, "error", err)
	}
}

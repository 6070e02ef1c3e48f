package memstore

import (
	"context"
	"slices"

	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// part is what a batch adds to one trace, checked and not yet applied.
type part struct {
	lease   chain.Lease
	before  *chain.Trace
	after   *chain.Trace
	entries []chain.Entry
	notes   []tga.Note
	record  *ledger.Record // nil if the batch does not change the ledger
	hash    [32]byte       // of the record's key
}

// Append implements [runtime.Store].
func (s *Store) Append(_ context.Context, lease chain.Lease, b chain.Batch) (chain.Appended, error) {
	if err := s.enter(); err != nil {
		return chain.Appended{}, err
	}
	defer s.mu.Unlock()
	if err := b.Check(lease.TraceID); err != nil {
		return chain.Appended{}, err
	}
	if done, ok := chain.Replayed(s.fold(lease.TraceID), b); ok {
		return done, nil
	}
	first, err := s.link(lease, b)
	if err != nil {
		return chain.Appended{}, err
	}
	parts := []*part{first}
	if b.Also != nil {
		second, err := s.also(lease, b.Also)
		if err != nil {
			return chain.Appended{}, err
		}
		if parts = append(parts, second); first.hash == second.hash && first.hash != [32]byte{} {
			return chain.Appended{}, tga.Errorf(tga.ValidationError, "append to traces %s and %s: both have the same ledger key", lease.TraceID, second.after.ID).In(lease.TraceID)
		}
	}
	for _, x := range b.Attachments {
		if _, err := keyspace.AppendAttachment(nil, keyspace.Kind(x.Kind), x.Key); err != nil {
			return chain.Appended{}, err
		}
	}
	// From here on nothing can fail, so either all parts are applied or none is.
	for _, p := range parts {
		s.apply(p)
	}
	s.attach(b.Attachments)
	s.tell()
	done := chain.Appended{Head: first.after.Head, Notes: first.notes, Trace: first.after}
	for i := range first.entries {
		done.Entries = append(done.Entries, first.entries[i].LogEntry)
	}
	return done, nil
}

func (s *Store) also(lease chain.Lease, also *chain.Also) (*part, error) {
	if also.Lease.TraceID == lease.TraceID || len(also.Notes) == 0 {
		return nil, tga.Errorf(tga.ValidationError, "append to trace %s and also to %s with %d notes", lease.TraceID, also.Lease.TraceID, len(also.Notes)).In(lease.TraceID)
	}
	return s.link(also.Lease, chain.Batch{Notes: also.Notes})
}

// fold returns the trace with an id, an empty trace if there is none. s.mu is held.
func (s *Store) fold(id tga.ID) *chain.Trace {
	if k := s.disk.traces[id]; k != nil {
		return k.trace
	}
	return chain.NewTrace(id)
}

// link checks what a batch adds to one trace, and returns it. It changes nothing in the store.
func (s *Store) link(lease chain.Lease, b chain.Batch) (*part, error) {
	if err := s.checkLease(lease); err != nil {
		return nil, err
	}
	before := s.fold(lease.TraceID)
	if err := before.Expect(b.Expect); err != nil {
		return nil, err
	}
	now := s.now()
	ts := now
	if n := len(before.Entries); n > 0 {
		ts = max(ts, before.Entries[n-1].TS)
	}
	p := &part{lease: lease, before: before, after: before.Clone()}
	for _, a := range b.Artifacts {
		e := chain.Entry{Artifact: a.Artifact, Documents: a.Documents, Committed: now, Epoch: lease.Epoch}
		var err error
		if a.Entry == nil {
			err = p.after.Extend(&e, ts)
		} else {
			e.LogEntry = *a.Entry
			err = p.after.ApplyGiven(&e, now)
		}
		if err != nil {
			return nil, err
		}
		p.entries = append(p.entries, e)
	}
	for _, n := range b.Notes {
		note, err := p.after.AppendNote(n, ts)
		if err != nil {
			return nil, err
		}
		p.notes = append(p.notes, note)
	}
	return p, s.ledgerChange(p)
}

// ledgerChange sets the part's new ledger record, if the part changes it.
func (s *Store) ledgerChange(p *part) error {
	c := ledger.Change{
		Trace: p.after.ID, State: p.after.Head.State, Epoch: uint64(p.lease.Epoch), Notes: p.notes,
		Request: p.after.Request, Call: p.after.Call, Effect: p.after.Effect,
	}
	for i := range p.entries {
		e := &p.entries[i]
		c.Appends(e.Type, e.Seq, e.TS, e.Committed)
	}
	if touches, err := c.Touches(); err != nil || !touches {
		return err
	}
	p.hash = ledger.KeyOf(p.after.Namespace, p.after.Call).Hash()
	var stored *ledger.Record
	if r, ok := s.disk.records[p.hash]; ok {
		stored = &r
	}
	var err error
	p.record, err = c.Apply(stored, func(trace tga.ID, seq uint64) (string, error) {
		if a := s.disk.traces[trace].entries[seq-1].Artifact; a != nil {
			return a.Effect.Outcome.Status, nil
		}
		return "", nil
	})
	return err
}

func (s *Store) apply(p *part) {
	k := s.disk.traces[p.after.ID]
	if k == nil {
		if len(p.entries) == 0 {
			return // attachments alone make no trace
		}
		k = &kept{}
		s.disk.traces[p.after.ID] = k
	}
	k.trace, k.entries = p.after, append(k.entries, p.entries...)
	if p.record != nil {
		s.disk.records[p.hash] = *p.record
	}
	for i := range p.entries {
		s.disk.newest = max(s.disk.newest, p.entries[i].TS)
	}
}

func (s *Store) attach(list []chain.Attachment) {
	for _, a := range list {
		of := s.disk.attachments[a.Kind]
		if of == nil {
			of = map[string][]byte{}
			s.disk.attachments[a.Kind] = of
		}
		if a.Value == nil {
			delete(of, string(a.Key))
		} else {
			of[string(a.Key)] = slices.Clone(a.Value)
		}
	}
}

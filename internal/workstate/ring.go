package workstate

import (
	"context"
	"slices"

	"github.com/tgad/tgad/schemas/tga"
)

// remember gives a boundary its number and enters it.
func (s *State) remember(b *boundary) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b.record.Number = s.next
	s.next++
	s.boundaries = append(s.boundaries, b)
}

// amend changes a boundary that others may look at.
func (s *State) amend(b *boundary, change func(b *boundary)) boundaryRecord {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(b)
	return b.record
}

// forget takes boundaries out.
func (s *State) forget(gone ...*boundary) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.boundaries = slices.DeleteFunc(s.boundaries, func(b *boundary) bool { return slices.Contains(gone, b) })
}

// overflow returns the boundaries that retention no longer keeps: those over the ring,
// too old, or over the bytes, oldest first, and never one that is open.
func (s *State) overflow() (drop []*boundary) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var bytes int64
	oldest := s.opts.Clock().Add(-s.opts.MaxAge).UnixNano()
	kept := 0
	for _, b := range slices.Backward(s.boundaries) {
		r := b.record
		if r.Open {
			continue
		}
		kept++
		bytes += r.Bytes
		if kept > s.opts.Ring || s.opts.MaxAge > 0 && r.Began < oldest || s.opts.MaxBytes > 0 && bytes > s.opts.MaxBytes {
			drop = append(drop, b)
		}
	}
	return drop
}

// List returns the boundaries that are kept, oldest first.
func (s *State) List() []Checkpoint {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Checkpoint, 0, len(s.boundaries))
	for _, b := range s.boundaries {
		out = append(out, b.checkpoint())
	}
	return out
}

// find returns the newest boundary of an id.
func (s *State) find(id string) (*boundary, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range slices.Backward(s.boundaries) {
		if b.record.ID == id {
			return b, nil
		}
	}
	return nil, tga.Errorf(tga.NotFound, "no boundary of %q is kept", id)
}

// PreSnapshot returns the state before a call: NOT_FOUND where it is not kept.
func (s *State) PreSnapshot(ctx context.Context, id string) (*CompositeSnapshot, error) {
	s.family.gate.RLock()
	defer s.family.gate.RUnlock()
	b, err := s.find(id)
	if err != nil {
		return nil, err
	}
	return s.snapshotOf(ctx, b, phasePre)
}

// PostSnapshot returns the state after a call that succeeded: NOT_FOUND where it is not
// kept, or the call did not succeed.
func (s *State) PostSnapshot(ctx context.Context, id string) (*CompositeSnapshot, error) {
	s.family.gate.RLock()
	defer s.family.gate.RUnlock()
	b, err := s.find(id)
	if err != nil {
		return nil, err
	}
	return s.snapshotOf(ctx, b, phasePost)
}

// Recording returns what a call saw of the clock and of the random source.
func (s *State) Recording(id string) (Recording, error) {
	b, err := s.find(id)
	if err != nil {
		return Recording{}, err
	}
	return b.recording(), nil
}

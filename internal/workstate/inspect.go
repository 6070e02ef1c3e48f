package workstate

import (
	"context"
	"errors"

	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Stored is a state found in a store.
type Stored struct {
	ID         tga.ID // of its family
	Number     uint32 // within it
	Root       tga.Digest
	Forked     string // id of the boundary it began at; "" for the family's first
	Boundaries int
	Open       int // of those, transactions that have not ended
}

// States lists the states in a store, by id and number. A state that cannot be read is
// left out, and named in the error beside the list: FORMAT_TOO_NEW if a newer program
// wrote it, STATE_CHECKSUM_MISMATCH if it is damaged.
func States(ctx context.Context, store runtime.AttachmentReader) ([]Stored, error) {
	var all []Stored
	var unread []error
	for a, err := range store.Attachments(ctx, chain.AttachStream, nil) {
		if err != nil {
			return nil, err
		}
		id, number, n, err := keyspace.ParseState(a.Key)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			var h headRecord
			err := decodeRecord(a.Value, &h, func() int { return h.Version })
			if h.Root == "" {
				continue // a stream of another owner
			}
			root, bad := tga.ParseDigest(h.Root)
			if bad != nil && err == nil {
				err = tga.Errorf(tga.StateChecksumMismatch, "root of a working state: %w", bad)
			}
			if err != nil {
				unread = append(unread, unreadable(id, number, err))
				continue
			}
			all = append(all, Stored{ID: id, Number: number, Root: root, Forked: h.Forked})
			continue
		}
		// The items of a state follow its head.
		if n := len(all); n > 0 && all[n-1].ID == id && all[n-1].Number == number {
			if len(a.Value) == 0 { // it is erased, in a store from before
				all = all[:n-1]
				continue
			}
			var r boundaryRecord
			if err := decodeRecord(a.Value, &r, func() int { return r.Version }); err != nil {
				unread = append(unread, unreadable(id, number, err))
				all = all[:n-1]
				continue
			}
			if all[n-1].Boundaries++; r.Open {
				all[n-1].Open++
			}
		}
	}
	return all, errors.Join(unread...)
}

func unreadable(id tga.ID, number uint32, cause error) error {
	return tga.Errorf(tga.CodeOf(cause), "working state %s, number %d: %w", id, number, cause)
}

// Inspect opens a state read-only: it restores nothing, and a change is refused with
// PERMISSION_DENIED. It needs no lease, so another process may be using the state; it
// shows the state as of the call. NOT_FOUND if there is no such state, or it was erased.
func Inspect(ctx context.Context, store runtime.AttachmentReader, id tga.ID, number uint32, o Options) (*State, error) {
	f := &family{
		read: store, id: id, token: make(turn, 1),
		stored: map[[32]byte]bool{}, calls: map[tga.ID]*Tx{}, leased: map[tga.ID]chain.Lease{}, states: map[uint32]*State{},
	}
	s := newState(f, number, NewSession(), &Registry{}, o)
	s.inspected = true
	if err := s.readStream(ctx); err != nil {
		return nil, err
	}
	if was := s.erasure; was != nil {
		return nil, tga.Errorf(tga.NotFound, "working state %s was erased at %s by %s: %s", id, was.At, was.Who, was.Reason)
	}
	if len(s.erased) > 0 {
		return nil, tga.Errorf(tga.NotFound, "working state %s, number %d, was erased", id, number)
	}
	if s.head.Root == "" {
		return nil, tga.Errorf(tga.NotFound, "the store has no working state %s, number %d", id, number)
	}
	return s, s.restoreMemory(ctx)
}

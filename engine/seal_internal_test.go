package engine

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
)

// TestTraceIDsComeInPages: no page has more than its limit, each goes on where the one before ended, and a
// trace with several keys comes once.
func TestTraceIDsComeInPages(t *testing.T) {
	db := inMemory(t)
	for i := range uint64(3) {
		for seq := range uint64(2) {
			db.PutRow(keyspace.AppendEntry(nil, numbered(1, i), seq+1), []byte{rowValue})
		}
	}
	from, _ := keyspace.Bounds(keyspace.Entry)
	var all []tga.ID
	for page, want := range []int{2, 1} {
		ids, next, err := db.index.traceIDs(keyspace.Entry, from, 2)
		if err != nil || len(ids) != want || (next == nil) != (page == 1) {
			t.Fatalf("page %d: %v, %v, %v", page, ids, next, err)
		}
		all, from = append(all, ids...), next
	}
	for i, id := range all {
		if id != numbered(1, uint64(i)) {
			t.Errorf("%d: %s", i, id)
		}
	}
}

// TestSealStopsWhereTheStoreCannotBeRead: a trace that fails a check stays where it is, and the others
// are archived. A store that cannot be read says nothing of a trace.
func TestSealStopsWhereTheStoreCannotBeRead(t *testing.T) {
	a := &sealer{logger: slog.New(slog.DiscardHandler)}
	unread := tga.Errorf(tga.StoreUnavailable, "no read")
	if err := a.unsealable(numbered(1, 1), unread); err != error(unread) {
		t.Errorf("no read: %v", err)
	}
	if err := a.unsealable(numbered(1, 1), damaged("a digest")); err != nil {
		t.Errorf("damaged: %v", err)
	}
}

// TestTracesWithATimer: the id is the end of a timer's key; a key that is too short to have one is passed over.
func TestTracesWithATimer(t *testing.T) {
	db := inMemory(t)
	key := attached(keyspace.Timer, keyspace.TimerKey(7, numbered(1, 1)))
	for length, want := range map[int]tga.ID{len(key): numbered(1, 1), 16: tga.ID(key[:16]), 15: {}, 1: {}} {
		db.PutRow(key[:length], []byte{rowValue})
		timed, err := db.index.timed()
		if err != nil || len(timed) > 1 || timed[want] == want.IsZero() {
			t.Errorf("a key of %d bytes: %v, %v", length, timed, err)
		}
		db.PutRow(key[:length], nil)
	}
}

// TestArchivedTracesAreRemovedInRecords: what is removed after a seal is cut into records of about
// [removeBytes], each ended by the trace that goes beyond. One record of everything would have no
// bound, and one for each trace would be a sync for each.
func TestArchivedTracesAreRemovedInRecords(t *testing.T) {
	serial.Test(t)
	db := inMemory(t)
	var ids []tga.ID
	const notes = 9_000 // of each trace: a little more than half of removeBytes
	for i := range uint64(5) {
		ids = append(ids, numbered(1, i))
		for n := range uint32(notes) {
			db.PutRow(keyspace.AppendNote(nil, ids[i], n+1), []byte{rowValue})
		}
	}
	w := db.commits.newWriter()
	for n := range uint32(notes) {
		w.delete(keyspace.AppendNote(nil, ids[0], n+1))
	}
	if one := w.ops.Len(); one > removeBytes || 2*one <= removeBytes {
		t.Fatalf("the notes of a trace take %d bytes of a record, want more than half of %d", one, removeBytes)
	}
	before := db.Stats().Commits
	a := &sealer{commits: db.commits, index: db.index, traces: db.traces}
	own, err := a.own(ids)
	if err == nil {
		err = a.remove(own)
	}
	if err != nil {
		t.Fatal(err)
	}
	// The entries; traces 1 and 2; 3 and 4; the rest with the mark of the seal.
	if n := db.Stats().Commits - before; n != 4 {
		t.Errorf("%d records, want 4", n)
	}
	for _, id := range ids {
		lower, upper := keyspace.NoteBounds(id)
		if err := db.index.scanRows(lower, upper, func([]byte, []byte) error {
			return errors.New("a note is left")
		}); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
}

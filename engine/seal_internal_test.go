package engine

import (
	"log/slog"
	"testing"

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

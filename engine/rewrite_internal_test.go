package engine

import (
	"context"
	"errors"
	"maps"
	"testing"

	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal"
)

// TestLiveBytesAreAddedUpBySegment: bodies of every kind of row that can name one count, before, between
// and behind the kinds that are passed over; the pace is kept for each row that was looked at, and what
// it says ends the count, as the end of the context and a row that is none do.
func TestLiveBytesAreAddedUpBySegment(t *testing.T) {
	db := inMemory(t)
	one, other := numbered(1, 1), numbered(2, 2)
	put := func(key []byte, segment uint64, length uint32) {
		db.PutRow(key, appendRow(nil, &wal.Op{Place: wal.Inline, Ref: wal.Ref{Segment: segment, Length: length}}))
	}
	put(keyspace.AppendApproval(nil, one), 100, 5)
	put(keyspace.AppendBlob(nil, [32]byte{1}), 100, 7)
	put(keyspace.AppendEntry(nil, one, 1), 101, 11)
	put(keyspace.AppendEntry(nil, other, 1), 100, 13)
	put(keyspace.AppendSegment(nil, 1), 102, 17)
	db.PutRow(keyspace.AppendEntry(nil, other, 2), appendRow(nil, &wal.Op{Place: wal.InFile, File: wal.File{Length: 19}}))
	rows := len(db.Rows()) + 1 // and the position
	paced := 0
	live, err := db.liveBytes(t.Context(), func(context.Context) error { paced++; return nil })
	if want := map[uint64]int64{100: 25, 101: 11, 102: 17}; err != nil || !maps.Equal(live, want) {
		t.Errorf("%v, %v; want %v", live, err, want)
	}
	if paced != rows {
		t.Errorf("the pace is kept %d times for %d rows", paced, rows)
	}
	put(keyspace.AppendLedger(nil, [32]byte{1}), 100, 1)
	put(keyspace.AppendTombstone(nil, one), 100, 1)
	if again, err := db.liveBytes(t.Context(), nil); err != nil || !maps.Equal(again, live) {
		t.Errorf("with rows that never name a body: %v, %v", again, err)
	}
	enough := errors.New("enough")
	if live, err := db.liveBytes(t.Context(), func(context.Context) error { return enough }); live != nil || !errors.Is(err, enough) {
		t.Errorf("where the pace ends it: %v, %v", live, err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if live, err := db.liveBytes(ended, nil); live != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("where the context ends it: %v, %v", live, err)
	}
	db.PutRow(keyspace.AppendEntry(nil, other, 3), []byte{rowBody, 1})
	if live, err := db.liveBytes(t.Context(), nil); live != nil || tga.CodeOf(err) != tga.StateChecksumMismatch {
		t.Errorf("with a row that is none: %v, %v", live, err)
	}
}

package engine

import (
	"context"
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

func openID(n int) tga.ID {
	id := numbered(0, uint64(n))
	id[6], id[8] = 0x70, 0x80 // version 7
	return id
}

// openRows puts n open traces into the index, their ids from 1 on.
func openRows(t *testing.T, db *DB, n int) {
	t.Helper()
	b := db.index.p.NewBatch()
	for i := range n {
		tr := chain.NewTrace(openID(i + 1))
		tr.Entries = []tga.LogEntry{{}}
		row := appendOpenValue([]byte{rowValue}, tr)
		if err := b.Set(keyspace.AppendOpen(nil, tr.ID), row, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Commit(pebble.NoSync); err != nil {
		t.Fatal(err)
	}
}

// TestOpenTracesOverTheEndOfAPage: whether a page ends with the last open trace, one before or one
// behind it, each trace is yielded once and in order.
func TestOpenTracesOverTheEndOfAPage(t *testing.T) {
	serial.Test(t)
	for _, n := range []int{0, 1, openPage - 1, openPage, openPage + 1, 2*openPage + 1} {
		db := inMemory(t)
		openRows(t, db, n)
		seen := 0
		for o, err := range db.OpenTraces(t.Context()) {
			if seen++; err != nil || o.TraceID != openID(seen) {
				t.Fatalf("trace %d of %d: %s, %v", seen, n, o.TraceID, err)
			}
		}
		if seen != n {
			t.Errorf("%d open traces, want %d", seen, n)
		}
	}
}

// TestOpenTracesEndWithTheirError: a row that is none, or a context that has ended, is yielded as an
// error and ends the list; what breaks off the range gets nothing more.
func TestOpenTracesEndWithTheirError(t *testing.T) {
	db := inMemory(t)
	openRows(t, db, openPage+2)
	stopped, stop := context.WithCancel(t.Context())
	defer stop()
	seen := 0
	for o, err := range db.OpenTraces(stopped) {
		if err != nil {
			if !errors.Is(err, context.Canceled) || o != (chain.OpenTrace{}) {
				t.Errorf("%+v, %v", o, err)
			}
			continue
		}
		seen++
		stop()
	}
	if seen != openPage {
		t.Errorf("%d traces before the end of the context is seen, want a page", seen)
	}
	db.PutRow(keyspace.AppendOpen(nil, openID(openPage+1)), []byte{rowValue, tga.StoreValueVersion})
	var last error
	seen = 0
	for _, err := range db.OpenTraces(t.Context()) {
		if seen++; err != nil {
			last = err
		}
	}
	if seen != openPage+1 || tga.CodeOf(last) != tga.StateChecksumMismatch {
		t.Errorf("%d were yielded, the last error is %v", seen, last)
	}
	for range db.OpenTraces(t.Context()) {
		break
	}
}

package engine_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/schemas/tga"
)

// TestTraceIsBegunOnce: a second genesis of a trace is refused, also where nothing in
// memory has the first: the trace cache holds one trace, and after a reopening none.
// The largest id is among them, finished, and archived.
func TestTraceIsBegunOnce(t *testing.T) {
	o := options(vfs.NewMem())
	o.TraceCacheCount = 1
	const traces = 9
	// genesis is another request each time, so none is the repetition of one before.
	attempts := 0
	genesis := func(t *testing.T, db *engine.DB, n uint64) error {
		t.Helper()
		attempts++
		m := spec{trace: id(n), args: fmt.Sprintf(`{"amount":%d}`, attempts)}.make(t)
		lease := acquire(t, db, id(n))
		defer db.Release(lease)
		_, err := db.Append(context.Background(), lease, m.batch(m.request))
		return err
	}
	db := open(t, "store", o)
	for n := uint64(1); n <= traces; n++ {
		if err := genesis(t, db, n); err != nil {
			t.Fatalf("begin trace %d: %v", n, err)
		}
		wantCode(t, genesis(t, db, n), tga.StateInvalidTransition) // it is in the cache
	}
	again := func(db *engine.DB, from, to uint64) {
		t.Helper()
		for n := from; n <= to; n++ {
			wantCode(t, genesis(t, db, n), tga.StateInvalidTransition)
		}
		check(t, db)
	}
	again(db, 1, traces)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	db = open(t, "store", o)
	again(db, 1, traces)

	run(t, db, spec{trace: id(traces + 1)}, spec{trace: id(traces + 2)})
	if _, err := db.SealTraces(context.Background(), start+1); err != nil {
		t.Fatal(err)
	}
	again(db, traces+1, traces+2)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	db = open(t, "store", o)
	again(db, traces+1, traces+2)
}

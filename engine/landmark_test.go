package engine_test

import (
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// TestOrderIsFoundFromAnywhere reads the global order from every cursor, of a log whose last
// record, that of a clean end, is itself a landmark.
func TestOrderIsFoundFromAnywhere(t *testing.T) {
	const apart = 64 << 10
	fs := vfs.NewMem()
	db := open(t, "store", options(fs))
	append1 := func(n uint64, size int) {
		data := []byte(`"` + strings.Repeat("x", size) + `"`)
		run(t, db, spec{trace: id(n), documents: []chain.Document{{Pointer: tga.PointerResult, Data: data}}})
	}
	var n uint64
	for n = 1; n < 20; n++ {
		append1(n, 20<<10)
	}
	// What an append takes beside its document: then one ends just before a landmark.
	before := engine.LogEnd(db)
	append1(n, 1000)
	beside := int(engine.LogEnd(db)-before) - 1000
	left := int(2*apart - engine.LogEnd(db)%apart)
	append1(n+1, left-beside-90)
	if end := engine.LogEnd(db) % apart; end < apart-80 {
		t.Fatalf("the log ends %d bytes before a landmark", apart-end)
	}
	rows := engine.Landmarks(db)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	db = open(t, "store", options(fs))
	if got := engine.Landmarks(db); got != rows+1 {
		t.Errorf("%d landmarks, and %d after the record of the end", rows, got)
	}
	check(t, db)
	last := db.Cursor()
	for after := range last {
		var got uint64
		for l, err := range db.Follow(t.Context(), after) {
			if err != nil {
				t.Fatalf("after %d: %v", after, err)
			}
			if got++; l.Index != after+got {
				t.Fatalf("after %d: index %d, want %d", after, l.Index, after+got)
			}
			if l.Index == last {
				break
			}
		}
	}
}

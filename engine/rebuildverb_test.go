package engine_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/schemas/tga"
)

// TestDamagedIndexNamesItsRemedy damages one block of the index after the other. What the open
// itself does not mend is met by a read, which names the verb that does, and the verb then
// makes every row anew.
func TestDamagedIndexNamesItsRemedy(t *testing.T) {
	fs := vfs.NewMem()
	o := options(fs)
	if err := lived(t, fs).Close(); err != nil {
		t.Fatal(err)
	}
	db, err := engine.Open("store", o)
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint64(300) { // more than one block of a table
		run(t, db, spec{trace: id(1000 + i)})
	}
	want := db.Rows()
	if err := errors.Join(db.Flush(), db.Close()); err != nil {
		t.Fatal(err)
	}
	met := 0
	for range 2 { // what the rebuild made can be damaged as well
		names, err := fs.List("store/index")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if !strings.HasSuffix(name, ".sst") {
				continue
			}
			whole := content(t, fs, "store/index/"+name)
			bad := append([]byte(nil), whole...)
			for at := 100; at < len(bad)*3/4; at += 4096 {
				bad[at] ^= 0xff
			}
			// The block with the rows of the store itself stays: an open reads that.
			copy(bad[max(0, len(bad)/2-20_000):], whole[max(0, len(bad)/2-20_000):len(bad)/2])
			replace(t, fs, "store/index/"+name, bad)
		}
		// The open reads the keys of the ledger, and may be the one that meets it.
		db, err := engine.Open("store", o)
		var rep engine.Report
		if err == nil {
			rep, err = db.Check(t.Context())
			if err := db.Close(); err != nil {
				t.Log(err)
			}
		}
		text := fmt.Sprint(rep.Problems, err)
		if strings.Contains(text, "tgad index rebuild") {
			met++
		} else if len(rep.Problems) > 0 || err != nil {
			t.Errorf("the remedy is not named: %s", text)
		}
		var far engine.Rebuilding
		done, err := engine.RebuildIndex(t.Context(), "store", o, &far)
		if err != nil {
			t.Fatal(err)
		}
		if n, of := far.Progress(); done.Records == 0 || of != done.Records || n > of || done.Appends < 600 || done.Rows < uint64(len(want)) {
			t.Errorf("%+v, %d of %d", done, n, of)
		}
		db, err = engine.Open("store", o)
		if err != nil {
			t.Fatal(err)
		}
		got := db.Rows()
		for _, rows := range []map[string]string{want, got} {
			delete(rows, "mincarnation")
		}
		if !maps.Equal(got, want) {
			t.Errorf("%d rows, want %d, or others", len(got), len(want))
		}
		check(t, db)
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if met == 0 {
		t.Error("no read met the damage")
	}
}

// TestRebuildKeepsAnIndexThatProvesALoss: a log that ends too early is not what an index may be
// made from, and a directory without a store gets none. A rebuild that was ended goes on.
func TestRebuildKeepsAnIndexThatProvesALoss(t *testing.T) {
	fs := vfs.NewMem()
	o := options(fs)
	if err := lived(t, fs).Close(); err != nil {
		t.Fatal(err)
	}
	_, err := engine.RebuildIndex(t.Context(), "nowhere", o, nil)
	wantCode(t, err, tga.NotFound)
	if _, err := fs.Stat("nowhere"); err == nil {
		t.Error("a store was made")
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := engine.RebuildIndex(over, "store", o, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("ended: %v", err)
	}
	db, err := engine.Open("store", o)
	if err != nil {
		t.Fatal(err)
	}
	check(t, db)
	want := len(db.Rows())
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	logs := filesOf(t, fs, "log")
	last := ""
	for _, name := range logs {
		if !strings.Contains(name, ".") && name > last {
			last = name
		}
	}
	whole := content(t, fs, last)
	replace(t, fs, last, append(whole[:8192:8192], make([]byte, len(whole)-8192)...))
	_, err = engine.RebuildIndex(t.Context(), "store", o, nil)
	wantCode(t, err, tga.StateChecksumMismatch)
	if left, err := fs.List("store/index"); err != nil || len(left) == 0 {
		t.Error("the index that proved the loss is gone")
	}
	replace(t, fs, last, whole)
	db = open(t, "store", o)
	if got := len(db.Rows()); got != want || db.Stats().Frozen != "" {
		t.Errorf("%d rows, want %d; frozen: %s", got, want, db.Stats().Frozen)
	}
}

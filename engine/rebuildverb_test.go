package engine_test

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/schemas/tga"
)

// TestRebuildMakesEveryRowAnew takes rows from an index behind the log's back, which an open does
// not notice: the rebuild has every one again. What finds an index damaged names the rebuild.
func TestRebuildMakesEveryRowAnew(t *testing.T) {
	serial.Test(t)
	if err := engine.ReadError(pebble.ErrCorruption); tga.CodeOf(err) != tga.StateChecksumMismatch || !strings.Contains(err.Error(), "tgad index rebuild") {
		t.Errorf("a damaged block: %v", err)
	}
	fs := vfs.NewMem()
	o := options(fs)
	db := lived(t, fs)
	want := db.Rows()
	for key := range want {
		if key[0] == 'e' || key[0] == 'o' {
			db.PutRow([]byte(key), nil)
		}
	}
	if len(db.Rows()) >= len(want) {
		t.Fatal("no row was taken")
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	var far engine.Rebuilding
	done, err := engine.RebuildIndex(t.Context(), "store", o, &far)
	if err != nil {
		t.Fatal(err)
	}
	if n, of := far.Progress(); done.Records == 0 || of != done.Records || n > of || done.Appends == 0 || done.Rows != uint64(len(want))+1 { // with the position, which Rows leaves out
		t.Errorf("%+v, %d of %d", done, n, of)
	}
	db = open(t, "store", o)
	got := db.Rows()
	for _, rows := range []map[string]string{want, got} {
		delete(rows, "mincarnation")
	}
	if !maps.Equal(got, want) {
		t.Errorf("%d rows, want %d, or others", len(got), len(want))
	}
}

// TestRebuildKeepsAnIndexThatProvesALoss: a log that ends too early is not what an index may be
// made from, and a directory without a store gets none. A rebuild that was ended goes on.
func TestRebuildKeepsAnIndexThatProvesALoss(t *testing.T) {
	serial.Test(t)
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
		if strings.Contains(name, ".") || name < last {
			continue
		}
		if data := content(t, fs, name); len(bytes.Trim(data[8192:], "\x00")) > 0 { // else it was made ahead
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

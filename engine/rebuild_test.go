package engine_test

import (
	"fmt"
	"maps"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/crashtest/crashmem"
	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// lived is a store with finished, open and archived traces, large answers and segments of the
// log that were written anew.
func lived(t *testing.T, fs vfs.FS) *engine.DB {
	t.Helper()
	o := options(fs)
	o.SegmentBytes = 64 << 10
	db, err := engine.Open("store", o)
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint64(60) {
		run(t, db, spec{trace: id(i + 1), key: fmt.Sprint("key-", i+1), args: `{"fill":"` + noise(i, 500) + `"}`})
	}
	if done, err := db.SealTraces(t.Context(), start+1); err != nil || done.Traces != 60 {
		t.Fatalf("%+v %v", done, err)
	}
	for i := range uint64(10) {
		run(t, db, spec{trace: id(100 + i), key: fmt.Sprint("key-", 100+i), args: `{"fill":"` + noise(i, 20_000) + `"}`})
	}
	append_(t, db, acquire(t, db, id(200)), spec{trace: id(200)}.make(t).begin())
	return db
}

// TestIndexIsAFunctionOfTheLog throws the index away, whole or one file of it, and compares
// every row of the one that is made anew.
func TestIndexIsAFunctionOfTheLog(t *testing.T) {
	serial.Test(t)
	fs := vfs.NewMem()
	db := lived(t, fs)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := engine.Open("store", options(fs))
	if err != nil {
		t.Fatal(err)
	}
	want := db.Rows()
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	names, err := fs.List("store/index")
	if err != nil {
		t.Fatal(err)
	}
	same := func(what string) {
		t.Helper()
		db, err := engine.Open("store", options(fs))
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		got := db.Rows()
		for _, rows := range []map[string]string{want, got} {
			delete(rows, "mincarnation") // each open raises it
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: %d rows, want %d, or others", what, len(got), len(want))
		}
		check(t, db)
		if err := db.Close(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	for _, name := range names {
		if info, err := fs.Stat("store/index/" + name); err != nil || info.IsDir() || name == "LOCK" {
			continue
		}
		if err := fs.Remove("store/index/" + name); err != nil {
			continue // the open before has replaced it
		}
		same("without " + name)
	}
	if err := fs.RemoveAll("store/index"); err != nil {
		t.Fatal(err)
	}
	same("without the index")
}

// TestArchivingGivesRoomBack: bodies that no row names after archiving are removed from the log. A
// rebuilt index has every key, so nothing is sent again.
func TestArchivingGivesRoomBack(t *testing.T) {
	serial.Test(t)
	fs := vfs.NewMem()
	o := options(fs)
	o.SegmentBytes = 64 << 10
	db, err := engine.Open("store", o)
	if err != nil {
		t.Fatal(err)
	}
	const traces = 100
	spec_ := func(i uint64) spec {
		return spec{trace: id(i + 1), key: fmt.Sprint("key-", i), args: `{"fill":"` + noise(i, 300) + `"}`}
	}
	for i := range uint64(traces) {
		run(t, db, spec_(i))
	}
	before := db.Stats().LogBytes
	if _, err := db.SealTraces(t.Context(), start+1); err != nil {
		t.Fatal(err)
	}
	if after := db.Stats().LogBytes; after > before*3/4 {
		t.Errorf("the log has %d bytes with its archive, %d before", after, before)
	}
	check(t, db)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if err := fs.RemoveAll("store/index"); err != nil {
		t.Fatal(err)
	}
	db = open(t, "store", o)
	var _ runtime.Store = db
	for i := range uint64(traces) {
		s := spec_(i)
		rec, err := db.Record(t.Context(), s.ledgerKey())
		if err != nil || rec == nil || rec.TraceID != s.trace {
			t.Fatalf("key %d: %+v %v", i, rec, err)
		}
		if st, err := db.State(t.Context(), s.trace); err != nil || st.Current != tga.Completed {
			t.Fatalf("trace %d: %+v %v", i, st, err)
		}
	}
}

// TestKilledAgainAndAgainFillsNoDisk opens a store that was killed, many times: what a segment
// had ahead is given back.
func TestKilledAgainAndAgainFillsNoDisk(t *testing.T) {
	serial.Test(t)
	disk := crashmem.New()
	o := options(disk)
	o.FirstSegmentBytes = 0 // as a store has it
	for i := range uint64(12) {
		db, err := engine.Open("store", o)
		if err != nil {
			t.Fatal(err)
		}
		run(t, db, spec{trace: id(i + 1)})
		if size := db.Stats().LogBytes; size > 9<<20 {
			t.Fatalf("after %d kills the log has %d bytes", i, size)
		}
		killed := disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: newRand(i)})
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		disk, o.FS = killed, killed
	}
	db := open(t, "store", o)
	for i := range uint64(12) {
		if st, err := db.State(t.Context(), id(i+1)); err != nil || st.LastSeq != 4 {
			t.Errorf("trace %d: %+v %v", i, st, err)
		}
	}
}

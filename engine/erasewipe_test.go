package engine_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/internal/crashtest/crashmem"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// failingAt is a disk on which an operation on the files with a part of a name fails while it is set.
type failingAt struct {
	kind errorfs.OpKind
	part string
	set  atomic.Bool
}

func (f *failingAt) String() string { return "failing" }

func (f *failingAt) MaybeError(op errorfs.Op) error {
	if f.set.Load() && op.Kind == f.kind && strings.Contains(op.Path, f.part) {
		return errors.New("the disk fails")
	}
	return nil
}

// unwiped gets the names of files that are removed with a text in them.
func unwiped(text string, into *[]string) func(string, []byte) {
	return func(name string, b []byte) {
		if bytes.Contains(b, []byte(text)) {
			*into = append(*into, name)
		}
	}
}

// TestErasureWithAFileThatStays: an erasure is not done while an old file of a segment, or of a body, cannot be wiped or
// removed. Its repeat goes on with just that file.
func TestErasureWithAFileThatStays(t *testing.T) {
	for _, kind := range []errorfs.OpKind{errorfs.OpFileWriteAt, errorfs.OpRemove} {
		for _, part := range []string{"0000000000000001", ".body"} {
			t.Run(fmt.Sprintf("operation %d on %s", kind, part), func(t *testing.T) {
				bad := &failingAt{kind: kind, part: part}
				var raw []string
				fs := &burying{FS: errorfs.Wrap(vfs.NewMem(), bad), looks: unwiped(secret, &raw)}
				o := readable(fs)
				db := open(t, "store", o)
				s := secretive(1, 2<<20)
				run(t, db, s, spec{trace: id(2)})
				if err := db.NextSegment(); err != nil {
					t.Fatal(err)
				}
				bad.set.Store(true)
				what := engine.Erasure{Traces: []tga.ID{s.trace}, Who: "operator", Reason: "the customer asked for it"}
				for range 2 {
					_, err := db.Erase(t.Context(), what)
					wantCode(t, err, tga.StoreUnavailable)
				}
				bad.set.Store(false)
				if done := erase(t, db, what); !same(done, engine.Erased{Already: 1}) {
					t.Errorf("erased %+v", done)
				}
				wantErased(t, db, s)
				if found := filesWith(t, fs, "store", secret); found != nil || len(raw) > 0 {
					t.Errorf("it stands in %v, and was removed in %v", found, raw)
				}
				if begun, err := db.Erasing(); begun || err != nil {
					t.Errorf("to be finished: %v, %v", begun, err)
				}
			})
		}
	}
}

// TestFileThatStaysKeepsNoStoreShut: an old file of a segment, or of a body, that cannot be wiped or removed after a crash
// either keeps its erasure from being done, and nothing else. Once it can be removed, the erasure goes on.
func TestFileThatStaysKeepsNoStoreShut(t *testing.T) {
	for _, kind := range []errorfs.OpKind{errorfs.OpFileWriteAt, errorfs.OpRemove} {
		for _, part := range []string{"0000000000000001", ".body"} {
			t.Run(fmt.Sprintf("operation %d on %s", kind, part), func(t *testing.T) {
				disk, bad := crashmem.New(), &failingAt{kind: kind, part: part}
				failing := func(disk vfs.FS) engine.Options {
					return readable(&burying{FS: errorfs.Wrap(disk, bad), looks: func(string, []byte) {}})
				}
				db, err := engine.Open("store", failing(disk))
				if err != nil {
					t.Fatal(err)
				}
				defer db.Close()
				s := secretive(1, 2<<20)
				run(t, db, s, spec{trace: id(2)})
				if err := db.NextSegment(); err != nil {
					t.Fatal(err)
				}
				bad.set.Store(true)
				_, err = db.Erase(t.Context(), engine.Erasure{Traces: []tga.ID{s.trace}, Who: "operator", Reason: "the customer asked for it"})
				wantCode(t, err, tga.StoreUnavailable)
				crashed := disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: newRand(1)})
				if db, err = engine.Open("store", failing(crashed)); err != nil {
					t.Fatalf("the store does not open: %v", err)
				}
				defer db.Close()
				run(t, db, spec{trace: id(3)})
				if begun, err := db.Erasing(); !begun || err != nil {
					t.Errorf("to be finished: %v, %v", begun, err)
				}
				bad.set.Store(false)
				if err := db.FinishErasure(t.Context()); err != nil {
					t.Fatal(err)
				}
				wantErased(t, db, s)
				if found := filesWith(t, crashed, "store", secret); found != nil {
					t.Errorf("it stands in %v", found)
				}
			})
		}
	}
}

// TestWhatIsErasedIsWipedByEverybody: from the record that erases a trace until the erasure is done, each file that may have the
// erased bytes is wiped before it is removed: by an open after a crash, by an archiving, and by the rewriter.
func TestWhatIsErasedIsWipedByEverybody(t *testing.T) {
	for _, who := range []string{"an open", "an archiving", "a rewrite"} {
		t.Run(who, func(t *testing.T) {
			disk := crashmem.New()
			bad := &failingAt{kind: errorfs.OpCreate, part: "packing"}
			var raw []string
			looks := unwiped(secret, &raw)
			fs := &burying{FS: errorfs.Wrap(disk, bad), looks: looks}
			s := secretive(1, 2<<20)
			db, err := engine.Open("store", readable(fs))
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			run(t, db, s, secretive(2, 1<<10))
			if err := db.NextSegment(); err != nil {
				t.Fatal(err)
			}
			bad.set.Store(true)
			what := engine.Erasure{Traces: []tga.ID{id(1), id(2)}, Who: "operator", Reason: "the customer asked for it"}
			_, err = db.Erase(t.Context(), what)
			wantCode(t, err, tga.StoreUnavailable)
			bad.set.Store(false)
			switch who {
			case "an archiving":
				_, err = db.SealTraces(t.Context(), start)
			case "a rewrite":
				_, err = db.Rewrite(t.Context())
			default:
				err = nil
				fs = &burying{FS: disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 2))}), looks: looks}
				db = open(t, "store", readable(fs))
			}
			if err == nil {
				err = db.FinishErasure(t.Context())
			}
			if err != nil {
				t.Fatal(err)
			}
			if len(raw) > 0 {
				t.Errorf("%v were removed with the value in them", raw)
			}
			wantErased(t, db, s)
			if found := filesWith(t, fs, "store", secret); found != nil {
				t.Errorf("it stands in %v", found)
			}
		})
	}
}

// TestErasureOfManyNotes: archived traces that have more notes than a record has room for, together or a single one of them.
func TestErasureOfManyNotes(t *testing.T) {
	type size struct{ traces, notes int }
	sizes := map[string]size{"many traces": {50, 600}, "one trace": {1, 27_000}}
	if testing.Short() {
		sizes = map[string]size{"many traces": {5, 600}, "one trace": {1, 1500}} // the race detector takes minutes for more: they fit into a record
	}
	for name, c := range sizes {
		t.Run(name, func(t *testing.T) {
			fs := vfs.NewMem()
			o := readable(fs)
			db := open(t, "store", o)
			var specs []spec
			var ids []tga.ID
			for i := range c.traces {
				s := secretive(uint64(i+1), 10)
				specs, ids = append(specs, s), append(ids, s.trace)
				run(t, db, s)
				lease := acquire(t, db, s.trace)
				for left := c.notes; left > 0; left -= 300 {
					var b chain.Batch
					for range 300 {
						b.Notes = append(b.Notes, chain.NewNote{Kind: tga.NoteLateReply, Who: "tester", Body: []byte(`{"attempt":1}`)})
					}
					append_(t, db, lease, b)
				}
				db.Release(lease)
			}
			stays := spec{trace: id(1000)}
			run(t, db, stays)
			if _, err := db.SealTraces(t.Context(), start+1e9); err != nil {
				t.Fatal(err)
			}
			if done := erase(t, db, engine.Erasure{Traces: ids}); done.Traces != c.traces {
				t.Errorf("erased %+v", done)
			}
			for range 2 {
				for _, s := range specs {
					wantErased(t, db, s)
					if tr, err := db.Load(t.Context(), s.trace); err != nil || len(tr.Notes) != c.notes+1 {
						t.Fatalf("trace %s: %v", s.trace, err)
					}
				}
				if tr, err := db.Load(t.Context(), stays.trace); err != nil || tr.Effect == nil {
					t.Errorf("another's trace: %+v, %v", tr, err)
				}
				if n := bodyFiles(t, fs); n > 1 {
					t.Errorf("%d files of bodies, want that of the archive segment", n)
				}
				if err := db.Close(); err != nil {
					t.Fatal(err)
				}
				db = open(t, "store", o)
			}
		})
	}
}

// TestDamageDoesNotKeepAStoreShut: an erasure that cannot be finished because of damage waits. The store opens, and its other
// traces go on.
func TestDamageDoesNotKeepAStoreShut(t *testing.T) {
	fs, ring := vfs.NewMem(), &keeping{Ring: new(chaintest.Ring), down: true}
	o := options(fs)
	o.Keyring = ring
	db, err := engine.Open("store", o)
	if err != nil {
		t.Fatal(err)
	}
	run(t, db, spec{trace: id(1)}, spec{trace: id(2)})
	_, err = db.Erase(t.Context(), engine.Erasure{Traces: []tga.ID{id(1)}, Who: "operator", Reason: "the customer asked for it"})
	wantCode(t, err, tga.StoreUnavailable)
	db.Put(entryKey(id(1), 2), []byte("damage"))
	ring.down = false
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if db, err = engine.Open("store", o); err != nil {
		t.Fatalf("the store does not open: %v", err)
	}
	defer db.Close()
	if begun, err := db.Erasing(); !begun || err != nil {
		t.Errorf("the erasure is to be finished: %v, %v", begun, err)
	}
	run(t, db, spec{trace: id(3)})
	if rep, err := db.Check(t.Context()); err != nil || len(rep.Problems) == 0 {
		t.Errorf("the damage is not told: %+v, %v", rep, err)
	}
}

// TestErasureBesideAnUnreadableArchivedTrace: an archive segment with a trace that cannot be read is not written again, so what
// else lies in it is left. That is told, and stops no other erasure.
func TestErasureBesideAnUnreadableArchivedTrace(t *testing.T) {
	fs := vfs.NewMem()
	db, err := engine.Open("store", readable(fs))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var specs []spec
	for n := range uint64(5) {
		specs = append(specs, spec{trace: id(n + 1), subject: "alice", documents: noisy(n, 2000)}) // each has a block of its own
	}
	run(t, db, specs[:3]...)
	if _, err := db.SealTraces(t.Context(), start+1); err != nil {
		t.Fatal(err)
	}
	run(t, db, specs[3:]...)
	names, err := fs.List("store/log")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, ".body") {
			path := fs.PathJoin("store/log", name)
			b := content(t, fs, path)
			b[len(b)*5/6] ^= 1 // in the block of the third trace
			replace(t, fs, path, b)
		}
	}
	db.DropCaches()
	if tr, err := db.Load(t.Context(), id(1)); err != nil || tr.Effect == nil {
		t.Fatalf("the first trace is damaged too: %v", err)
	}
	what := engine.Erasure{Traces: []tga.ID{id(1), id(4)}, Who: "operator", Reason: "the customer asked for it"}
	_, err = db.Erase(t.Context(), what)
	wantCode(t, err, tga.StateChecksumMismatch)
	if tr, err := db.Load(t.Context(), id(4)); err != nil || tr.Effect == nil {
		t.Errorf("what was refused is erased in part: %+v, %v", tr, err)
	}
	what.Leave = true
	done, err := db.Erase(t.Context(), what)
	if err != nil || done.Traces != 1 || done.Left != 1 || done.Unread[0].TraceID != id(1) {
		t.Errorf("with leave: %+v, %v", done, err)
	}
	wantErased(t, db, specs[3])
	if done := erase(t, db, engine.Erasure{Subject: "alice"}); done.Traces != 1 || done.Left != 3 {
		t.Errorf("of the subject: %+v", done)
	}
	wantErased(t, db, specs[4])
	if begun, err := db.Erasing(); begun || err != nil {
		t.Errorf("an erasure is to be finished: %v, %v", begun, err)
	}
	if tr, err := db.Load(t.Context(), id(2)); err != nil || tr.Effect == nil {
		t.Errorf("what was left: %+v, %v", tr, err)
	}
}

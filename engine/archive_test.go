package engine_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// opensFS counts how often files of bodies are opened.
type opensFS struct {
	vfs.FS
	bodies atomic.Int64
}

func (f *opensFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	if strings.Contains(name, "body") {
		f.bodies.Add(1)
	}
	return f.FS.Open(name, opts...)
}

// onlyBody returns the only file of a body in a store.
func onlyBody(t *testing.T, dir string) (name string, b []byte) {
	t.Helper()
	var files []string
	if err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && strings.Contains(path, "body") && !d.IsDir() {
			files = append(files, path)
		}
		return err
	}); err != nil || len(files) != 1 {
		t.Fatalf("%q, %v", files, err)
	}
	b, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	return files[0], b
}

func sealed(t *testing.T, fs vfs.FS, dir string, n uint64) *engine.DB {
	t.Helper()
	o := options(fs)
	o.TraceCacheCount = 1
	db := open(t, dir, o)
	for i := range n {
		run(t, db, spec{trace: id(i + 1), documents: []chain.Document{{Pointer: tga.PointerResult, Data: []byte(noise(i, 250))}}})
	}
	if done, err := db.SealTraces(context.Background(), start+1); err != nil || done.Traces != int(n) || done.Segments != 1 {
		t.Fatalf("%+v, %v", done, err)
	}
	db.DropCaches()
	return db
}

// TestArchivedTracesInOrderAreUnpackedOnce: reading archived traces in the order of their ids opens
// the segment once for each block, however many traces a block has. Reading them in any other order
// opens it at most once for each trace.
func TestArchivedTracesInOrderAreUnpackedOnce(t *testing.T) {
	const n = 40 // of 10 KB: four or more in a block
	fs := &opensFS{FS: vfs.NewMem()}
	db := sealed(t, fs, "store", n)
	fs.bodies.Store(0)
	for i := range uint64(n) {
		tr, err := db.Load(context.Background(), id(i+1))
		if err != nil || string(tr.Documents[0].Data) != noise(i, 250) {
			t.Fatalf("trace %d: %v", i+1, err)
		}
	}
	if opened := fs.bodies.Load(); opened < 4 || opened > n/3 {
		t.Errorf("a segment of %d traces was opened %d times", n, opened)
	}
}

// TestListUnpacksNoBlock: a list of archived traces opens their segment once, to read the segment's
// list, and shows each trace as a read of the trace does. A damaged block does not affect it. A
// damaged list is reported for each trace. A check finds both kinds of damage.
func TestListUnpacksNoBlock(t *testing.T) {
	serial.Test(t)
	const n = 40
	fs := &opensFS{FS: vfs.Default}
	dir := filepath.Join(t.TempDir(), "store")
	db := sealed(t, fs, dir, n)
	list := func() (all []engine.Listed) {
		t.Helper()
		db.DropCaches()
		fs.bodies.Store(0)
		for l, err := range db.Traces(context.Background(), tga.ID{}) {
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, l)
		}
		if opened := fs.bodies.Load(); len(all) != n || opened != 1 && all[0].Err == nil {
			t.Errorf("%d traces, the segment was opened %d times", len(all), opened)
		}
		return all
	}
	all := list()
	for _, l := range all {
		tr, err := db.Load(context.Background(), l.TraceID)
		if err != nil || l.Err != nil || l.Listing != tr.Listing() || l.Tool == "" || l.Key == "" || l.ToolCallID.IsZero() {
			t.Fatalf("%+v, %v", l, err)
		}
	}
	name, b := onlyBody(t, dir)
	at := bytes.LastIndex(b, []byte("LIST"))
	for _, c := range []struct {
		at    int
		shown bool
	}{{at - 1, true}, {at + 20, false}} {
		b[c.at] ^= 1
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
		for i, l := range list() {
			if c.shown != (l == all[i]) || !c.shown && (tga.CodeOf(l.Err) != tga.StateRecoveryFailed || l.TraceID != all[i].TraceID) {
				t.Fatalf("byte %d: trace %d: %+v", c.at, i, l)
			}
		}
		if rep, err := db.Check(context.Background()); err != nil || len(rep.Problems) == 0 {
			t.Errorf("byte %d: %+v, %v", c.at, rep, err)
		}
		b[c.at] ^= 1
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTombstoneOfAnotherEnd: an archived trace whose end differs from its tombstone is neither read
// nor listed.
func TestTombstoneOfAnotherEnd(t *testing.T) {
	db := sealed(t, vfs.NewMem(), "store", 2)
	stone := keyspace.AppendTombstone(nil, id(1))
	row := []byte(db.Rows()[string(stone)])
	db.PutRow(stone, []byte(db.Rows()[string(keyspace.AppendTombstone(nil, id(2)))]))
	db.DropCaches()
	want := func(err error) {
		t.Helper()
		var e *tga.Error
		if !errors.As(err, &e) || e.Code != tga.StateRecoveryFailed || e.TraceID != id(1) || e.WantDigest == e.GotDigest {
			t.Errorf("%+v", err)
		}
	}
	_, err := db.Load(context.Background(), id(1))
	want(err)
	for l, err := range db.Traces(context.Background(), tga.ID{}) {
		if err != nil || (l.Err == nil) != (l.TraceID == id(2)) {
			t.Errorf("%+v, %v", l, err)
		}
		if l.TraceID == id(1) {
			want(l.Err)
		}
	}
	db.PutRow(stone, row)
}

// TestCheckReadsSegmentsPastWhatIsKept: a check reads archive segments from disk, so it finds damage
// even if the cache has an intact copy.
func TestCheckReadsSegmentsPastWhatIsKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	db := sealed(t, vfs.Default, dir, 10)
	for i := range uint64(10) {
		if _, err := db.Load(context.Background(), id(i+1)); err != nil {
			t.Fatal(err)
		}
	}
	check(t, db)
	name, b := onlyBody(t, dir)
	b[len(b)/3] ^= 1
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
	rep, err := db.Check(context.Background())
	if err != nil || len(rep.Problems) == 0 {
		t.Errorf("%+v, %v", rep, err)
	}
	db.DropCaches()
	bad := 0
	for i := range uint64(10) {
		if _, err := db.Load(context.Background(), id(i+1)); tga.CodeOf(err) == tga.StateRecoveryFailed {
			bad++
		}
	}
	if bad == 0 {
		t.Error("every trace reads")
	}
	b[len(b)/3] ^= 1 // the store is checked again when it is closed
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

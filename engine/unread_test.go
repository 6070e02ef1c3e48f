package engine_test

import (
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/schemas/tga"
)

// badSector is how many bytes of one file are lost on a [badSectors].
const badSector = 512

// badSectors is a disk that no longer gives a sector of one file, or gives other bytes.
type badSectors struct {
	vfs.FS
	mu    sync.Mutex
	name  string
	at    int64
	other bool // it gives other bytes
}

func (b *badSectors) Unwrap() vfs.FS { return b.FS }

func (b *badSectors) lose(name string, at int64, other bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.name, b.at, b.other = name, at, other
}

func (b *badSectors) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := b.FS.Open(name, opts...)
	if err != nil {
		return nil, err
	}
	return &badFile{f, b, name}, nil
}

type badFile struct {
	vfs.File
	disk *badSectors
	name string
}

func (f *badFile) ReadAt(p []byte, off int64) (int, error) {
	d := f.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	from, to := max(d.at, off), min(d.at+badSector, off+int64(len(p)))
	if f.name != d.name || from >= to {
		return f.File.ReadAt(p, off)
	}
	if !d.other {
		return 0, syscall.EIO
	}
	n, err := f.File.ReadAt(p, off)
	for i := from; i < min(to, off+int64(n)); i++ {
		p[i-off] ^= 0x55
	}
	return n, err
}

// filesNamed lists the files of a store's log whose names have a suffix.
func filesNamed(t *testing.T, fs vfs.FS, suffix string) (found []string) {
	t.Helper()
	names, err := fs.List("store/log")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, suffix) {
			found = append(found, fs.PathJoin("store/log", name))
		}
	}
	return found
}

// TestUnreadableFileConcernsItselfAlone lets the disk fail to read a sector of one file of the log, or give other bytes.
// The store opens, the other segments are made smaller, what is erased leaves them, and the other traces are listed,
// checked and archived.
func TestUnreadableFileConcernsItselfAlone(t *testing.T) {
	for name, lost := range map[string]struct {
		suffix string
		at     int64
		other  bool
	}{
		"the operations of a segment":         {suffix: "0001", at: 4096 + 512},
		"the operations of a segment, others": {suffix: "0001", at: 4096 + 512, other: true},
		"the bodies of a segment":             {suffix: "0001", at: 4096 + 2048},
		"the bodies of a segment, others":     {suffix: "0001", at: 4096 + 2048, other: true},
		"the header of a body":                {suffix: ".body"},
	} {
		t.Run(name, func(t *testing.T) {
			fs := &badSectors{FS: vfs.NewMem()}
			db := open(t, "store", readable(fs))
			run(t, db, secretive(1, 3<<20), secretive(2, 10)) // the first answer has a file of its own
			bad := filesNamed(t, fs, lost.suffix)[0]
			for n := range uint64(3) {
				if err := db.NextSegment(); err != nil {
					t.Fatal(err)
				}
				run(t, db, secretive(3+n, 10))
			}
			db = fs.again(t, db, bad, lost.at, lost.other)
			if _, err := db.Rewrite(t.Context()); err != nil {
				t.Errorf("rewrite: %v", err)
			}
			if raw := filesNamed(t, fs, "0002"); len(raw) > 0 {
				t.Errorf("not compressed: %s", raw)
			}
			for _, n := range []uint64{3, 4} {
				done, err := db.Erase(t.Context(), engine.Erasure{Traces: []tga.ID{id(n)}, Who: "operator", Reason: "the customer asked for it"})
				wantCode(t, err, tga.StateChecksumMismatch)
				if done.Traces != 1 {
					t.Errorf("erased %+v", done)
				}
				wantErased(t, db, secretive(n, 10))
			}
			if sealed, err := db.SealTraces(t.Context(), start+1); err != nil || sealed.Traces < 3 {
				t.Errorf("archived %+v, %v", sealed, err)
			}
			wantListed(t, db, 5)
			db = fs.again(t, db, "", 0, false) // it was a cable
			if left, err := db.Erasing(); left || err != nil {
				t.Errorf("the erasure is not finished: %v, %v", left, err)
			}
			check(t, db)
		})
	}
}

// TestUnreadableArchiveConcernsItsTracesAlone does so with the file of an archive segment.
func TestUnreadableArchiveConcernsItsTracesAlone(t *testing.T) {
	for _, other := range []bool{false, true} {
		for _, at := range []int64{0, 200, 1000} {
			fs := &badSectors{FS: vfs.NewMem()}
			db := open(t, "store", readable(fs))
			run(t, db, secretive(1, 10), secretive(2, 10))
			if _, err := db.SealTraces(t.Context(), start+1); err != nil {
				t.Fatal(err)
			}
			run(t, db, secretive(3, 10))
			db = fs.again(t, db, filesNamed(t, fs, ".body")[0], at, other)
			if _, err := db.Load(t.Context(), id(1)); tga.CodeOf(err) != tga.StateRecoveryFailed && tga.CodeOf(err) != tga.StateChecksumMismatch {
				t.Errorf("sector %d, %v: load: %v", at, other, err)
			}
			wantListed(t, db, 3)
			if rep, err := db.Check(t.Context()); err != nil || len(rep.Problems) == 0 {
				t.Errorf("sector %d, %v: check: %v, %v", at, other, rep.Problems, err)
			}
		}
	}
}

// again closes the store and opens it on the disk after that sector was lost.
func (b *badSectors) again(t *testing.T, db *engine.DB, name string, at int64, other bool) *engine.DB {
	t.Helper()
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	b.lose(name, at, other)
	db, err := engine.Open("store", readable(b))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// wantListed fails the test unless a list of all traces goes to the end, and has that trace.
func wantListed(t *testing.T, db *engine.DB, n uint64) {
	t.Helper()
	found := false
	for x, err := range db.Traces(t.Context(), tga.ID{}) {
		if code := tga.CodeOf(err); err != nil && code != tga.StateRecoveryFailed && code != tga.StateChecksumMismatch {
			t.Errorf("list: %v", err)
		}
		found = found || err == nil && x.TraceID == id(n)
	}
	if !found {
		t.Errorf("trace %d is not listed", n)
	}
}

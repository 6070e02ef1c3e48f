package engine

import (
	"errors"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/engine/internal/guard"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// TestStoreWithoutItsLog: beside a watermark the log is missing, and beside nothing but what Pebble left
// there is no store. Neither is made a new one.
func TestStoreWithoutItsLog(t *testing.T) {
	for _, readOnly := range []bool{false, true} {
		for _, c := range []struct {
			leave string // in the directory, beside what says nothing
			code  tga.Code
			says  string
		}{
			{guard.WatermarkName, tga.StateChecksumMismatch, "its log is missing"},
			{"marker.manifest.000001.MANIFEST-000001", tga.NotFound, "there is no store"},
		} {
			fs := vfs.NewMem()
			db, err := Open("store", Options{FS: fs})
			if err != nil {
				t.Fatal(err)
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			f, err := fs.Create("store/marker.manifest.000001.MANIFEST-000001", vfs.WriteCategoryUnspecified)
			if err != nil {
				t.Fatal(err)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			names, err := fs.List("store")
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range names {
				if name == c.leave {
					continue
				}
				if err := fs.RemoveAll("store/" + name); err != nil {
					t.Fatal(err)
				}
			}
			if db, err = open("store", Options{FS: fs, Create: true}, openMode{readOnly: readOnly}); err == nil {
				err = db.Close()
			}
			if tga.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.says) {
				t.Errorf("with %s, read-only %v: %v", c.leave, readOnly, err)
			}
			if left, err := fs.List("store"); err != nil || strings.Join(left, " ") != c.leave {
				t.Errorf("with %s, read-only %v: %s is left, %v", c.leave, readOnly, left, err)
			}
		}
	}
}

// TestAppendWithoutEntriesSaysNone: nothing is said of entries where only notes were appended.
func TestAppendWithoutEntriesSaysNone(t *testing.T) {
	s := &step{after: newTestTrace(1), notes: []tga.Note{{Number: 1}}}
	if out := s.appended(); out.Entries != nil || len(out.Notes) != 1 {
		t.Errorf("%+v", out)
	}
}

// spoiling is a disk on which the first open that has come as far as the watermark finds the index spoilt,
// where spoil is set, and fails.
type spoiling struct {
	vfs.FS
	spoil, failed bool
}

func (s *spoiling) Unwrap() vfs.FS { return s.FS }

func (s *spoiling) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	if s.FS.PathBase(name) != guard.WatermarkName || s.failed {
		return s.FS.OpenReadWrite(name, c, opts...)
	}
	s.failed = true
	if s.spoil {
		f, err := s.FS.Create("store/"+indexName+"/"+spoiltName, vfs.WriteCategoryUnspecified)
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
	}
	return nil, errors.New("the disk says no")
}

// TestOpenThatSpoiltTheIndexIsTriedAgain, with an index that is made anew. One that failed for another
// reason is not.
func TestOpenThatSpoiltTheIndexIsTriedAgain(t *testing.T) {
	for _, spoil := range []bool{true, false} {
		disk := &spoiling{FS: vfs.NewMem(), spoil: spoil, failed: true}
		db, err := Open("store", Options{FS: disk})
		if err == nil {
			err = db.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		disk.failed = false
		if db, err = Open("store", Options{FS: disk}); err == nil {
			err = db.Close()
		}
		if (err == nil) != spoil || !disk.failed {
			t.Errorf("spoilt %v: %v", spoil, err)
		}
		if (indexDir{disk.FS, disk.PathJoin("store", indexName)}).spoilt() {
			t.Error("the index is still spoilt")
		}
	}
}

// TestIndexThatKnowsMoreThanItsLog: a log and a watermark of an earlier day are sound in themselves. The index
// that lies beside them says that acknowledged records are missing, and the store opens frozen.
func TestIndexThatKnowsMoreThanItsLog(t *testing.T) {
	then, now := vfs.NewMem(), vfs.NewMem()
	use := func(fs vfs.FS, frozen string) {
		t.Helper()
		db, err := Open("store", Options{FS: fs, RewriteShare: -1})
		if err != nil {
			t.Fatal(err)
		}
		if s := db.Stats(); (s.Frozen == "") != (frozen == "") || !strings.Contains(s.Frozen, frozen) {
			t.Errorf("frozen: %q, want %q", s.Frozen, frozen)
		}
		if frozen == "" {
			w := db.commits.newWriter()
			w.set([]byte("mx"), []byte("a value"))
			if err := db.commits.apply(w); err != nil {
				t.Fatal(err)
			}
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	use(now, "")
	if ok, err := vfs.Clone(now, then, "store", "store"); !ok || err != nil {
		t.Fatal(ok, err)
	}
	use(now, "")
	if err := then.RemoveAll("store/" + indexName); err != nil {
		t.Fatal(err)
	}
	if ok, err := vfs.Clone(now, then, "store/"+indexName, "store/"+indexName); !ok || err != nil {
		t.Fatal(ok, err)
	}
	use(then, "the index knows group")
}

// TestTraceThatEndsAtOnceIsNeverOpen: its append says nothing of the open traces. One that was open is taken
// out of them, one that is open has its place.
func TestTraceThatEndsAtOnceIsNeverOpen(t *testing.T) {
	db := inMemory(t)
	for _, c := range []struct {
		before uint64
		state  tga.State
		want   bool
	}{
		{0, tga.Denied, false}, {1, tga.Denied, true}, {0, tga.Pending, true}, {1, tga.Executing, true},
	} {
		before, after := newTestTrace(1), newTestTrace(1)
		before.Head.Seq, after.Head.State = c.before, c.state
		after.Entries = []tga.LogEntry{{}}
		w := db.commits.newWriter()
		w.openIndex(&step{before: fold{Trace: before}, after: after, entries: []chain.Entry{{}}})
		if n := w.ops.Len(); (n > 0) != c.want {
			t.Errorf("%s after seq %d: %d bytes of operations", c.state, c.before, n)
		}
		if err := w.end(new(commitment)); err != nil {
			t.Fatal(err)
		}
	}
}

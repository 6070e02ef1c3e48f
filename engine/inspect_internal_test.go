package engine

import (
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/engine/internal/guard"
	"github.com/tgad/tgad/schemas/tga"
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

package evidence_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/evidence"
	"github.com/tgad/tgad/internal/evidence/checkpoint"
	"github.com/tgad/tgad/schemas/tga"
)

// TestDamagedEvidenceIsFoundAtRest flips a bit of each byte of each file of the evidence, and cuts each file
// at each length. Only damage of the newest checkpoint may pass for the work of a crash: somebody who has
// this checkpoint outside of the store can tell.
func TestDamagedEvidenceIsFoundAtRest(t *testing.T) {
	s := newStand(t)
	s.open()
	s.append(1)
	s.covered()
	dir := filepath.Join(s.dir, "evidence")
	early, err := os.Stat(filepath.Join(dir, checkpoint.FileName))
	if err != nil {
		t.Fatal(err)
	}
	s.append(2)
	s.close()
	db, err := engine.OpenReadOnly(s.dir, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := evidence.Verify(t.Context(), db, s.dir); err != nil {
		t.Fatal(err)
	}
	for name, was := range files(t, dir) {
		path, missed := filepath.Join(dir, name), 0
		try := func(what string, at int, now []byte) {
			if err := os.WriteFile(path, now, 0o600); err != nil {
				t.Fatal(err)
			}
			err := evidence.Verify(t.Context(), db, s.dir)
			if code := tga.CodeOf(err); code != tga.StateChecksumMismatch && code != tga.PermissionDenied {
				if missed++; missed <= 3 {
					t.Errorf("%s of %d bytes, %s %d: %v", name, len(was), what, at, err)
				}
			}
		}
		for i := range was {
			if name == checkpoint.FileName && int64(i) >= early.Size() || name == "key" && was[i] == '\n' {
				break
			}
			now := []byte(was)
			now[i] ^= 0x01
			try("flipped", i, now)
			if name != checkpoint.FileName {
				try("cut", i, []byte(was[:i]))
			}
		}
		if missed > 0 {
			t.Errorf("%s: %d in all", name, missed)
		}
		if err := os.WriteFile(path, []byte(was), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name := range files(t, dir) { // a missing file is made again
		path := filepath.Join(dir, name)
		was, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := evidence.Verify(t.Context(), db, s.dir); err != nil {
			t.Errorf("without %s: %v", name, err)
		}
		if err := os.WriteFile(path, bytes.Clone(was), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

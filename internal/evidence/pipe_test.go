//go:build unix

package evidence_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/evidence"
)

// TestPipeIsNoEvidence: a pipe in the place of a file of the evidence is refused, by the check of a store at rest and by the keeper
// of an open one. To read it would wait for somebody who writes.
func TestPipeIsNoEvidence(t *testing.T) {
	s := newStand(t)
	s.open()
	s.append(1)
	s.covered()
	s.close()
	kept := files(t, filepath.Join(s.dir, "evidence"))
	if len(kept) < 4 {
		t.Fatalf("%d files", len(kept))
	}
	for name, was := range kept {
		path := filepath.Join(s.dir, "evidence", name)
		if err := errors.Join(os.Remove(path), syscall.Mkfifo(path, 0o600)); err != nil {
			t.Fatal(err)
		}
		db, err := engine.OpenReadOnly(s.dir, engine.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := evidence.Verify(t.Context(), db, s.dir); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s at rest: %v", name, err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
		// The keeper writes the key anew.
		if err := s.tryOpen(); err == nil && name != "key" {
			t.Errorf("a keeper opened %s", name)
			s.close()
		} else if name == "key" {
			s.close()
		} else if !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", name, err)
		}
		if err := errors.Join(os.Remove(path), os.WriteFile(path, []byte(was), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}

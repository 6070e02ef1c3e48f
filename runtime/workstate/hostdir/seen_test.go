package hostdir_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/tgad/tgad/runtime/workstate/hostdir"
	"github.com/tgad/tgad/schemas/tga"
)

// TestRestoreOfWhatWasSeen: a restore that is bound to a snapshot changes nothing if the directory
// differs from that snapshot, also if somebody changes it while the new contents are written under
// other names. A restore without that bond would delete a person's work.
func TestRestoreOfWhatWasSeen(t *testing.T) {
	d := open(t, hostdir.Options{})
	dir := d.Path()
	at := func(name string) string { return filepath.Join(dir, name) }
	must(t, os.WriteFile(at("a"), []byte("1"), 0o644), os.WriteFile(at("b"), []byte("1"), 0o644))
	first := snapshot(t, d)
	edits := map[string]func(){
		"written":   func() { must(t, os.WriteFile(at("a"), []byte("mine"), 0o644)) },
		"made":      func() { must(t, os.WriteFile(at("mine"), nil, 0o644)) },
		"removed":   func() { must(t, os.Remove(at("b"))) },
		"of a mode": func() { must(t, os.Chmod(at("b"), 0o600)) },
	}
	for name, edit := range edits {
		for _, when := range []string{"before", "while staged"} {
			must(t, os.WriteFile(at("a"), []byte("2"), 0o644), os.WriteFile(at("b"), []byte("1"), 0o644), os.Chmod(at("b"), 0o644), os.RemoveAll(at("mine")))
			seen := snapshot(t, d)
			if when == "before" {
				edit()
			} else {
				done := false
				d.SetFault(func(op, _ string, after bool) error {
					if op == "write" && after && !done {
						done = true
						edit()
					}
					return nil
				})
			}
			err := d.RestoreFrom(t.Context(), seen, first)
			d.SetFault(nil)
			was := tree(t, dir)
			if name == "made" && when == "while staged" {
				// It came when everything had been looked at: it is not in the way, and stays.
				if err != nil || was["mine"] == "" {
					t.Errorf("made while staged: %v, %v", was, err)
				}
				continue
			}
			if !errors.Is(err, tga.StateConflict) {
				t.Errorf("%s %s: %v", name, when, err)
			}
			if got, err := os.ReadFile(at("a")); err != nil || string(got) == "1" {
				t.Errorf("%s %s: restored all the same: %q, %v", name, when, got, err)
			}
			if name == "made" && was["mine"] == "" {
				t.Errorf("%s %s: what was made is gone: %v", name, when, was)
			}
		}
	}
	must(t, os.WriteFile(at("a"), []byte("2"), 0o644), os.WriteFile(at("b"), []byte("1"), 0o644), os.Chmod(at("b"), 0o644), os.RemoveAll(at("mine")))
	must(t, d.RestoreFrom(t.Context(), snapshot(t, d), first))
	if got, err := os.ReadFile(at("a")); err != nil || string(got) != "1" {
		t.Errorf("restored to %q, %v", got, err)
	}
	id, err := hostdir.SnapshotID(first)
	must(t, err)
	again, err := hostdir.SnapshotOf(id)
	if err != nil || again.Digest() != first.Digest() {
		t.Errorf("the snapshot of %s is %v, %v", id, again, err)
	}
	if _, err := hostdir.SnapshotOf("HEAD"); !errors.Is(err, tga.SnapshotMismatch) {
		t.Errorf("no snapshot's id: %v", err)
	}
}

package evidence_test

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/internal/evidence"
	"github.com/tgad/tgad/internal/evidence/bundle"
	"github.com/tgad/tgad/internal/ndjson"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// TestAttacks is the table of docs/EVIDENCE.md: what somebody who can write to the whole disk may try, what
// the store's own chain says about it, and what a reader with an older checkpoint says.
func TestAttacks(t *testing.T) {
	s := newStand(t)
	empty, honest := filepath.Join(t.TempDir(), "empty"), filepath.Join(t.TempDir(), "honest")
	s.open()
	s.close()
	copyDir(t, s.dir, empty)
	s.open()
	victim := s.append(1)
	s.append(2)
	_, old := s.covered()
	s.close()
	copyDir(t, s.dir, honest)
	signed, err := os.ReadFile(s.outside())
	if err != nil {
		t.Fatal(err)
	}
	// anew makes the store again from an older copy, without the key, with the appends of f.
	anew := func(f func()) {
		copyDir(t, empty, s.dir)
		var err error
		if s.db, err = engine.Open(s.dir, engine.Options{FirstSegmentBytes: 1 << 20, SegmentBytes: 1 << 20}); err != nil {
			t.Fatal(err)
		}
		f()
		if err := s.db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, a := range []struct {
		name    string
		attack  func()
		chain   bool   // whether the chain finds it
		frozen  string // why the store opens frozen, "" = it does not
		code    tga.Code
		verdict string // the verdict on its later export, by a reader with the old checkpoint
	}{
		{name: "nothing", attack: func() { copyDir(t, honest, s.dir) }, verdict: bundle.Proved},
		{name: "an entry is changed", attack: func() {
			copyDir(t, honest, s.dir)
			replaceIn(t, filepath.Join(s.dir, "log"), `"amount":12`, `"amount":13`)
		}, chain: true},
		{name: "the end of a trace is cut off", attack: func() {
			anew(func() { s.appendMade(chaintest.Options{Seed: 1}, 3); s.append(2) })
		}, frozen: "the store was rolled back"},
		{name: "a trace is taken out", attack: func() { anew(func() { s.append(2) }) }, frozen: "the store was rolled back"},
		{name: "a trace is taken out, and another put in", attack: func() { anew(func() { s.append(2); s.append(3) }) }, frozen: "what happened was rewritten"},
		{name: "an entry is changed and the chain made anew", attack: func() {
			anew(func() { s.appendMade(chaintest.Options{Seed: 1, Args: `{"amount":13}`}, 4); s.append(2) })
		}, frozen: "what happened was rewritten"},
		{name: "a record is forged behind the others", attack: func() {
			copyDir(t, honest, s.dir)
			s.options.Signer, s.options.Places = newKey(t), nil // a key of the attacker's own
			s.db, err = engine.Open(s.dir, engine.Options{FirstSegmentBytes: 1 << 20, SegmentBytes: 1 << 20})
			if err != nil {
				t.Fatal(err)
			}
			lease, err := s.db.Acquire(t.Context(), victim)
			if err == nil {
				_, err = s.db.Append(t.Context(), lease, chain.Batch{Notes: []chain.NewNote{{Kind: tga.NoteLateReply, Who: "me", Body: []byte(`{"attempt":9}`)}}})
			}
			if err == nil {
				err = s.db.Close()
			}
			if err != nil {
				t.Fatal(err)
			}
		}, code: tga.PermissionDenied},
		{name: "directory and checkpoints are rolled back", attack: func() { copyDir(t, empty, s.dir) }, frozen: "the store was rolled back"},
		{name: "everything is rewritten, with the key", attack: func() {
			anew(func() { s.appendMade(chaintest.Options{Seed: 1, Args: `{"amount":13}`}, 4); s.append(2) })
			if err := os.Remove(s.outside()); err != nil {
				t.Fatal(err)
			}
		}, code: tga.StateChecksumMismatch},
	} {
		t.Run(a.name, func(t *testing.T) {
			options := s.options
			defer func() { s.options = options }()
			if err := os.WriteFile(s.outside(), signed, 0o600); err != nil {
				t.Fatal(err)
			}
			a.attack()
			if found := chainFinds(t, s.dir); found != a.chain {
				t.Fatalf("the chain finds it: %v", found)
			}
			if a.chain {
				return
			}
			if err := s.tryOpen(); err != nil {
				// Only a key that is not the store's is refused at once.
				if a.code == "" || tga.CodeOf(err) != a.code {
					t.Fatal(err)
				}
				return
			}
			defer s.close()
			if why := s.db.Stats().Frozen; (a.frozen == "") != (why == "") || !strings.Contains(why, a.frozen) {
				t.Fatalf("frozen for %q, want %q", why, a.frozen)
			}
			if a.frozen != "" {
				return
			}
			_, _ = s.covered()
			var file bytes.Buffer
			err := s.k.Export(t.Context(), &file, evidence.Wanted{}, func(w io.Writer, ids []tga.ID) error {
				for _, id := range ids {
					if err := ndjson.Write(w, id, s.db.Entries(t.Context(), id, 0), s.db.Notes(t.Context(), id, 0)); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			report, err := bundle.Verify(&file, bundle.Trust{Key: s.options.Signer.Public, Old: old})
			switch {
			case a.verdict != "" && (err != nil || report.Verdict() != a.verdict):
				t.Errorf("%s, %v", report.Verdict(), err)
			case a.verdict == "" && tga.CodeOf(err) != a.code:
				t.Errorf("who holds the old checkpoint is told %s, %v", report.Verdict(), err)
			}
		})
	}
}

// chainFinds reports whether the store's own check, or its open, finds a fault.
func chainFinds(t *testing.T, dir string) bool {
	t.Helper()
	db, err := engine.OpenReadOnly(dir, engine.Options{})
	if err != nil {
		return true
	}
	defer db.Close()
	if db.Stats().Frozen != "" && !strings.Contains(db.Stats().Frozen, "read-only") {
		return true
	}
	report, err := db.Check(t.Context())
	return err != nil || len(report.Problems) > 0
}

// replaceIn replaces a text, once, in a file of a directory.
func replaceIn(t *testing.T, dir, old, now string) {
	t.Helper()
	names, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		path := filepath.Join(dir, n.Name())
		raw, err := os.ReadFile(path)
		if err == nil && bytes.Contains(raw, []byte(old)) {
			if err := os.WriteFile(path, bytes.Replace(raw, []byte(old), []byte(now), 1), 0o600); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatalf("no file of %s has %s", dir, old)
}

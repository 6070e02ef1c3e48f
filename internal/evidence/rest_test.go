package evidence_test

import (
	"bytes"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/evidence"
	"github.com/tgad/tgad/internal/evidence/bundle"
	"github.com/tgad/tgad/internal/evidence/checkpoint"
	"github.com/tgad/tgad/internal/ndjson"
	"github.com/tgad/tgad/schemas/tga"
)

// files returns the content of every file of a directory.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := os.ReadFile(filepath.Join(dir, path))
		out[path] = string(raw)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// atRest reads the evidence of a store that no process has open.
func (s *stand) atRest(do func(db *engine.DB, k *evidence.Keeper, err error)) {
	s.Helper()
	db, err := engine.OpenReadOnly(s.dir, engine.Options{})
	if err != nil {
		s.Fatal(err)
	}
	k, err := evidence.Read(s.Context(), db, s.dir, nil)
	do(db, k, err)
	if err := db.Close(); err != nil {
		s.Fatal(err)
	}
}

func TestStoreAtRest(t *testing.T) {
	s := newStand(t)
	former := s.options.Signer
	s.open()
	id := s.append(1)
	s.close()
	s.options.Signer, s.options.Former = newKey(t), &former // reading accepts a hand-over too
	s.open()
	s.append(2)
	s.close()
	evidenceDir := filepath.Join(s.dir, "evidence")
	before := files(t, evidenceDir)
	s.atRest(func(db *engine.DB, k *evidence.Keeper, err error) {
		if err != nil {
			t.Fatal(err)
		}
		r, err := k.Receipt(t.Context(), id)
		if err != nil || r.Pending() != 0 || r.Key != former.Public || len(r.HandOvers) != 1 {
			t.Errorf("%+v, %v", r, err)
		}
		var file bytes.Buffer
		err = k.Export(t.Context(), &file, evidence.Wanted{}, func(w io.Writer, ids []tga.ID) error {
			for _, id := range ids {
				if err := ndjson.Write(w, id, db.Entries(t.Context(), id, 0), db.Notes(t.Context(), id, 0)); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if report, err := bundle.Verify(&file, bundle.Trust{Key: former.Public}); err != nil || report.Verdict() != bundle.Proved || len(report.Traces) != 2 {
			t.Errorf("%+v, %v", report, err)
		}
	})
	for name, was := range files(t, evidenceDir) {
		if before[name] != was {
			t.Errorf("%s was written", name)
		}
	}
	other := newKey(t)
	for name, c := range map[string]struct {
		file, text string
		code       tga.Code
	}{
		"another key": {"key", other.Public + "\n", tga.PermissionDenied},
		"no key":      {"key", "x\n", tga.StateChecksumMismatch},
		"without key": {"key", "", tga.NotFound},
		"no notes":    {checkpoint.FileName, "", tga.NotFound},
	} {
		path := filepath.Join(evidenceDir, c.file)
		err := os.WriteFile(path, []byte(c.text), 0o600)
		if c.text == "" {
			err = os.Remove(path)
		}
		if err != nil {
			t.Fatal(err)
		}
		s.atRest(func(_ *engine.DB, _ *evidence.Keeper, err error) {
			if tga.CodeOf(err) != c.code {
				t.Errorf("%s: %v, want %s", name, err, c.code)
			}
		})
		if err := os.WriteFile(path, []byte(before[c.file]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// The log of another store under these checkpoints.
	twin := newStand(t)
	twin.options.Signer = former
	twin.open()
	twin.append(9)
	twin.append(8)
	twin.close()
	for _, name := range []string{"key", checkpoint.FileName} {
		if err := os.WriteFile(filepath.Join(twin.dir, "evidence", name), []byte(before[name]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	twin.atRest(func(_ *engine.DB, _ *evidence.Keeper, err error) {
		if tga.CodeOf(err) != tga.StateChecksumMismatch || !strings.Contains(err.Error(), "rewritten") {
			t.Errorf("another log: %v", err)
		}
	})
}

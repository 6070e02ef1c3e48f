package engine_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/schemas/tga"
)

// TestVerifyOfABackupReadsEveryByte changes one bit in each file of a backup, at many places, and verifies it.
// A restore would refuse the file, so verify must not call it whole: that is found out too late.
func TestVerifyOfABackupReadsEveryByte(t *testing.T) {
	serial.Test(t)
	o := options(nil)
	root := t.TempDir()
	copied := filepath.Join(root, "copy")
	db := open(t, filepath.Join(root, "store"), o)
	for i := range uint64(20) {
		run(t, db, spec{trace: id(i + 1)})
	}
	if err := db.Backup(t.Context(), copied); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if !whole(t, copied, o) {
		t.Fatal("the backup does not verify as it was made")
	}
	files, err := filepath.Glob(filepath.Join(copied, "log", "*"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		missed := 0
		for n := range 60 {
			at, bit := random.IntN(len(b)), byte(1)<<random.IntN(8)
			switch n {
			case 0:
				at = 0
			case 1:
				at = len(b) - 1
			}
			b[at] ^= bit
			if err := os.WriteFile(name, b, 0o600); err != nil {
				t.Fatal(err)
			}
			if whole(t, copied, o) {
				if missed++; missed < 4 {
					t.Errorf("%s: a changed bit at %d of %d is not found", filepath.Base(name), at, len(b))
				}
			}
			b[at] ^= bit
		}
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if missed > 0 {
			t.Errorf("%s: %d of 60 changes are not found", filepath.Base(name), missed)
		}
	}
}

// whole reports whether a store verifies as tgad verify says it: nothing is wrong, and it is frozen only
// because it is open for reading.
func whole(t *testing.T, dir string, o engine.Options) bool {
	t.Helper()
	db, err := engine.OpenReadOnly(dir, o)
	if err != nil {
		return false
	}
	rep, err := db.Check(t.Context())
	now := db.Stats()
	if cerr := db.Close(); cerr != nil {
		t.Fatal(cerr)
	}
	return err == nil && len(rep.Problems) == 0 && strings.HasPrefix(now.Frozen, string(tga.PermissionDenied))
}

package engine_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/crashtest/crashmem"
	"github.com/tgad/tgad/schemas/tga"
)

// The tests in this file hold what the store gets wrong today, because the log in which the
// mend belongs is still Pebble's. Each says what is right, and fails as soon as the store
// does it: then the comparison is to be turned round.

// killed returns the disk of a store that was killed after a few calls. Stores of different
// seeds differ in their keys only, so their logs have the same names and lengths.
func killed(t *testing.T, seed uint64) *crashmem.FS {
	t.Helper()
	disk := crashmem.New()
	db, err := engine.Open("store", options(disk))
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint64(20) {
		run(t, db, spec{trace: id(seed*100 + i), key: fmt.Sprintf("key-%03d", seed*100+i)})
	}
	clone := disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: newRand(seed)})
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return clone
}

func content(t *testing.T, fs vfs.FS, name string) []byte {
	t.Helper()
	f, err := fs.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func replace(t *testing.T, fs vfs.FS, name string, b []byte) {
	t.Helper()
	f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func logsOf(t *testing.T, fs vfs.FS) (names []string) {
	t.Helper()
	all, err := fs.List("store")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range all {
		if strings.HasSuffix(name, ".log") {
			names = append(names, "store/"+name)
		}
	}
	slices.Sort(names)
	return names
}

// TestWaitingSwappedLogsAreTaken. Right: a log of another store refuses the open, or opens
// it frozen; a call whose record is missing must not be sent again. Pebble's logs do not say
// whose they are.
func TestWaitingSwappedLogsAreTaken(t *testing.T) {
	a, b := killed(t, 1), killed(t, 2)
	ofA, ofB := logsOf(t, a), logsOf(t, b)
	if len(ofA) == 0 || strings.Join(ofA, " ") != strings.Join(ofB, " ") {
		t.Fatalf("logs %v and %v", ofA, ofB)
	}
	for _, name := range ofA {
		replace(t, a, name, content(t, b, name))
	}
	db, err := engine.Open("store", options(a))
	if err != nil {
		t.Fatalf("mended: %v. The store must be refused or frozen from now on", err)
	}
	defer func() { _ = db.Close() }() // its calls are another store's
	if s := db.Stats(); s.Frozen != "" {
		t.Fatalf("mended: %s. The store must be refused or frozen from now on", s.Frozen)
	}
	rec, err := db.Record(t.Context(), spec{trace: id(100), key: "key-100"}.ledgerKey())
	if err == nil && rec != nil {
		t.Error("the store has its own record although its log is gone")
	}
}

// TestWaitingDamageInTheMiddleRefuses. Right: a store whose loss can be seen opens frozen,
// and what is left can be read (docs/OPERATIONS.md). Pebble refuses to open a log with a
// damaged record before its last.
func TestWaitingDamageInTheMiddleRefuses(t *testing.T) {
	sound := killed(t, 3)
	refused, frozen, harmless := 0, 0, 0
	for _, name := range logsOf(t, sound) {
		whole := content(t, sound, name)
		for at := 64; at < len(whole); at += 509 {
			disk := sound.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: newRand(1)})
			bad := append([]byte(nil), whole...)
			if bad[at] == 0 {
				continue // zeros filled ahead are no record
			}
			bad[at] ^= 0xff
			replace(t, disk, name, bad)
			db, err := engine.Open("store", options(disk))
			if err != nil {
				wantCode(t, err, tga.StateChecksumMismatch)
				refused++
				continue
			}
			if db.Stats().Frozen != "" {
				frozen++
			} else {
				harmless++
				for i := range uint64(20) {
					if st, err := db.State(t.Context(), id(300+i)); err != nil || st.LastSeq != 4 {
						t.Errorf("byte %d of %s: taken for whole, and trace %d is at %d, %v", at, name, i, st.LastSeq, err)
					}
				}
			}
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	t.Logf("refused %d, frozen %d, nothing lost %d", refused, frozen, harmless)
	if refused == 0 {
		t.Errorf("mended: every one of %d opens frozen. Hold refused at 0 from now on", frozen)
	}
}

// TestWaitingEmptyStoreIsLarge. Right: an empty store takes at most 8 MiB (a first segment
// of 4 MiB). Today three logs are filled with zeros ahead and four memtables' worth of ballast
// is laid.
func TestWaitingEmptyStoreIsLarge(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	db, err := engine.Open(dir, engine.Options{LowWaterBytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	var size int64
	err = filepath.Walk(dir, func(_ string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() {
			size += info.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("an empty store takes %.1f MiB", float64(size)/(1<<20))
	if size <= 8<<20 {
		t.Error("mended: hold it at 8 MiB from now on")
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}

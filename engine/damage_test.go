package engine_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/crashtest/crashmem"
	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/schemas/tga"
)

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
	// Under the race detector the file system in memory writes into what it is given.
	if _, err := f.Write(bytes.Clone(b)); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func logsOf(t *testing.T, fs vfs.FS) []string { return filesOf(t, fs, "log") }

// TestSwappedLogsAreNotTaken gives a store the log of another one, of the same files and
// lengths: a call whose record is missing must not be sent again.
func TestSwappedLogsAreNotTaken(t *testing.T) {
	a, b := killed(t, 1), killed(t, 2)
	ofA, ofB := logsOf(t, a), logsOf(t, b)
	for _, name := range ofA {
		if err := a.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range ofB {
		replace(t, a, name, content(t, b, name))
	}
	db, err := engine.Open("store", options(a))
	if err != nil {
		wantCode(t, err, tga.StateChecksumMismatch)
		return
	}
	defer func() { _ = db.Close() }() // its calls are another store's
	if s := db.Stats(); s.Frozen == "" {
		t.Fatal("the store takes the log of another one for its own")
	}
}

// TestDamageInTheMiddleFreezes: a store whose loss can be seen opens frozen, and what is
// left can be read (docs/OPERATIONS.md).
func TestDamageInTheMiddleFreezes(t *testing.T) {
	serial.Test(t)
	sound := killed(t, 3)
	frozen, harmless, shown := 0, 0, 0
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
				t.Errorf("byte %d of %s: refused: %v", at, name, err)
				continue
			}
			report, err := db.Check(t.Context())
			switch {
			case db.Stats().Frozen != "":
				frozen++
			case err != nil || len(report.Problems) > 0:
				shown++ // a body, which the chain of records does not cover
			default:
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
	t.Logf("frozen %d, shown by a check %d, nothing lost %d", frozen, shown, harmless)
	if frozen == 0 || shown == 0 {
		t.Errorf("frozen %d, shown %d", frozen, shown)
	}
}

// TestDamageOfTheLogShowsInACheck: a record that is damaged while the store is open is a problem of the
// log that the check names, beside what the order lacks for it.
func TestDamageOfTheLogShowsInACheck(t *testing.T) {
	fs := vfs.NewMem()
	db := open(t, "store", options(fs))
	run(t, db, spec{trace: id(1)}, spec{trace: id(2)})
	all, _ := moments(t, fs, "store/log")
	at := all[len(all)-3].at // two more follow the damaged one
	name := logsOf(t, fs)[0]
	whole := content(t, fs, name)
	bad := bytes.Clone(whole)
	bad[at.End] ^= 0xff
	overwriteInPlace(t, fs, name, bad)
	rep, err := db.Check(t.Context())
	if err != nil || len(rep.Problems) != 2 {
		t.Fatalf("%+v, %v", rep, err)
	}
	for i, says := range []string{"is missing: there is a later one", "the last append is 2, 4 was durable"} {
		if got := rep.Problems[i].String(); !strings.Contains(got, says) {
			t.Errorf("%q, want %q", got, says)
		}
	}
	overwriteInPlace(t, fs, name, whole)
}

func overwriteInPlace(t *testing.T, fs vfs.FS, name string, b []byte) {
	t.Helper()
	f, err := fs.OpenReadWrite(name, vfs.WriteCategoryUnspecified)
	if err == nil {
		_, err = f.WriteAt(b, 0)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestWatermarkOfAnotherEndFreezes: two ends of one log have a group of one number. With the watermark
// of the one the other opens frozen: what was acknowledged is not in it.
func TestWatermarkOfAnotherEndFreezes(t *testing.T) {
	for _, indexed := range []bool{true, false} {
		common := crashmem.New()
		db, err := engine.Open("store", options(common))
		if err != nil {
			t.Fatal(err)
		}
		run(t, db, spec{trace: id(1)})
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		var ends [2]*crashmem.FS
		for i := range ends {
			ends[i] = common.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: newRand(1)})
			db, err := engine.Open("store", options(ends[i]))
			if err != nil {
				t.Fatal(err)
			}
			run(t, db, spec{trace: id(uint64(10 + i))})
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
		}
		replace(t, ends[0], "store/WATERMARK", content(t, ends[1], "store/WATERMARK"))
		if !indexed {
			if err := ends[0].RemoveAll("store/index"); err != nil {
				t.Fatal(err)
			}
		}
		db, err = engine.Open("store", options(ends[0]))
		if err != nil {
			t.Fatal(err)
		}
		if why := db.Stats().Frozen; !strings.Contains(why, "is not the one that was acknowledged") {
			t.Errorf("with an index %v: frozen %q", indexed, why)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestEmptyStoreIsSmall holds what a new store takes on disk at 8 MiB.
func TestEmptyStoreIsSmall(t *testing.T) {
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
	if size > 8<<20 {
		t.Errorf("an empty store takes %.1f MiB", float64(size)/(1<<20))
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}

package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/crashtest/crashmem"
	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/schemas/tga"
)

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 11)) }

// copyTree copies the files of a closed store.
func copyTree(t *testing.T, from, to string) {
	t.Helper()
	if err := os.RemoveAll(to); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	err := filepath.Walk(to, func(path string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() {
			err = os.Chmod(path, 0o600)
		} else if err == nil {
			err = os.Chmod(path, 0o700)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestWitnessKnowsTheNewestDirectory: a copied or rolled back directory is refused. The error names
// commands that help, and these commands work.
func TestWitnessKnowsTheNewestDirectory(t *testing.T) {
	top := t.TempDir()
	dir, old, elsewhere := filepath.Join(top, "store"), filepath.Join(top, "old"), filepath.Join(top, "elsewhere")
	if err := os.Mkdir(elsewhere, 0o700); err != nil {
		t.Fatal(err)
	}
	o := plain
	o.WitnessFile = filepath.Join(elsewhere, "witness")
	call := func(n uint64) {
		t.Helper()
		db, err := engine.Open(dir, o)
		if err != nil {
			t.Fatal(err)
		}
		run(t, db, spec{trace: id(n)})
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	call(1)
	call(2)
	copyTree(t, dir, old)
	call(3)

	// Rolled back.
	newest := filepath.Join(top, "newest")
	copyTree(t, dir, newest)
	copyTree(t, old, dir)
	_, err := reopen(dir, o)
	wantCode(t, err, tga.StateChecksumMismatch)
	for _, want := range []string{"rolled back", "tgad init --data " + dir, "tgad restore " + dir} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
	if db, err := engine.OpenReadOnly(dir, o); err != nil {
		t.Errorf("for reading: %v", err)
	} else if err := db.Close(); err != nil {
		t.Error(err)
	}

	// A copy that was opened elsewhere, as often as the original.
	alone := o
	alone.WitnessFile = filepath.Join(elsewhere, "witness of the copy")
	if err := engine.Witness(dir, alone); err != nil {
		t.Error(err)
	}
	_, err = reopen(dir, o)
	wantCode(t, err, tga.StateChecksumMismatch)
	if !strings.Contains(err.Error(), "another way") {
		t.Error(err)
	}

	// Lost altogether: a new store must not take its place, nor an emptied one.
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	create := o
	create.Create = true
	_, err = reopen(dir, create)
	wantCode(t, err, tga.NotFound)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	_, err = reopen(dir, create)
	wantCode(t, err, tga.NotFound)

	// The ways out: the newest is back; an older one is restored, or declared the newest.
	copyTree(t, newest, dir)
	call(4)
	restored := filepath.Join(top, "restored")
	if err := engine.Restore(t.Context(), old, restored, o); err != nil {
		t.Fatal(err)
	}
	_, err = reopen(restored, o)
	wantCode(t, err, tga.StateChecksumMismatch) // the witness is of the other store
	if err := engine.Witness(restored, o); err != nil {
		t.Fatal(err)
	}
	if _, err := reopen(restored, o); err != nil {
		t.Error(err)
	}
	if err := engine.Witness(old, o); err != nil {
		t.Fatal(err)
	}
	if _, err := reopen(old, o); err != nil {
		t.Error(err)
	}

	// A copy from while the store was open is older than the store that was closed since.
	db, err := engine.Open(old, o)
	if err != nil {
		t.Fatal(err)
	}
	running := filepath.Join(top, "running")
	if err := db.Backup(context.Background(), running); err != nil {
		t.Error(err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
	_, err = reopen(running, o)
	wantCode(t, err, tga.StateChecksumMismatch)

	// A witness that is gone is no proof that there never was one.
	if err := os.Remove(o.WitnessFile); err != nil {
		t.Fatal(err)
	}
	_, err = reopen(old, o)
	wantCode(t, err, tga.StoreUnavailable)
	if err := os.RemoveAll(elsewhere); err != nil {
		t.Fatal(err)
	}
	_, err = reopen(old, o)
	wantCode(t, err, tga.StoreUnavailable)
	// Without one configured the store opens, and does not forget the token it had.
	if _, err := reopen(old, plain); err != nil {
		t.Error(err)
	}
}

// TestWitnessOfOneStoreAtATime: while a store is open, no copy of it can be opened, wherever it lies.
func TestWitnessOfOneStoreAtATime(t *testing.T) {
	top := t.TempDir()
	dir, copied := filepath.Join(top, "store"), filepath.Join(top, "copy")
	o := plain
	o.WitnessFile = filepath.Join(top, "witness")
	if _, err := reopen(dir, o); err != nil {
		t.Fatal(err)
	}
	copyTree(t, dir, copied)
	db := open(t, dir, o)
	_, err := reopen(copied, o)
	wantCode(t, err, tga.StateLockAcquireFailed)
	wantCode(t, engine.Witness(copied, o), tga.StateLockAcquireFailed)
	if err := db.Close(); err != nil {
		t.Error(err)
	}
	_, err = reopen(copied, o)
	wantCode(t, err, tga.StateChecksumMismatch)
	o.WitnessFile = filepath.Join(dir, "witness")
	_, err = reopen(dir, o)
	wantCode(t, err, tga.ValidationError)
}

// TestWitnessBehindALink: the witness stays where the link leads, on another disk for example, and counts by
// each of its names. While it is not there, as on a disk that is not mounted, the store does not open.
func TestWitnessBehindALink(t *testing.T) {
	top := t.TempDir()
	at := func(name string) string { return filepath.Join(top, name) }
	o := plain
	o.WitnessFile = at("witness")
	if _, err := reopen(at("store"), o); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(at("witness"), at("link")); err != nil {
		t.Fatal(err)
	}
	byLink := plain
	byLink.WitnessFile = at("link")
	copyTree(t, at("store"), at("copy"))
	db := open(t, at("store"), byLink)
	_, err := reopen(at("copy"), o)
	wantCode(t, err, tga.StateLockAcquireFailed)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if to, err := os.Readlink(at("link")); err != nil || to != at("witness") {
		t.Errorf("the link leads to %q: %v", to, err)
	}
	_, err = reopen(at("copy"), o)
	wantCode(t, err, tga.StateChecksumMismatch)
	if err := os.Rename(at("witness"), at("unmounted")); err != nil {
		t.Fatal(err)
	}
	_, err = reopen(at("store"), byLink)
	wantCode(t, err, tga.StoreUnavailable)
}

// TestCrashBetweenStoreAndWitness: the power goes at each write of opens with a witness,
// the first one and later ones. No crash locks anybody out, and at each moment a directory
// from before the last open that returned is refused.
func TestCrashBetweenStoreAndWitness(t *testing.T) {
	serial.Test(t)
	disk := crashmem.New()
	if err := disk.MkdirAll("elsewhere", 0o700); err != nil {
		t.Fatal(err)
	}
	root, err := disk.OpenDir("")
	if err == nil {
		err = root.Sync()
	}
	if err != nil {
		t.Fatal(err)
	}
	withWitness := func(fs vfs.FS) engine.Options {
		o := options(fs)
		o.WitnessFile = "elsewhere/witness"
		return o
	}
	type crash struct {
		fs    *crashmem.FS
		opens int // that returned
		at    string
	}
	var mu sync.Mutex // of what follows: Pebble writes from goroutines of its own
	var crashes []crash
	opens := 0
	recording := errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() != errorfs.OpIsWrite {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		for _, kept := range []int{0, 50, 100} {
			crashes = append(crashes, crash{
				disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: kept, RNG: newRand(uint64(len(crashes)))}), opens,
				fmt.Sprintf("open %d, kind %d on %s, %d %% kept", opens+1, op.Kind, op.Path, kept),
			})
		}
		return nil
	}))
	snapshots := map[int]*crashmem.FS{}
	for opens < 3 {
		db, err := engine.Open("store", withWitness(recording))
		if err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		opens++
		mu.Unlock()
		run(t, db, spec{trace: id(uint64(opens))})
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		snapshots[opens] = disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 0, RNG: newRand(1)})
	}
	for _, c := range crashes {
		db, err := engine.Open("store", withWitness(c.fs))
		if err != nil {
			t.Errorf("%s: %v", c.at, err)
			continue
		}
		for n := 1; n <= c.opens-1; n++ {
			if st, err := db.State(context.Background(), id(uint64(n))); err != nil || st.LastSeq != 4 {
				t.Errorf("%s: trace %d is at %d, %v", c.at, n, st.LastSeq, err)
			}
		}
		if err := db.Close(); err != nil {
			t.Errorf("%s: %v", c.at, err)
		}
		// The directory goes back to before the last open that returned.
		for n := 1; n < c.opens; n++ {
			if err := c.fs.RemoveAll("store"); err != nil {
				t.Fatal(err)
			}
			if ok, err := vfs.Clone(snapshots[n], c.fs, "store", "store"); !ok || err != nil {
				t.Fatal(ok, err)
			}
			if _, err := reopen("store", withWitness(c.fs)); tga.CodeOf(err) != tga.StateChecksumMismatch {
				t.Errorf("%s: rolled back to after open %d: %v", c.at, n, err)
			}
		}
	}
	t.Logf("%d crashes", len(crashes))
}

// TestCommandsOfARefusalCanBePasted: a refused open names commands, and a shell reads the directory in
// them as it is, whatever characters it has.
func TestCommandsOfARefusalCanBePasted(t *testing.T) {
	top := t.TempDir()
	words := func(err error, from string) []string {
		t.Helper()
		_, text, found := strings.Cut(err.Error(), from)
		if !found {
			t.Fatalf("%v does not say %q", err, from)
		}
		text, _, _ = strings.Cut(text, ". If")
		text, _, _ = strings.Cut(text, " makes a store")
		out, err := exec.Command("sh", "-c", "set -- "+text+`; printf '%s\n' "$@"`).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", text, err, out)
		}
		return strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	}
	for _, name := range []string{"plain", "a b", "it's $HOME", `x"y\z`, "*;#"} {
		dir, witness := filepath.Join(top, name), filepath.Join(top, name+" witness")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		_, err := engine.Open(dir, engine.Options{FirstSegmentBytes: 64 << 10})
		if got := words(err, "tgad init --data "); !slices.Equal(got, []string{dir}) {
			t.Errorf("an empty directory: %q, want %q", got, dir)
		}
		o := engine.Options{FirstSegmentBytes: 64 << 10, Create: true, WitnessFile: witness}
		db, err := engine.Open(dir, o)
		if err == nil {
			err = errors.Join(db.Close(), os.Remove(witness))
		}
		if err != nil {
			t.Fatal(err)
		}
		_, err = engine.Open(dir, o)
		if got := words(err, "tgad init --data "); !slices.Equal(got, []string{dir, "--witness", witness}) {
			t.Errorf("without its witness: %q", got)
		}
		if got := words(err, "tgad restore "); !slices.Equal(got, []string{dir}) {
			t.Errorf("without its witness: %q", got)
		}
	}
}

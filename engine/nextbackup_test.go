package engine_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
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

// ofItself are the keys that a store has for itself, and a restored one has anew.
var ofItself = []string{"mstore_id", "msecret", "mfrozen", "mincarnation", "mtoken"}

// values is what a store has, but for what concerns itself.
func values(db *engine.DB) map[string]string {
	all := db.Dump()
	for _, key := range ofItself {
		delete(all, key)
	}
	return all
}

// restored returns what a restore from "copy" has.
func restored(t *testing.T, fs vfs.FS) map[string]string {
	t.Helper()
	if err := fs.RemoveAll("restored"); err != nil {
		t.Fatal(err)
	}
	if err := engine.Restore(t.Context(), "copy", "restored", options(fs)); err != nil {
		t.Fatal(err)
	}
	db, err := engine.OpenReadOnly("restored", options(fs))
	if err != nil {
		t.Fatal(err)
	}
	all := values(db)
	if db.Stats().Frozen == "" {
		t.Error("what was restored is not frozen")
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return all
}

// names records which files of a directory appear.
type names struct {
	mu  sync.Mutex
	dir string
	all map[string]bool
}

func (n *names) String() string { return "names" }

func (n *names) MaybeError(op errorfs.Op) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	// A link and a rename have the old name here.
	if name, ok := strings.CutPrefix(op.Path, n.dir); ok && (op.Kind == errorfs.OpRename || op.Kind == errorfs.OpCreate) {
		n.all[strings.TrimSuffix(name, ".copy")] = true
	}
	return nil
}

func (n *names) take() map[string]bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := n.all
	n.all = map[string]bool{}
	return out
}

// TestNextBackupCopiesWhatIsNew backs a store up again and again into one directory, with calls,
// large answers and archiving between. Each time it is restored it is the store as it was, and
// no file is copied twice but the segment that is written to.
func TestNextBackupCopiesWhatIsNew(t *testing.T) {
	serial.Test(t)
	disk := vfs.NewMem()
	seen := &names{dir: "copy/log/", all: map[string]bool{}}
	fs := errorfs.Wrap(disk, seen)
	db := lived(t, fs)
	defer func() { _ = db.Close() }()
	ever := map[string]bool{}
	for round := range uint64(4) {
		if err := db.Backup(t.Context(), "copy"); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if got, want := restored(t, disk), values(db); !maps.Equal(got, want) {
			t.Errorf("round %d: %d values, want %d, or others", round, len(got), len(want))
		}
		again := 0
		for name := range seen.take() {
			if ever[name] {
				again++
			}
			ever[name] = true
		}
		if again > 1 {
			t.Errorf("round %d: %d files were copied again", round, again)
		}
		if has, err := disk.List("copy/log"); err != nil {
			t.Error(err)
		} else if of, err := disk.List("store/log"); err != nil || len(has) > len(of) {
			t.Errorf("round %d: the backup has %d files, the store %d, %v", round, len(has), len(of), err)
		}
		if round == 2 {
			continue // nothing is new
		}
		for i := range uint64(20) {
			run(t, db, spec{trace: id(2000 + round*100 + i), args: `{"fill":"` + noise(i, 100+int(i%10)/9*17_000) + `"}`})
		}
		if round == 1 {
			if _, err := db.SealTraces(t.Context(), start+1); err != nil {
				t.Fatal(err)
			}
		}
	}
	// A copy that is there and was damaged since is found by who restores it.
	logs, err := disk.List("copy/log")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"log/" + logs[0], "log/" + logs[len(logs)-1], "BACKUP"} {
		whole := content(t, disk, "copy/"+name)
		bad := append([]byte(nil), whole...)
		bad[len(bad)/3] ^= 1
		replace(t, disk, "copy/"+name, bad)
		wantCode(t, engine.Restore(t.Context(), "copy", "damaged", options(disk)), tga.RestoreFailed)
		replace(t, disk, "copy/"+name, whole)
	}
}

// TestStoppedBackupLeavesTheOneBefore fails each file operation of the second backup into a
// directory, one by one, and takes the power away before it. What can be restored then is the
// first backup or the second, whole, and the backup after it succeeds.
func TestStoppedBackupLeavesTheOneBefore(t *testing.T) {
	serial.Test(t)
	disk := crashmem.New()
	var mu sync.Mutex
	var decide func(errorfs.Op) error
	fs := errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		mu.Lock()
		defer mu.Unlock()
		if decide == nil || !strings.HasPrefix(op.Path, "copy") && op.Kind != errorfs.OpLink {
			return nil
		}
		return decide(op)
	}))
	o := options(fs)
	o.SegmentBytes = 64 << 10
	db, err := engine.Open("store", o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	some := func(from uint64) {
		for i := range uint64(4) {
			run(t, db, spec{trace: id(from + i), args: `{"fill":"` + noise(i, 100) + `"}`})
		}
		if from < 200 {
			run(t, db, spec{trace: id(from + 50), args: `{"fill":"` + noise(from, 17_000) + `"}`})
		}
	}
	some(1)
	if err := db.Backup(t.Context(), "copy"); err != nil {
		t.Fatal(err)
	}
	first := values(db)
	some(100)
	if _, err := db.SealTraces(t.Context(), start+1); err != nil {
		t.Fatal(err)
	}
	some(200)
	last := values(db)
	before := disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: newRand(1)})
	reset := func() { // the directory as the first backup left it
		mu.Lock()
		decide = nil
		mu.Unlock()
		if err := disk.RemoveAll("copy"); err != nil {
			t.Fatal(err)
		}
		copyDir(t, before, disk, "copy")
	}
	one := func(what string, fs vfs.FS) {
		t.Helper()
		if got := restored(t, fs); !maps.Equal(got, first) && !maps.Equal(got, last) {
			t.Errorf("%s: %d values were restored, the first backup has %d, the second %d", what, len(got), len(first), len(last))
		}
	}
	failed := fmt.Errorf("no such luck")
	for n, done := 1, false; !done; n++ {
		reset()
		var crashed *crashmem.FS
		at, kind := 0, ""
		mu.Lock()
		decide = func(op errorfs.Op) error {
			if at++; at != n {
				return nil
			}
			kind = fmt.Sprint(op.Kind, " ", op.Path)
			crashed = disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: n % 3 * 50, RNG: newRand(uint64(n))})
			return failed
		}
		mu.Unlock()
		err := db.Backup(t.Context(), "copy")
		mu.Lock()
		decide = nil
		mu.Unlock()
		if done = crashed == nil; done {
			if err != nil || n < 50 {
				t.Errorf("after %d operations: %v", n-1, err)
			}
			break
		}
		if err != nil && !errors.Is(err, failed) && tga.CodeOf(err) == "" {
			t.Errorf("operation %d, %s: %v", n, kind, err)
		}
		one(fmt.Sprintf("operation %d failed, %s", n, kind), disk)
		one(fmt.Sprintf("power cut before operation %d, %s", n, kind), crashed)
		if err := db.Backup(t.Context(), "copy"); err != nil {
			t.Errorf("after operation %d, %s: %v", n, kind, err)
		}
		if n%7 == 0 {
			if got := restored(t, disk); !maps.Equal(got, last) {
				t.Errorf("after operation %d, %s: the next backup has %d values, want %d", n, kind, len(got), len(last))
			}
		}
	}
}

// copyDir copies a directory from one disk to another, durably.
func copyDir(t *testing.T, from, to vfs.FS, dir string) {
	t.Helper()
	if err := to.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	names, err := from.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		path := dir + "/" + name
		if info, err := from.Stat(path); err != nil {
			t.Fatal(err)
		} else if info.IsDir() {
			copyDir(t, from, to, path)
		} else if err := vfs.CopyAcrossFS(from, path, to, path); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []string{dir, ""} {
		f, err := to.OpenDir(d)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestBackupIsNotInTheStore: what is lost with the store is no backup of it.
func TestBackupIsNotInTheStore(t *testing.T) {
	fs := vfs.NewMem()
	db := open(t, "store", options(fs))
	run(t, db, spec{trace: id(1)})
	for _, dir := range []string{"store", "store/copy", "store/log/copy", "elsewhere/../store/copy"} {
		wantCode(t, db.Backup(t.Context(), dir), tga.ValidationError)
	}
	for _, dir := range []string{"store.copy", "copy"} {
		if err := db.Backup(t.Context(), dir); err != nil {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

// TestBackupIsNotInTheStoreByALink: nor by another spelling of its path.
func TestBackupIsNotInTheStoreByALink(t *testing.T) {
	dir := t.TempDir()
	db := open(t, filepath.Join(dir, "store"), options(vfs.Default))
	run(t, db, spec{trace: id(1)})
	link := filepath.Join(dir, "link")
	if err := os.Symlink(filepath.Join(dir, "store"), link); err != nil {
		t.Fatal(err)
	}
	wantCode(t, db.Backup(t.Context(), filepath.Join(link, "copy")), tga.ValidationError)
	t.Chdir(dir)
	wantCode(t, db.Backup(t.Context(), filepath.Join("store", "copy")), tga.ValidationError)
}

// TestBackupIsOfOneLog: a directory takes the backups of one log. A store that was restored from
// it goes on there, in its own timeline; the other one, which went another way, does not.
func TestBackupIsOfOneLog(t *testing.T) {
	fs := vfs.NewMem()
	db := open(t, "store", options(fs))
	run(t, db, spec{trace: id(1)})
	if err := db.Backup(t.Context(), "copy"); err != nil {
		t.Fatal(err)
	}
	first := restored(t, fs)
	run(t, db, spec{trace: id(2)}) // is not in the copy

	other := open(t, "other", options(fs))
	for i := range uint64(9) {
		run(t, other, spec{trace: id(i + 1)})
	}
	wantCode(t, other.Backup(t.Context(), "copy"), tga.ValidationError)
	if !maps.Equal(restored(t, fs), first) {
		t.Error("the refused backup changed the one that is there")
	}

	next := open(t, "restored", options(fs)) // what is restored there now
	if err := next.Unfreeze(t.Context(), true, "me"); err != nil {
		t.Fatal(err)
	}
	for i := range uint64(9) {
		run(t, next, spec{trace: id(10 + i)})
	}
	if err := next.Backup(t.Context(), "copy"); err != nil {
		t.Fatal(err)
	}
	if err := next.Backup(t.Context(), "copy"); err != nil {
		t.Fatal(err)
	}
	for i := range uint64(30) { // far more groups, in the timeline that was left
		run(t, db, spec{trace: id(100 + i)})
	}
	wantCode(t, db.Backup(t.Context(), "copy"), tga.ValidationError)
	want := values(next)
	if err := next.Close(); err != nil {
		t.Fatal(err)
	}
	if got := restored(t, fs); !maps.Equal(got, want) {
		t.Errorf("%d values, want %d, or others", len(got), len(want))
	}
}

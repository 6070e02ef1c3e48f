package engine_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/crashtest/crashmem"
	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/schemas/tga"
)

// plain are the options of a small store on the disk.
var plain = engine.Options{MemTableBytes: 1 << 20, CacheBytes: 1 << 20, FirstSegmentBytes: 64 << 10, LowWaterBytes: 1}

// reopen opens and closes a store and returns its id.
func reopen(dir string, o engine.Options) (tga.ID, error) {
	db, err := engine.Open(dir, o)
	if err != nil {
		return tga.ID{}, err
	}
	return db.Stats().StoreID, db.Close()
}

// TestNewStoreIsMadeWhereOneIsMeant walks what may be in a directory × how it is opened.
// A refusal leaves the directory as it was.
func TestNewStoreIsMadeWhereOneIsMeant(t *testing.T) {
	serial.Test(t)
	make := func(names ...string) func(string) error {
		return func(dir string) error {
			if err := os.Mkdir(dir, 0o700); err != nil {
				return err
			}
			for _, name := range names {
				var err error
				if at, isDir := strings.CutSuffix(name, "/"); isDir {
					err = os.Mkdir(filepath.Join(dir, at), 0o700)
				} else {
					err = os.WriteFile(filepath.Join(dir, name), []byte("1\n"), 0o600)
				}
				if err != nil {
					return err
				}
			}
			return nil
		}
	}
	var store tga.ID
	someStore := func(dir string) (err error) {
		store, err = reopen(dir, plain)
		return err
	}
	another := id(77)
	const ok = tga.Code("")
	for _, c := range []struct {
		what             string
		lay              func(dir string) error
		open, create     tga.Code
		read             tga.Code
		pinned, pinnedTo tga.Code // with Create: to a store that is not there, to the one that is
	}{
		{"nothing", func(string) error { return nil }, ok, ok, tga.NotFound, tga.NotFound, tga.NotFound},
		{"nothing, two levels", func(dir string) error { return nil }, ok, ok, tga.NotFound, tga.NotFound, tga.NotFound},
		{"an empty directory", make(), tga.NotFound, ok, tga.NotFound, tga.NotFound, tga.NotFound},
		{"the root of a volume", make("lost+found/"), tga.NotFound, ok, tga.NotFound, tga.NotFound, tga.NotFound},
		{"what stays of a store", make("tgad.lock", "LOCK", "run/", "mcp/", "children/"), tga.NotFound, ok, tga.NotFound, tga.NotFound, tga.NotFound},
		{"a store in the making", make("NEW"), ok, ok, tga.NotFound, tga.NotFound, tga.NotFound},
		{"other files", make("passwd"), tga.ValidationError, tga.ValidationError, tga.ValidationError, tga.ValidationError, tga.ValidationError},
		{"other directories", make("conf.d/"), tga.ValidationError, tga.ValidationError, tga.ValidationError, tga.ValidationError, tga.ValidationError},
		{"an empty segment", make("log/", "log/0000000000000001"), tga.StateChecksumMismatch, tga.StateChecksumMismatch, tga.StateChecksumMismatch, tga.StateChecksumMismatch, tga.StateChecksumMismatch},
		{"a directory for logs", make("log/"), tga.ValidationError, tga.ValidationError, tga.ValidationError, tga.ValidationError, tga.ValidationError},
		{"a store of format 1", make("MANIFEST-000001"), tga.ValidationError, tga.ValidationError, tga.ValidationError, tga.ValidationError, tga.ValidationError},
		{"a file", func(dir string) error { return os.WriteFile(dir, nil, 0o600) }, tga.StoreUnavailable, tga.StoreUnavailable, tga.StoreUnavailable, tga.StoreUnavailable, tga.StoreUnavailable},
		{"a link to nowhere", func(dir string) error { return os.Symlink(dir+"-gone", dir) }, tga.NotFound, tga.NotFound, tga.NotFound, tga.NotFound, tga.NotFound},
		{"a store", someStore, ok, ok, ok, tga.NotFound, ok},
	} {
		for _, how := range []struct {
			name string
			open func(dir string) (tga.ID, error)
			want tga.Code
		}{
			{"Open", func(dir string) (tga.ID, error) { return reopen(dir, plain) }, c.open},
			{"with Create", func(dir string) (tga.ID, error) {
				o := plain
				o.Create = true
				return reopen(dir, o)
			}, c.create},
			{"OpenReadOnly", func(dir string) (tga.ID, error) {
				db, err := engine.OpenReadOnly(dir, plain)
				if err != nil {
					return tga.ID{}, err
				}
				return db.Stats().StoreID, db.Close()
			}, c.read},
			{"pinned to another", func(dir string) (tga.ID, error) {
				o := plain
				o.Create, o.StoreID = true, another
				return reopen(dir, o)
			}, c.pinned},
			{"pinned", func(dir string) (tga.ID, error) {
				o := plain
				o.Create, o.StoreID = true, another
				if !store.IsZero() {
					o.StoreID = store
				}
				return reopen(dir, o)
			}, c.pinnedTo},
		} {
			t.Run(c.what+", "+how.name, func(t *testing.T) {
				top := t.TempDir()
				dir := filepath.Join(top, "a")
				if strings.Contains(c.what, "two levels") {
					dir = filepath.Join(dir, "b", "c")
				}
				if err := c.lay(dir); err != nil {
					t.Fatal(err)
				}
				before := tree(t, top)
				_, err := how.open(dir)
				if tga.CodeOf(err) != how.want || (err == nil) != (how.want == ok) {
					t.Fatalf("%v, want %q", err, how.want)
				}
				if err == nil {
					if _, err := os.Stat(filepath.Join(dir, "NEW")); err == nil {
						t.Error("the store still counts as one in the making")
					}
					return
				}
				// What held something of a store was locked while it was looked at.
				after := strings.ReplaceAll(tree(t, top), "a/tgad.lock 0600\n", "")
				if before = strings.ReplaceAll(before, "a/tgad.lock 0600\n", ""); after != before {
					t.Errorf("refused with %v, and left\n%safter\n%s", err, after, before)
				}
				if c.what == "an empty directory" && how.name == "Open" && !strings.Contains(err.Error(), "tgad init --data "+dir) {
					t.Errorf("the way out is not named: %v", err)
				}
			})
		}
	}
}

// tree lists what is below a directory.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var out strings.Builder
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err == nil && path != dir {
			fmt.Fprintf(&out, "%s %#o\n", strings.TrimPrefix(path, dir+"/"), info.Mode().Perm())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestCrashWhileAStoreIsMade: the power goes at each write of the first open. Afterwards
// the store is made by a plain Open: no crash leaves a directory that looks like an
// unmounted disk.
func TestCrashWhileAStoreIsMade(t *testing.T) {
	serial.Test(t)
	disk := crashmem.New()
	var clones []*crashmem.FS
	var at []string
	recording := errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			for _, kept := range []int{0, 50, 100} {
				clones = append(clones, disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: kept, RNG: newRand(uint64(len(clones)))}))
				at = append(at, fmt.Sprintf("operation %d, kind %d on %s, %d %% kept", len(clones)/3, op.Kind, op.Path, kept))
			}
		}
		return nil
	}))
	if _, err := reopen("above/store", options(recording)); err != nil {
		t.Fatal(err)
	}
	for i, fs := range clones {
		first, err := reopen("above/store", options(fs))
		if err != nil {
			t.Errorf("%s: %v", at[i], err)
			continue
		}
		if again, err := reopen("above/store", options(fs)); err != nil || again != first {
			t.Errorf("%s: store %s, then %s, %v", at[i], first, again, err)
		}
	}
	t.Logf("%d crashes", len(clones))
}

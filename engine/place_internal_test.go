package engine

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/internal/crashtest/crashmem"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal"
)

// TestStoreThatWasMadeIsNotMadeAgain: once the first open has returned, no crash brings back the mark
// by which the next one would make a new store of an empty directory.
func TestStoreThatWasMadeIsNotMadeAgain(t *testing.T) {
	disk := crashmem.New()
	db, err := Open("above/deeper/store", Options{FS: disk})
	if err != nil {
		t.Fatal(err)
	}
	crashed := disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 0, RNG: rand.New(rand.NewPCG(1, 1))})
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := crashed.Stat("above/deeper/store"); err != nil {
		t.Errorf("the directory: %v", err)
	}
	if _, err := crashed.Stat("above/deeper/store/" + beginningName); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is there: %v", beginningName, err)
	}
}

// TestRestoreTakesAnEmptyDirectory: a directory that is not there or has nothing in it may become a
// store; one with a file, or that cannot be read, may not.
func TestRestoreTakesAnEmptyDirectory(t *testing.T) {
	fs := vfs.NewMem()
	if err := errors.Join(fs.MkdirAll("empty", 0o700), fs.MkdirAll("full/one", 0o700)); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]tga.Code{"none": "", "empty": "", "full": tga.ValidationError} {
		if err := absent(fs, dir); tga.CodeOf(err) != want {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

// TestDirectoryWithASlashAtItsEnd: a shell completes the name of a directory with one. The directory
// need not exist.
func TestDirectoryWithASlashAtItsEnd(t *testing.T) {
	top := t.TempDir() + string(os.PathSeparator)
	o := Options{MemTableBytes: 1 << 20, CacheBytes: 1 << 20, FirstSegmentBytes: 64 << 10, LowWaterBytes: 1}
	db, err := Open(top+"store/", o)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Backup(t.Context(), top+"backup/"), db.Backup(t.Context(), top+"backup/"), db.Close()); err != nil {
		t.Fatal(err)
	}
	if err := Restore(t.Context(), top+"backup/", top+"restored/", o); err != nil {
		t.Fatal(err)
	}
	list, err := os.ReadDir(top)
	if err != nil || len(list) != 3 {
		t.Errorf("%v, %v: want the store, its backup and the restored store", list, err)
	}
}

// TestDirectoryBehindALink: a backup and a restored store lie where the link leads, for example on another
// disk. The link stays. A link to nothing is refused, because the disk may not be mounted.
func TestDirectoryBehindALink(t *testing.T) {
	top := t.TempDir()
	at := func(name string) string { return filepath.Join(top, name) }
	err := errors.Join(os.MkdirAll(at("disk/backup"), 0o700), os.MkdirAll(at("disk/restored"), 0o700))
	for _, name := range []string{"backup", "restored", "nothing"} {
		err = errors.Join(err, os.Symlink(at("disk/"+name), at(name)))
	}
	if err != nil {
		t.Fatal(err)
	}
	o := Options{MemTableBytes: 1 << 20, CacheBytes: 1 << 20, FirstSegmentBytes: 64 << 10, LowWaterBytes: 1}
	db, err := Open(at("store"), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Backup(t.Context(), at("nothing")); tga.CodeOf(err) != tga.NotFound {
		t.Errorf("a backup behind a link to nothing: %v", err)
	}
	if err := errors.Join(db.Backup(t.Context(), at("backup")), db.Backup(t.Context(), at("backup")), db.Close()); err != nil {
		t.Fatal(err)
	}
	if err := Restore(t.Context(), at("backup"), at("nothing"), o); !errors.Is(err, tga.NotFound) {
		t.Errorf("restored behind a link to nothing: %v", err)
	}
	if err := Restore(t.Context(), at("backup"), at("restored"), o); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"backup", "restored", "nothing"} {
		if _, err := os.Readlink(at(name)); err != nil {
			t.Errorf("the link is gone: %v", err)
		}
	}
	for _, name := range []string{"backup", "restored"} {
		if _, err := os.Stat(at("disk/" + name + "/log")); err != nil {
			t.Errorf("nothing is where the link leads: %v", err)
		}
	}
}

// TestStoreWithoutAWitnessHasNoToken: a row of it would say that there was a witness.
func TestStoreWithoutAWitnessHasNoToken(t *testing.T) {
	fs := vfs.NewMem()
	for range 2 {
		db, err := Open("store", Options{FS: fs})
		if err != nil {
			t.Fatal(err)
		}
		if row, err := db.index.row(keyspace.AppendMeta(nil, metaToken)); row != nil || err != nil {
			t.Errorf("a token: %x, %v", row, err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestClosedStoreHasGivenUpItsLog: nothing is read from or appended to the log of a store that is
// closed, by whoever still has it; also where the store was opened to be read.
func TestClosedStoreHasGivenUpItsLog(t *testing.T) {
	o := Options{FS: vfs.NewMem()}
	for what, open := range map[string]func(string, Options) (*DB, error){"written": Open, "read": OpenReadOnly} {
		if what == "read" {
			if db, err := Open("store", o); err != nil || db.Close() != nil {
				t.Fatal(err)
			}
		}
		db, err := open("store", o)
		if err != nil {
			t.Fatal(err)
		}
		log := db.wal
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := log.Finish(); tga.CodeOf(err) != tga.StoreUnavailable {
			t.Errorf("%s: a record behind the end: %v", what, err)
		}
		if _, err := log.Audit(func(*wal.Record) error { return nil }); err == nil {
			t.Errorf("%s: the files are open", what)
		}
	}
}

// TestRestoreUpToTheBackupsTime: a backup knows what was until it was made, and nothing of the time behind.
func TestRestoreUpToTheBackupsTime(t *testing.T) {
	o := Options{FS: vfs.NewMem()}
	db, err := Open("store", o)
	if err != nil {
		t.Fatal(err)
	}
	db.times.now() // what is committed has a time
	w := db.commits.newWriter()
	w.set([]byte("mx"), []byte("a value"))
	if err := errors.Join(db.commits.apply(w), db.Backup(t.Context(), "copy"), db.Close()); err != nil {
		t.Fatal(err)
	}
	m, err := readManifest(o.FS, "copy")
	if err != nil {
		t.Fatal(err)
	}
	if err := RestoreAt(t.Context(), "copy", "then", Point{Time: m.Made}, o); err != nil {
		t.Errorf("at the time of the backup: %v", err)
	}
	if err := RestoreAt(t.Context(), "copy", "later", Point{Time: m.Made + 1}, o); !errors.Is(err, tga.ValidationError) {
		t.Errorf("a millisecond later: %v", err)
	}
}

// TestRowNamesItsBodyAlone: what a row names is kept, so one that named another body would let its own go.
func TestRowNamesItsBodyAlone(t *testing.T) {
	inline := wal.Op{Place: wal.Inline, Ref: wal.Ref{Segment: 1, Offset: 64}}
	file := wal.Op{Place: wal.InFile, File: wal.File{ID: [16]byte{1}}}
	elsewhere, other := inline, file
	elsewhere.Ref.Offset++
	other.File.ID[0]++
	for _, c := range []struct {
		what string
		row  placed
		op   *wal.Op
		want bool
	}{
		{"its body", placed{kind: rowBody, ref: inline.Ref}, &inline, true},
		{"a body elsewhere", placed{kind: rowBody, ref: inline.Ref}, &elsewhere, false},
		{"its file", placed{kind: rowFile, file: file.File}, &file, true},
		{"another file", placed{kind: rowFile, file: file.File}, &other, false},
		{"a file where it has a body", placed{kind: rowBody, ref: inline.Ref, file: file.File}, &file, false},
		{"a body where it has a file", placed{kind: rowFile, ref: inline.Ref, file: file.File}, &inline, false},
	} {
		if is := c.row.names(c.op); is != c.want {
			t.Errorf("%s: %v", c.what, is)
		}
	}
}

// racing is a disk on which the rename of a new directory fails, where made is set because another process
// made one of that name first.
type racing struct {
	vfs.FS
	made bool
}

func (r *racing) Unwrap() vfs.FS { return r.FS }

func (r *racing) Rename(_, to string) error {
	if r.made {
		if err := r.FS.MkdirAll(to, 0o700); err != nil {
			return err
		}
	}
	return errors.New("it is there already")
}

// TestDirectoryThatAnotherMadeIsNoFailure: who is second to make a store's directory looks at it anew. Where
// there is none after that, the failure is told. Nothing is left beside it either way.
func TestDirectoryThatAnotherMadeIsNoFailure(t *testing.T) {
	for _, other := range []bool{true, false} {
		disk := &racing{vfs.NewMem(), other}
		made, err := beginDir(disk, "a/store")
		if made || (err == nil) != other || !other && tga.CodeOf(err) != tga.StoreUnavailable {
			t.Errorf("made by another %v: %v, %v", other, made, err)
		}
		names, err := disk.List("a")
		if err != nil || len(names) > 1 || (len(names) == 1) != other {
			t.Errorf("made by another %v: %q are left, %v", other, names, err)
		}
	}
}

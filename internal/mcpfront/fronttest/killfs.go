package fronttest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// killFS is the file system under a daemon's store. Once its directory has a file "arm", it
// counts writes and syncs, and kills before the write whose number the file has.
type killFS struct {
	vfs.FS
	dir string
	k   killer
	n   int // writes and syncs since it was armed
	at  int // number of the write to kill before; 0 = only count
}

// Names of files in a rig's directory.
const (
	armFile    = "arm"    // "n: victims"
	WritesFile = "writes" // how many writes there were
)

// Arm tells the daemon of a rig to kill before its n-th write from now on; n = 0 only counts.
func (r *Rig) Arm(n int, victims string) {
	r.t.Helper()
	if err := os.Remove(filepath.Join(r.Dir, WritesFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.t.Fatal(err)
	}
	path := filepath.Join(r.Dir, armFile)
	err := os.WriteFile(path+".new", []byte(fmt.Sprintf("%d: %s", n, victims)), 0o600)
	if err == nil {
		err = os.Rename(path+".new", path) // rename, because the daemon may be reading
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// touch is called before each write. Only the log's committer writes, so the count is in the
// order of the writes.
func (f *killFS) touch() {
	raw, err := os.ReadFile(filepath.Join(f.dir, armFile))
	if err != nil {
		return
	}
	if _, err := os.Stat(filepath.Join(f.dir, "killed")); err == nil {
		return
	}
	if f.n == 0 {
		at, victims, _ := strings.Cut(string(raw), ": ")
		if _, err := fmt.Sscan(at, &f.at); err != nil {
			panic(err)
		}
		f.k = killer{dir: f.dir, point: "write", victims: strings.Split(victims, "+")}
	}
	f.n++
	if err := os.WriteFile(filepath.Join(f.dir, WritesFile), []byte(fmt.Sprint(f.n)), 0o600); err != nil {
		panic(err) // else the test would never kill at this write
	}
	if f.n == f.at {
		f.k.at("write")
	}
}

func (f *killFS) wrap(name string, file vfs.File, err error) (vfs.File, error) {
	if err != nil || !strings.Contains(name, "/log/") {
		return file, err
	}
	return &killFile{file, f}, nil
}

// Unwrap says that this is the system's file system, so that the store locks its directory.
func (f *killFS) Unwrap() vfs.FS { return nil }

func (f *killFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.FS.Create(name, c)
	return f.wrap(name, file, err)
}

func (f *killFS) ReuseForWrite(old, name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.FS.ReuseForWrite(old, name, c)
	return f.wrap(name, file, err)
}

func (f *killFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, o ...vfs.OpenOption) (vfs.File, error) {
	file, err := f.FS.OpenReadWrite(name, c, o...)
	return f.wrap(name, file, err)
}

type killFile struct {
	vfs.File
	fs *killFS
}

func (f *killFile) Write(p []byte) (int, error) {
	f.fs.touch()
	return f.File.Write(p)
}

func (f *killFile) WriteAt(p []byte, at int64) (int, error) {
	f.fs.touch()
	return f.File.WriteAt(p, at)
}

func (f *killFile) Sync() error {
	f.fs.touch()
	return f.File.Sync()
}

func (f *killFile) SyncData() error {
	f.fs.touch()
	return f.File.SyncData()
}

func (f *killFile) SyncTo(n int64) (bool, error) {
	f.fs.touch()
	return f.File.SyncTo(n)
}

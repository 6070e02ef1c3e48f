package engine

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/schemas/tga"
)

// lockName is the file whose lock says that a process has the store. Its content, the
// process id, is for people.
const lockName = "tgad.lock"

// dirLock keeps other processes, and other opens of this one, out of a directory.
//
// Pebble's own lock is bound to the path it was given and to the process: the same
// directory by a symlink can be opened twice. This one is bound to the file itself,
// at the directory's real path.
type dirLock struct{ f *os.File }

// lockDir makes the directory, resolves its path and locks it. Where fs is not the
// operating system's, nobody else can see the directory and Pebble's lock is enough.
func lockDir(fs vfs.FS, dir string, readOnly bool) (string, *dirLock, error) {
	if !readOnly {
		if err := fs.MkdirAll(dir, 0o750); err != nil {
			return "", nil, tga.Errorf(tga.StoreUnavailable, "open %s: %w", dir, err)
		}
	}
	if vfs.Root(fs) != vfs.Default {
		return dir, nil, nil
	}
	absolute, err := filepath.Abs(dir)
	if err == nil {
		absolute, err = filepath.EvalSymlinks(absolute)
	}
	if err != nil {
		code := tga.StoreUnavailable
		if os.IsNotExist(err) {
			code = tga.NotFound
		}
		return "", nil, tga.Errorf(code, "open %s: %w", dir, err)
	}
	name := filepath.Join(absolute, lockName)
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o640)
	if err != nil {
		return "", nil, tga.Errorf(tga.StoreUnavailable, "open %s: %w", dir, err)
	}
	if err := flock(f); err != nil {
		err = tga.Errorf(tga.StateLockAcquireFailed, "open %s: %s has it: %w", dir, holder(name), err)
		return "", nil, closeFile(f, err)
	}
	if err := f.Truncate(0); err != nil {
		return "", nil, closeFile(f, tga.Errorf(tga.StoreUnavailable, "open %s: %w", dir, err))
	}
	if _, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0); err != nil {
		return "", nil, closeFile(f, tga.Errorf(tga.StoreUnavailable, "open %s: %w", dir, err))
	}
	return absolute, &dirLock{f}, nil
}

// holder names the process that wrote the lock file.
func holder(name string) string {
	b, err := os.ReadFile(name)
	pid := strings.TrimSpace(string(b))
	if _, bad := strconv.Atoi(pid); err != nil || bad != nil {
		return "another process"
	}
	return "process " + pid
}

func closeFile(f *os.File, err error) error {
	if e := f.Close(); e != nil {
		return tga.Errorf(tga.CodeOf(err), "%v; close: %w", err, e)
	}
	return err
}

// release gives the directory up. The file stays: removing it would let two processes
// lock two files of one name.
func (l *dirLock) release() error {
	if l == nil {
		return nil
	}
	if err := l.f.Close(); err != nil {
		return tga.Errorf(tga.StoreUnavailable, "release the lock: %w", err)
	}
	return nil
}

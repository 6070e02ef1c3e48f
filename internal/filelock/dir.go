package filelock

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// ErrLost says that the locked file is no longer at its path: another process that looks for
// the lock there finds none, or another file.
var ErrLost = errors.New("the lock is gone from its path")

// Dir is a directory that this process has locked for itself.
//
// The lock is on two files: a file in the directory, which names the process, and the
// directory itself. If somebody removes the file because it looks stale, the lock on the
// directory still keeps a second process out. If somebody puts another directory in its place,
// a second process can lock that one. [Dir.Check] detects both.
type Dir struct {
	file, dir *os.File
}

// LockDir locks the directory at path by the file name in it, as [Lock] does.
func LockDir(path, name string) (*Dir, error) { return lockDir(path, name, deadWait) }

// TryDir is LockDir, but it never waits, not even for the lock of a dead holder.
func TryDir(path, name string) (*Dir, error) { return lockDir(path, name, 0) }

func lockDir(path, name string, wait time.Duration) (*Dir, error) {
	at := filepath.Join(path, name)
	dir, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	// Lock the directory first, because locking the file writes this process's number into it.
	patience := wait
	if holder(at) == 0 {
		patience = 0 // the holder left no number, so it cannot be known to be dead
	}
	err = await(dir, at, patience, time.Sleep)
	if unsupported(err) {
		err = nil // NFS cannot lock a directory; the lock on the file remains
	}
	var file *os.File
	if err == nil {
		file, err = lock(at, wait, time.Sleep)
	}
	if err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return &Dir{file, dir}, nil
}

// Check returns ErrLost if the directory or the lock file is no longer at its path.
func (d *Dir) Check() error {
	for _, f := range []*os.File{d.file, d.dir} {
		mine, err := f.Stat()
		if err != nil {
			return fmt.Errorf("%s: %w", f.Name(), err)
		}
		there, err := os.Lstat(f.Name())
		if err != nil {
			return fmt.Errorf("%w: %w", ErrLost, err)
		}
		if !os.SameFile(mine, there) {
			return fmt.Errorf("%w: another %s is there", ErrLost, f.Name())
		}
	}
	return nil
}

// Close gives the directory up. The file stays, see [Lock].
func (d *Dir) Close() error { return errors.Join(d.file.Close(), d.dir.Close()) }

package filelock

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// ErrLost says that what was locked is no longer at its path: a process that looks for the
// lock there finds none, or another one.
var ErrLost = errors.New("the lock is gone from its path")

// Dir is a directory that this process has for itself.
//
// The lock is on two files: one in the directory, which says who has it, and the directory
// itself. Somebody who removes the first, because it looks like one that was left behind,
// does not let a second process in. One who puts another directory in its place does:
// [Dir.Check] finds out.
type Dir struct {
	file, dir *os.File
}

// LockDir locks the directory at path by the file name in it, as [Lock] does.
func LockDir(path, name string) (*Dir, error) { return lockDir(path, name, deadWait) }

// TryDir is LockDir that never waits, also not for the lock of a holder that is dead.
func TryDir(path, name string) (*Dir, error) { return lockDir(path, name, 0) }

func lockDir(path, name string, wait time.Duration) (*Dir, error) {
	at := filepath.Join(path, name)
	dir, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	// The directory first: to lock the file is to write this process's number into it.
	patience := wait
	if holder(at) == 0 {
		patience = 0 // whoever has it left no number by which to see that it is dead
	}
	err = await(dir, at, patience, time.Sleep)
	if unsupported(err) {
		err = nil // NFS has no lock for a directory; the file's is left
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

// Check returns ErrLost where the directory or the lock file is not at its path any more.
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

//go:build unix

package capability

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// private refuses a file that others than its owner can access, or whose owner is
// neither this user nor root.
func private(path string, info fs.FileInfo) error {
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return badFile(path, "has mode %#o: nobody but its owner may have access", mode)
	}
	if s, ok := info.Sys().(*syscall.Stat_t); ok && int(s.Uid) != os.Geteuid() && s.Uid != 0 {
		return badFile(path, "belongs to uid %d", s.Uid)
	}
	return nil
}

// locked calls f under a lock that excludes other processes which make or rotate a key
// in the same directory. The lock is on the directory: a lock on the file would be lost
// when the file is replaced.
func locked(path string, f func() error) error {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return noFile(path, err)
	}
	for err = unix.EINTR; err == unix.EINTR; {
		err = unix.Flock(int(dir.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		return noFile(path, errors.Join(err, dir.Close()))
	}
	err = f()
	if e := dir.Close(); e != nil && err == nil { // closing ends the lock
		err = noFile(path, e)
	}
	return err
}

func syncDir(name string) error {
	dir, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

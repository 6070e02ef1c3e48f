//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filelock

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Held reports whether somebody has locked a file; known is false where that cannot be told
// from here. A file that is gone from a directory that is there is locked by nobody. It
// never waits: not for a pipe, and not for who has the lock.
func Held(path string) (held, known bool) {
	if !filepath.IsAbs(path) {
		return false, false
	}
	// A begin of a call looks at three such files. Made an os.File, each would cost three times
	// what these four system calls do.
	fd, err := openQuietly(path)
	if errors.Is(err, fs.ErrNotExist) {
		_, err := os.Stat(filepath.Dir(path))
		return false, err == nil
	}
	if err != nil {
		return false, false
	}
	defer syscall.Close(fd) // it was only looked at
	var st syscall.Stat_t
	if err := syscall.Fstat(fd, &st); err != nil || st.Mode&syscall.S_IFMT != syscall.S_IFREG {
		return false, false
	}
	for {
		// Shared, and given back with the file: who else looks sees no lock of ours.
		err := syscall.Flock(fd, syscall.LOCK_SH|syscall.LOCK_NB)
		switch {
		case err == nil:
			return false, true
		case errors.Is(err, syscall.EWOULDBLOCK):
			return true, true
		case !errors.Is(err, syscall.EINTR):
			return false, false
		}
	}
}

// Owner returns the user whose file a path names, where it is a file that is there.
func Owner(path string) (uid uint32, ok bool) {
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() {
		return 0, false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return st.Uid, true
}

// openQuietly opens a file for reading. It does not wait, follows no link, and a process that
// is started does not get the descriptor.
func openQuietly(path string) (fd int, err error) {
	for {
		fd, err = syscall.Open(path, syscall.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
		if !errors.Is(err, syscall.EINTR) {
			return fd, err
		}
	}
}

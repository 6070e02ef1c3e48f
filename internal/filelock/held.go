//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filelock

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Held reports whether some process has locked a file. known is false if that cannot be found
// out. A file that does not exist, in a directory that does, counts as not locked. Held never
// blocks, neither on a pipe nor on the lock.
func Held(path string) (held, known bool) {
	if !filepath.IsAbs(path) {
		return false, false
	}
	// The begin of a call checks three such files. With an os.File, each check would cost three
	// times as much as these four system calls.
	fd, err := openQuietly(path)
	if errors.Is(err, fs.ErrNotExist) {
		_, err := os.Stat(filepath.Dir(path))
		return false, err == nil
	}
	if err != nil {
		return false, false
	}
	defer syscall.Close(fd) // the file was only read, so an error does not matter
	var st syscall.Stat_t
	if err := syscall.Fstat(fd, &st); err != nil || st.Mode&syscall.S_IFMT != syscall.S_IFREG {
		return false, false
	}
	for {
		// A shared lock, released with the file: another process that checks at the same
		// time does not take it for a holder's lock.
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

// Owner returns the user who owns the file at a path. ok is false if there is no regular file.
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

// openQuietly opens a file for reading. It does not block and follows no link, and child
// processes do not inherit the descriptor.
func openQuietly(path string) (fd int, err error) {
	for {
		fd, err = syscall.Open(path, syscall.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
		if !errors.Is(err, syscall.EINTR) {
			return fd, err
		}
	}
}

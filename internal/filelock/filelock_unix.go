//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filelock

import (
	"errors"
	"os"
	"syscall"
)

const noFollow = syscall.O_NOFOLLOW

// flock locks the open file, not the path and not the process.
func flock(f *os.File) error { return flockAs(f, syscall.LOCK_EX|syscall.LOCK_NB) }

func shared(f *os.File) error { return flockAs(f, syscall.LOCK_SH|syscall.LOCK_NB) }

// Wait locks an open file once nobody else has it locked, for as long as a change takes: it is not for a lock
// that somebody keeps.
func Wait(f *os.File) error { return flockAs(f, syscall.LOCK_EX) }

// Free gives back what Wait locked.
func Free(f *os.File) error { return flockAs(f, syscall.LOCK_UN) }

func flockAs(f *os.File, how int) error {
	for {
		err := syscall.Flock(int(f.Fd()), how)
		switch {
		case errors.Is(err, syscall.EWOULDBLOCK):
			return ErrHeld
		case !errors.Is(err, syscall.EINTR):
			return err
		}
	}
}

// alive reports whether there is such a process here. One of another machine or container
// is not seen: its lock is waited for in vain.
func alive(pid int) bool { return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

// unsupported reports whether a file system has no such lock for a directory: where locks
// are those of byte ranges, they want a file that is open for writing.
func unsupported(err error) bool {
	return errors.Is(err, syscall.EBADF) || errors.Is(err, syscall.ENOTSUP) || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOLCK)
}

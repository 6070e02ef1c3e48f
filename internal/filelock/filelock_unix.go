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

// Wait locks an open file, and blocks until no other process has it locked. It is for locks that are held only
// for a short change, not for locks that a process keeps.
func Wait(f *os.File) error { return flockAs(f, syscall.LOCK_EX) }

// Free releases the lock of Wait.
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

// alive reports whether a process with that number exists here. A process of another machine
// or container is not seen, so a lock that it has is waited for in vain.
func alive(pid int) bool { return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

// unsupported reports whether err says that a file system cannot lock a directory. If locks
// are byte-range locks, they need a file that is open for writing.
func unsupported(err error) bool {
	return errors.Is(err, syscall.EBADF) || errors.Is(err, syscall.ENOTSUP) || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOLCK)
}

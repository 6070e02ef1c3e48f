//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package engine

import (
	"os"

	"golang.org/x/sys/unix"
)

// flock locks the open file, not the path and not the process; the kernel lets go of
// it when the process ends, however it ends.
func flock(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) }

//go:build unix

package hostdir

import (
	"errors"
	"os"
	"syscall"
)

// noWait opens a FIFO that took a file's place without waiting for its other end.
const noWait = syscall.O_NONBLOCK

func syncPath(path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|noWait, 0)
	if err != nil {
		return err
	}
	err = f.Sync()
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

func isNotDir(err error) bool { return errors.Is(err, syscall.ENOTDIR) }

// isNoFile says of an attempt to open that a socket, or a device without a driver, took
// the file's place; isNoLink of an attempt to read a link that something else did.
func isNoFile(err error) bool { return errors.Is(err, syscall.ENXIO) || errors.Is(err, syscall.ELOOP) }
func isNoLink(err error) bool { return errors.Is(err, syscall.EINVAL) }

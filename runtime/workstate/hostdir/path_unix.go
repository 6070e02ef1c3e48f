//go:build unix

package hostdir

import (
	"errors"
	"os"
	"syscall"
)

// noWait opens a FIFO that replaced a file, without waiting for its other end.
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

// isNoFile reports whether an open failed because a socket, a link, or a device without a driver
// replaced the file; isNoLink whether reading a link failed because something else replaced it.
func isNoFile(err error) bool { return errors.Is(err, syscall.ENXIO) || errors.Is(err, syscall.ELOOP) }
func isNoLink(err error) bool { return errors.Is(err, syscall.EINVAL) }

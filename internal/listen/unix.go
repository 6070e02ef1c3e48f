// Package listen listens at socket files, and continues after errors and after the loss of a file.
package listen

import (
	"errors"
	"io/fs"
	"net"
	"os"

	"github.com/tgad/tgad/schemas/tga"
)

// Unix listens at a socket file with a mode. It replaces a socket file that a dead process left.
// STATE_LOCK_ACQUIRE_FAILED: another process listens there; VALIDATION_ERROR: the file is no socket;
// STORE_UNAVAILABLE: the socket cannot be made. If somebody removes the file, it is made again, see [Standing].
func Unix(path string, mode fs.FileMode) (net.Listener, error) {
	return Stand(path, func() (*net.UnixListener, error) { return bind(path, mode) })
}

func bind(path string, mode fs.FileMode) (*net.UnixListener, error) {
	if conn, err := net.Dial("unix", path); err == nil {
		return nil, errors.Join(tga.Errorf(tga.StateLockAcquireFailed, "somebody listens at %s", path), conn.Close())
	}
	if info, err := os.Lstat(path); err == nil {
		if info.Mode()&fs.ModeSocket == 0 {
			return nil, tga.Errorf(tga.ValidationError, "%s is there and is no socket", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, unavailable(err)
		}
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, unavailable(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		return nil, unavailable(errors.Join(err, l.Close()))
	}
	return l, nil
}

func unavailable(err error) error { return tga.Errorf(tga.StoreUnavailable, "listen: %w", err) }

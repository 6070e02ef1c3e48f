package access

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
)

// ErrListens says that somebody listens at a socket.
var ErrListens = errors.New("somebody listens there")

// ListenUnix listens at a socket file with a mode. One that a process left which is gone is replaced.
// [ErrListens], and an error of [fs.ErrExist] where there is something that is no socket.
func ListenUnix(path string, mode fs.FileMode) (net.Listener, error) {
	if conn, err := net.Dial("unix", path); err == nil {
		_ = conn.Close() // it has nothing to say
		return nil, fmt.Errorf("%s: %w", path, ErrListens)
	}
	if info, err := os.Lstat(path); err == nil {
		if info.Mode()&fs.ModeSocket == 0 {
			return nil, fmt.Errorf("%s is there and is no socket: %w", path, fs.ErrExist)
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, mode); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

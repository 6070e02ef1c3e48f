//go:build unix

package daemon

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"syscall"

	"github.com/tgad/tgad/schemas/tga"
)

// ownerOf returns the uid that a file belongs to; ok is false where that is not known.
func ownerOf(info fs.FileInfo) (uid uint32, ok bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return st.Uid, true
}

func closeOnExec(fd int) { syscall.CloseOnExec(fd) }

func socketPair() (near, far net.Conn, err error) {
	// No process may be started between these calls: it would inherit the descriptors.
	syscall.ForkLock.RLock()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fds[0])
		syscall.CloseOnExec(fds[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, err
	}
	var ends [2]net.Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "socketpair")
		c, cerr := net.FileConn(f) // it has a descriptor of its own
		ends[i], err = c, errors.Join(err, cerr, f.Close())
	}
	if err != nil {
		for _, c := range ends {
			if c != nil {
				err = errors.Join(err, c.Close())
			}
		}
		return nil, nil, tga.Errorf(tga.StoreUnavailable, "make a pair of sockets: %w", err)
	}
	return ends[0], ends[1], nil
}

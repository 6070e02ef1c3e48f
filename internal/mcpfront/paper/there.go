//go:build unix

package paper

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// NoReader reports whether the other end of a pipe or a socket that is written to is
// closed. What is no file cannot be asked, and has a reader.
func NoReader(w any) (gone bool) {
	onFD(w, func(fd int) {
		all := []unix.PollFd{{Fd: int32(fd)}} // errors and hang-ups are told unasked
		if n, err := unix.Poll(all, 0); err == nil && n > 0 {
			gone = all[0].Revents&(unix.POLLERR|unix.POLLHUP|unix.POLLNVAL) != 0
		}
	})
	return gone
}

// ClosedByPeer reports whether the other end of a socket has closed its side, also where
// nobody has read so far.
func ClosedByPeer(c any) (gone bool) {
	onFD(c, func(fd int) {
		var one [1]byte
		n, _, err := unix.Recvfrom(fd, one[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		gone = n == 0 && err == nil || err != nil && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR)
	})
	return gone
}

func onFD(v any, f func(fd int)) {
	c, ok := v.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := c.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { f(int(fd)) })
	}
	if err != nil {
		f(-1) // it is closed at this end
	}
}

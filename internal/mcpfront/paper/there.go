//go:build unix

package paper

import (
	"errors"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// NoReader reports whether the reading end of a pipe or socket is closed. It is false for a w
// that is no file.
func NoReader(w any) (gone bool) {
	onFD(w, func(fd int) {
		all := []unix.PollFd{{Fd: int32(fd)}} // poll always reports errors and hang-ups
		if n, err := unix.Poll(all, 0); err == nil && n > 0 {
			gone = all[0].Revents&(unix.POLLERR|unix.POLLHUP|unix.POLLNVAL) != 0
		}
	})
	return gone
}

// ClosedByPeer reports whether the other end of a socket has closed its side, without reading from it. The socket may be one
// under TLS.
func ClosedByPeer(c any) (gone bool) {
	onFD(c, func(fd int) {
		// Under TLS the other end says goodbye before it closes. Only Linux tells of the end before that is read.
		if all := []unix.PollFd{{Fd: int32(fd), Events: pollClosed}}; pollClosed != 0 {
			if n, err := unix.Poll(all, 0); err == nil && n > 0 {
				gone = true
				return
			}
		}
		var one [1]byte
		n, _, err := unix.Recvfrom(fd, one[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		gone = n == 0 && err == nil || err != nil && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR)
	})
	return gone
}

func onFD(v any, f func(fd int)) {
	for wrapper, is := v.(interface{ NetConn() net.Conn }); is; wrapper, is = v.(interface{ NetConn() net.Conn }) {
		v = wrapper.NetConn()
	}
	c, ok := v.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := c.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { f(int(fd)) })
	}
	if err != nil {
		f(-1) // the file is closed at this end
	}
}

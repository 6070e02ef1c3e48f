//go:build unix

package httpcall

import (
	"errors"
	"net"
	"syscall"
)

// unread reports whether anything has arrived on c that was not read: bytes, the end of
// the stream, or a reset. It does not wait, and does not consume what arrived. It returns
// false for a connection that is no socket.
func unread(c net.Conn) bool {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return true
	}
	arrived := true
	// Use Control and not Read: another Read of this process waits on the socket, and has its lock.
	if err := raw.Control(func(fd uintptr) {
		var b [1]byte
		_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		arrived = !errors.Is(err, syscall.EAGAIN) && !errors.Is(err, syscall.EINTR)
	}); err != nil {
		return true
	}
	return arrived
}

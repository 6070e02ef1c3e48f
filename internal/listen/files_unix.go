//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package listen

import (
	"net"
	"syscall"
)

// fileLimit is how many files this process may have open; 0 if that is not known.
func fileLimit() uint64 {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return 0
	}
	return uint64(l.Cur)
}

// descriptor is the file descriptor of a connection; ok is false if it has none.
func descriptor(c net.Conn) (n uint64, ok bool) {
	for {
		wrapper, is := c.(interface{ NetConn() net.Conn })
		if !is {
			break
		}
		c = wrapper.NetConn()
	}
	sc, ok := c.(syscall.Conn)
	if !ok {
		return 0, false
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return 0, false
	}
	err = raw.Control(func(fd uintptr) { n = uint64(fd) })
	return n, err == nil
}

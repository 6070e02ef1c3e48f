//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package listen

import "net"

func fileLimit() uint64 { return 0 }

func descriptor(net.Conn) (uint64, bool) { return 0, false }

//go:build !unix

package httpcall

import "net"

// unread cannot look at the socket without waiting on this system. Here only the Read that
// waits on the connection notices what arrives.
func unread(net.Conn) bool { return false }

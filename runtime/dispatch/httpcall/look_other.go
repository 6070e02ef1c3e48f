//go:build !unix

package httpcall

import "net"

// unread would look at the socket without waiting. Here the Read that waits with the
// connection is the only one to tell.
func unread(net.Conn) bool { return false }

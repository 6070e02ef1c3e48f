package listen

import (
	"net"
	"net/netip"
	"strings"
)

// Loopback reports whether a host names this machine: `localhost` or a loopback address, with a
// port or without one, as a URL and the header Host have it. No other name is resolved: a
// stranger can make a name of their own lead to 127.0.0.1, and a browser then calls with it.
func Loopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	address, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && address.Unmap().IsLoopback()
}

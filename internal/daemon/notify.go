package daemon

import (
	"errors"
	"net"
	"os"
	"strconv"

	"github.com/tgad/tgad/schemas/tga"
)

// notify reports the daemon's state to the service manager as sd_notify(3) describes: with a datagram
// to the socket that NOTIFY_SOCKET names. If that is not set, notify does nothing.
func notify(state string) error {
	name := os.Getenv("NOTIFY_SOCKET")
	if name == "" {
		return nil
	}
	if name[0] == '@' {
		name = "\x00" + name[1:] // the abstract namespace
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		return tga.Errorf(tga.StoreUnavailable, "notify the service manager: %w", err)
	}
	_, err = c.Write([]byte(state))
	if err = errors.Join(err, c.Close()); err != nil {
		return tga.Errorf(tga.StoreUnavailable, "notify the service manager: %w", err)
	}
	return nil
}

const firstHandedFD = 3

// isHanded says whether the service manager hands this process a socket.
func isHanded() bool {
	return os.Getenv("LISTEN_PID") == strconv.Itoa(os.Getpid()) && os.Getenv("LISTEN_FDS") != ""
}

// handed returns the listening socket that the service manager made for this process
// (sd_listen_fds(3)), nil if it made none. It removes the variables from the environment, so that
// a child process does not take them for its own.
func handed() (net.Listener, error) {
	if !isHanded() {
		return nil, nil
	}
	fds := os.Getenv("LISTEN_FDS")
	for _, name := range []string{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"} {
		if err := os.Unsetenv(name); err != nil {
			return nil, tga.Errorf(tga.ValidationError, "socket activation: %w", err)
		}
	}
	if fds != "1" {
		return nil, tga.Errorf(tga.ValidationError, "socket activation: %s sockets were handed in, want 1", fds)
	}
	closeOnExec(firstHandedFD)
	f := os.NewFile(firstHandedFD, "handed socket")
	l, err := net.FileListener(f)
	err = errors.Join(err, f.Close())
	if err == nil {
		if u, ok := l.(*net.UnixListener); ok {
			u.SetUnlinkOnClose(false) // the manager made it, and keeps it
			return l, nil
		}
		err = l.Close()
	}
	return nil, tga.Errorf(tga.ValidationError, "socket activation: descriptor %d is no listening unix socket: %w", firstHandedFD, err)
}

package daemon

import (
	"errors"
	"net"

	"golang.org/x/sys/unix"

	"github.com/tgad/tgad/schemas/tga"
)

// peersAreKnown says that the kernel can be asked who connected.
const peersAreKnown = true

// credentials asks the kernel who made a connection (SO_PEERCRED).
func credentials(c net.Conn) (uid, gid uint32, err error) {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return 0, 0, tga.Errorf(tga.PermissionDenied, "a %T has no peer credentials", c)
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return 0, 0, tga.Errorf(tga.PermissionDenied, "peer credentials: %w", err)
	}
	var cred *unix.Ucred
	var asked error
	err = raw.Control(func(fd uintptr) {
		cred, asked = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err = errors.Join(err, asked); err != nil {
		return 0, 0, tga.Errorf(tga.PermissionDenied, "peer credentials: %w", err)
	}
	return cred.Uid, cred.Gid, nil
}

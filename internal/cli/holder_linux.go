package cli

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// SameHolder reports whether the process that has the store in dir is the one that listens at
// socket. The lock file names the first; the kernel (SO_PEERCRED) names the second.
func SameHolder(dir, socket string) (bool, error) {
	b, err := os.ReadFile(filepath.Join(dir, "tgad.lock"))
	if err != nil {
		return false, err
	}
	holder, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return false, err
	}
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return false, err
	}
	var cred *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err := errors.Join(err, credErr); err != nil {
		return false, err
	}
	return int(cred.Pid) == holder, nil
}

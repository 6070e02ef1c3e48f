package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/access"
	"github.com/tgad/tgad/internal/filelock"
)

// The file engine.SocketName in a store's directory says where the daemon of the store listens:
// "PATH\nPID\n". With it a verb of the command finds the daemon by the directory alone.
//
// A daemon that is killed leaves the file behind, and its number in the store's lock. So a reader
// believes the file only while the lock names the same process, and somebody listens at the socket.

// named is the path of the socket, also of one that the service manager made.
func (s *socket) named() string {
	if u, ok := s.Addr().(*net.UnixAddr); ok && s.path == "" {
		return u.Name
	}
	return s.path
}

// nameSocket writes the file, and remove removes it. If the file cannot be written, the daemon still
// serves, but verbs must name its socket.
func (d *Daemon) nameSocket(dir string, s *socket) (remove func()) {
	warn := func(what string, err error) {
		d.log.Warn("the store's directory does not name the socket: --data does not find this daemon", "what", what, "error", err)
	}
	path, err := filepath.Abs(s.named())
	if err != nil {
		warn("its path", err)
		return func() {}
	}
	name := filepath.Join(dir, engine.SocketName)
	if err := writeSocketName(name, path); err != nil {
		warn("write", err)
		return func() {}
	}
	return func() {
		if err := os.Remove(name); err != nil {
			d.log.Warn("the file that names the socket stays; it is not believed", "error", err)
		}
	}
}

func writeSocketName(name, socket string) error {
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := access.Create(name)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%s\n%d\n", socket, os.Getpid())
	return errors.Join(err, f.Close())
}

// SocketOf returns the socket of the daemon that has the store in dir. ok is false if no process has
// the store, or if the one that has it answers at no socket, for example because it is still opening it.
func SocketOf(dir string) (socket string, ok bool) {
	raw, err := access.ReadFile(filepath.Join(dir, engine.SocketName))
	if err != nil {
		return "", false
	}
	path, rest, _ := strings.Cut(string(raw), "\n")
	pid, err := strconv.Atoi(strings.TrimSuffix(rest, "\n"))
	if err != nil || path == "" || !strings.HasSuffix(rest, "\n") {
		return "", false // the file is being written
	}
	return path, pid == filelock.Holder(filepath.Join(dir, engine.LockName)) && listens(path)
}

// listens reports whether a process listens at a socket, also if this user may not connect to it.
func listens(socket string) bool {
	c, err := net.Dial("unix", socket)
	if err != nil {
		return errors.Is(err, fs.ErrPermission)
	}
	return c.Close() == nil
}

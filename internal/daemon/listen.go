package daemon

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/tgad/tgad/internal/filelock"
	"github.com/tgad/tgad/internal/listen"
	"github.com/tgad/tgad/schemas/tga"
)

// MaxSocketPath is the longest path of a socket in bytes. The address of a unix socket
// has room for 107 on Linux and 103 on other systems; 104 with the terminating zero is
// what every system takes.
const MaxSocketPath = 104

// mostAddress is what this system takes, without the zero.
const mostAddress = 107

// socket is the listening socket with its lock file.
type socket struct {
	net.Listener
	path string // "" for a socket that the service manager handed in
	lock *os.File
}

// bind makes the socket at path, with mode 0660 and the given group ("": the process's own). If somebody removes the
// file of the socket, it is made again.
func bind(path, group string) (*socket, error) {
	s := &socket{path: path}
	l, err := listen.Stand(path, func() (*net.UnixListener, error) { return s.make(group) })
	if err != nil {
		return nil, errors.Join(err, s.unlock())
	}
	s.Listener = l
	return s, nil
}

// make makes the file of the socket.
//
// make binds the socket in a directory that only this user can enter, sets its mode and group
// there, and then moves it to its place. So at no moment can a user connect who may not. A strict
// umask would do the same, but a umask is the whole process's: a file that another goroutine
// makes meanwhile would get it too.
func (s *socket) make(group string) (l *net.UnixListener, err error) {
	gid, err := fits(s.path, group)
	if err != nil {
		return nil, err
	}
	dir := filepath.Dir(s.path)
	if err := socketDir(dir, gid); err != nil {
		return nil, err
	}
	// Without the lock, two daemons that start at the same time could take the path from each
	// other, between the dial of one and its rename. Take the lock again for each new socket
	// file: whoever removed the socket may have removed the lock file too.
	if err := s.unlock(); err != nil {
		return nil, unavailable("give up the socket's lock", err)
	}
	if s.lock, err = lockFile(s.path + ".lock"); err != nil {
		return nil, err
	}
	if err := unused(s.path); err != nil {
		return nil, err
	}
	private, err := privateDir(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(private)) }()
	temp := filepath.Join(private, "s")
	if len(temp) > mostAddress {
		return nil, tga.Errorf(tga.ValidationError, "the socket's directory %q is too long by %d bytes", dir, len(temp)-mostAddress)
	}
	l, err = net.ListenUnix("unix", &net.UnixAddr{Name: temp, Net: "unix"})
	if err != nil {
		return nil, unavailable("make socket", err)
	}
	l.SetUnlinkOnClose(false) // the file is moved, so net would remove a wrong path
	if err := moveIn(temp, s.path, group, gid); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// moveIn gives the socket at temp its group and mode, and moves it to path.
func moveIn(temp, path, group string, gid int) error {
	if gid >= 0 {
		if err := os.Chown(temp, -1, gid); err != nil {
			return unavailable("give the socket to group "+group, err)
		}
	}
	if err := os.Chmod(temp, 0o660); err != nil {
		return unavailable("make socket", err)
	}
	if err := os.Rename(temp, path); err != nil {
		return unavailable("make socket", err)
	}
	return nil
}

// fits refuses a path where the socket cannot be made. It changes nothing, so it can be called before the
// store is made. It does not look whether another process listens there. gid is the number of the group.
func fits(path, group string) (gid int, err error) {
	if n := len(path); n == 0 || n > MaxSocketPath {
		return 0, tga.Errorf(tga.ValidationError, "the socket path %q has %d bytes: want 1 to %d", path, n, MaxSocketPath)
	}
	if gid, err = groupID(group); err != nil {
		return 0, err
	}
	if info, err := os.Stat(filepath.Dir(path)); err == nil {
		if err := fitDir(filepath.Dir(path), info.Mode()); err != nil {
			return 0, err
		}
	}
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return gid, nil
	case err != nil:
		return 0, unavailable("look at "+path, err)
	case info.Mode().Type() != fs.ModeSocket:
		return 0, tga.Errorf(tga.PermissionDenied, "%s is there and is no socket (%v)", path, info.Mode())
	}
	if uid, ok := ownerOf(info); ok && int(uid) != os.Geteuid() {
		return 0, tga.Errorf(tga.PermissionDenied, "%s is the socket of uid %d", path, uid)
	}
	return gid, nil
}

// Close stops listening and removes the socket's file, unless another socket is there by now.
func (s *socket) Close() error {
	err := s.Listener.Close()
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	return errors.Join(err, s.unlock())
}

// unlock releases the lock beside the socket. The lock's file stays: to remove it could remove a file that the next
// daemon has locked already.
func (s *socket) unlock() error {
	if s.lock == nil {
		return nil
	}
	err := s.lock.Close()
	s.lock = nil
	return err
}

// socketDir makes the directory of a socket, with mode 0750 and the socket's group. If the
// directory is there already, socketDir checks its mode: a user who may write in it can put a
// socket of their own in the place of ours.
func socketDir(dir string, gid int) error {
	info, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return unavailable("make the socket's directory", err)
		}
		if gid >= 0 {
			if err := os.Chown(dir, -1, gid); err != nil {
				return unavailable("give the socket's directory to its group", err)
			}
		}
		return nil
	}
	if err != nil {
		return unavailable("look at the socket's directory", err)
	}
	return fitDir(dir, info.Mode())
}

func fitDir(dir string, mode fs.FileMode) error {
	if !mode.IsDir() || mode.Perm()&0o002 != 0 && mode&os.ModeSticky == 0 {
		return tga.Errorf(tga.PermissionDenied, "the socket's directory %s has mode %v: anybody could replace the socket", dir, mode)
	}
	return nil
}

// privateDir makes a directory that only this user can enter. Its name is short, because the
// path of the socket in it must fit into a socket address too.
func privateDir(parent string) (string, error) {
	var err error
	for range 16 {
		var name [2]byte
		if _, err := rand.Read(name[:]); err != nil {
			return "", unavailable("make socket", err)
		}
		dir := filepath.Join(parent, fmt.Sprintf(".t%x", name))
		if err = os.Mkdir(dir, 0o700); err == nil {
			return dir, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			break
		}
	}
	return "", unavailable("make socket", err)
}

// unused refuses a path if a process answers on the socket there. A socket that nobody listens on
// is left over from a daemon that was killed, and may be replaced.
func unused(path string) error {
	c, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		return errors.Join(tga.Errorf(tga.StateLockAcquireFailed, "somebody listens on %s", path), c.Close())
	}
	if !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, fs.ErrNotExist) {
		return tga.Errorf(tga.StateLockAcquireFailed, "%s may be in use: %w", path, err)
	}
	return nil
}

// lockFile takes the lock that a daemon holds beside its socket for as long as it runs.
func lockFile(path string) (*os.File, error) {
	f, err := filelock.Lock(path)
	switch {
	case errors.Is(err, filelock.ErrHeld):
		return nil, tga.Errorf(tga.StateLockAcquireFailed, "another daemon has the socket's lock %s: %w", path, err)
	case err != nil:
		return nil, unavailable("lock the socket", err)
	}
	return f, nil
}

// groupID is the number of a group, -1 for "".
func groupID(group string) (int, error) {
	if group == "" {
		return -1, nil
	}
	if n, err := strconv.Atoi(group); err == nil && n >= 0 {
		return n, nil
	}
	g, err := user.LookupGroup(group)
	if err != nil {
		return 0, tga.Errorf(tga.ValidationError, "socket group: %w", err)
	}
	return strconv.Atoi(g.Gid)
}

func unavailable(what string, err error) *tga.Error {
	return tga.Errorf(tga.StoreUnavailable, "%s: %w", what, err)
}

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

// socket is the listening socket with the lock that belongs to it on disk.
type socket struct {
	net.Listener
	path string // "" for one that was handed in
	lock *os.File
}

// bind makes the socket at path, mode 0660 and of a group, "" for the process's own. Where its file is removed, it is
// made anew.
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
// It is bound in a directory that only this user can enter, given its mode and owner
// there, and moved to its place: at no moment can somebody connect who may not. A closed
// umask would do the same, but it belongs to the whole process, and a file that another
// goroutine makes meanwhile would get it too.
func (s *socket) make(group string) (l *net.UnixListener, err error) {
	gid, err := fits(s.path, group)
	if err != nil {
		return nil, err
	}
	dir := filepath.Dir(s.path)
	if err := socketDir(dir, gid); err != nil {
		return nil, err
	}
	// The lock is what keeps two daemons that start at once from taking the path from
	// each other: between a dial and a rename there is time. It is taken anew with each
	// file: who removed that may have removed the lock's too.
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
	l.SetUnlinkOnClose(false) // it is not where it was bound
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

// fits refuses a place where no socket can be, whoever listens there: it is asked before a store is made.
// Nothing is changed. gid is the number of the group.
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

// Close stops listening and removes the socket, if it is still this one.
func (s *socket) Close() error {
	err := s.Listener.Close()
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	return errors.Join(err, s.unlock())
}

// unlock gives up the lock beside the socket. Its file stays: who removed it could remove one that a successor has
// locked.
func (s *socket) unlock() error {
	if s.lock == nil {
		return nil
	}
	err := s.lock.Close()
	s.lock = nil
	return err
}

// socketDir makes the directory of a socket with mode 0750 and of the socket's group, or
// checks the one there is: whoever may write in it may put a socket of their own in the
// place.
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

// privateDir makes a directory that only this user can enter. Its name is short: the
// address of the socket in it must not be longer than the socket's own.
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

// unused refuses a socket that somebody answers on. One that nobody listens on is the remains of a
// daemon that was killed, and is replaced.
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

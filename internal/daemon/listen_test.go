package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/schemas/tga"
)

func closing(t *testing.T, s *socket) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestSocketIsClosedToOthers looks at the socket as the system shows it, under an umask
// that closes nothing.
func TestSocketIsClosedToOthers(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0))
	dir := filepath.Join(shortDir(t), "run")
	s, err := bind(filepath.Join(dir, "tgad.sock"), "")
	if err != nil {
		t.Fatal(err)
	}
	defer closing(t, s)
	for path, want := range map[string]os.FileMode{dir: os.ModeDir | 0o750, s.path: os.ModeSocket | 0o660, s.path + ".lock": 0o600} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != want {
			t.Errorf("%s has mode %v, want %v", path, info.Mode(), want)
		}
	}
	names, err := os.ReadDir(dir)
	if err != nil || len(names) != 2 {
		t.Errorf("the directory holds %v %v, want the socket and its lock", names, err)
	}
}

func TestSocketHasTheGroup(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a file away")
	}
	dir := filepath.Join(shortDir(t), "run")
	s, err := bind(filepath.Join(dir, "tgad.sock"), "2000")
	if err != nil {
		t.Fatal(err)
	}
	defer closing(t, s)
	for _, path := range []string{dir, s.path} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if gid := info.Sys().(*syscall.Stat_t).Gid; gid != 2000 {
			t.Errorf("%s has group %d", path, gid)
		}
	}
}

func TestLiveSocketIsNeverStolen(t *testing.T) {
	path := filepath.Join(shortDir(t), "s.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s, err := bind(path, "")
	if err == nil {
		closing(t, s)
	}
	wantCode(t, err, tga.StateLockAcquireFailed)
	// The refused daemon has left the socket as it was.
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

func TestSecondDaemonIsRefused(t *testing.T) {
	b := start(t, "")
	other := setup(t, "")
	other.socket = b.socket
	wantCode(t, Run(t.Context(), other.options()), tga.StateLockAcquireFailed)
	other.socket, other.data = filepath.Join(other.dir, "s.sock"), b.data
	wantCode(t, Run(t.Context(), other.options()), tga.StateLockAcquireFailed)
	link := filepath.Join(other.dir, "link")
	if err := os.Symlink(b.data, link); err != nil {
		t.Fatal(err)
	}
	other.data = link
	wantCode(t, Run(t.Context(), other.options()), tga.StateLockAcquireFailed)
	if err := b.client.Ready(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestStaleSocketIsReplaced(t *testing.T) {
	path := filepath.Join(shortDir(t), "s.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false) // as a killed process leaves it
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	s, err := bind(path, "")
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	closing(t, s)
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("after Close the socket is there: %v", err)
	}
}

func TestCloseLeavesASuccessorsSocket(t *testing.T) {
	path := filepath.Join(shortDir(t), "s.sock")
	s, err := bind(path, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	closing(t, s)
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("another's socket was removed: %v", err)
	}
}

func TestSocketPathIsNotTakenOver(t *testing.T) {
	dir := shortDir(t)
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := bind(file, "")
	wantCode(t, err, tga.PermissionDenied)
	if raw, err := os.ReadFile(file); err != nil || string(raw) != "mine" {
		t.Errorf("the file holds %q %v", raw, err)
	}
	target := filepath.Join(dir, "target.sock")
	if err := os.Symlink(target, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	_, err = bind(filepath.Join(dir, "link"), "")
	wantCode(t, err, tga.PermissionDenied)

	open := filepath.Join(dir, "open")
	if err := os.Mkdir(open, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	_, err = bind(filepath.Join(open, "s.sock"), "")
	wantCode(t, err, tga.PermissionDenied)
}

// TestNoStoreWithoutASocket: if the socket cannot be made at its path, the daemon does not make a store.
func TestNoStoreWithoutASocket(t *testing.T) {
	dir := shortDir(t)
	for name, err := range map[string]error{
		"file": os.WriteFile(filepath.Join(dir, "file"), nil, 0o600), "link": os.Symlink("nowhere", filepath.Join(dir, "link")),
		"open": errors.Join(os.Mkdir(filepath.Join(dir, "open"), 0o700), os.Chmod(filepath.Join(dir, "open"), 0o777)),
	} {
		if err != nil {
			t.Fatal(name, err)
		}
	}
	for path, group := range map[string]string{
		"file": "", "link": "", "file/s": "", "file/deep/s": "", "open/s": "", strings.Repeat("s", MaxSocketPath): "", "s": "no such group",
	} {
		o := Options{Data: filepath.Join(dir, "data"), Socket: filepath.Join(dir, path), Config: config.Default(), Logger: slog.New(slog.DiscardHandler)}
		o.Config.Socket.Group = group
		if err := Run(t.Context(), o); err == nil {
			t.Errorf("%s: it served", path)
		}
		if _, err := os.Lstat(o.Data); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: a store was made: %v", path, err)
		}
	}
}

func TestForeignSocketIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make another user's socket")
	}
	path := filepath.Join(shortDir(t), "s.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(path, 2001, -1); err != nil {
		t.Fatal(err)
	}
	_, err = bind(path, "")
	wantCode(t, err, tga.PermissionDenied)
}

// TestSocketPathLimit: a path of 104 bytes is one that can be listened and dialled on,
// one byte more is refused with the number.
func TestSocketPathLimit(t *testing.T) {
	dir := shortDir(t)
	for length, ok := range map[int]bool{MaxSocketPath: true, MaxSocketPath + 1: false} {
		for _, base := range []string{"s.sock", strings.Repeat("s", 40)} {
			deep := filepath.Join(dir, strings.Repeat("d", length-len(dir)-len(base)-2))
			path := filepath.Join(deep, base)
			if len(path) != length {
				t.Fatalf("the test's path has %d bytes", len(path))
			}
			s, err := bind(path, "")
			if !ok {
				if wantCode(t, err, tga.ValidationError); err != nil && !strings.Contains(err.Error(), fmt.Sprint(length)) {
					t.Errorf("%v does not say how long the path is", err)
				}
				continue
			}
			if err != nil {
				t.Errorf("path of %d bytes: %v", length, err)
				continue
			}
			if c, err := net.Dial("unix", path); err != nil {
				t.Error(err)
			} else if err := c.Close(); err != nil {
				t.Error(err)
			}
			closing(t, s)
		}
	}
}

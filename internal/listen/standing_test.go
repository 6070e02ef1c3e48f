//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package listen

import (
	"errors"
	"io/fs"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestSocketThatIsGoneIsMadeAnew: whatever happens to the file, the process can be reached at its path
// again, by itself or once the obstacle is gone, and says so. It does not touch the obstacle.
func TestSocketThatIsGoneIsMadeAnew(t *testing.T) {
	for name, c := range map[string]struct {
		take func(t *testing.T, path string)
		says string // before free; "" = the socket is made anew at once
		free func(path string) error
	}{
		"removed":    {take: func(t *testing.T, path string) { must(t, os.Remove(path)) }},
		"moved away": {take: func(t *testing.T, path string) { must(t, os.Rename(path, path+"-moved")) }},
		"its directory moved away": {take: func(t *testing.T, path string) {
			dir := filepath.Dir(path)
			must(t, os.Rename(dir, dir+"-moved"))
			must(t, os.Mkdir(dir, 0o700))
		}},
		"its directory is missing": {
			take: func(t *testing.T, path string) { must(t, os.RemoveAll(filepath.Dir(path))) },
			says: "cannot be made anew",
			free: func(path string) error { return os.Mkdir(filepath.Dir(path), 0o700) },
		},
		"a socket of the dead in its place": {take: func(t *testing.T, path string) {
			must(t, os.Remove(path))
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
			must(t, err)
			l.SetUnlinkOnClose(false)
			must(t, l.Close())
		}},
		"a file in its place": {
			take: func(t *testing.T, path string) {
				must(t, os.Remove(path))
				must(t, os.WriteFile(path, []byte("mine"), 0o600))
			},
			says: "is there and is no socket",
			free: os.Remove,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, err := os.MkdirTemp("", "l")
			must(t, err)
			t.Cleanup(func() { must(t, errors.Join(os.RemoveAll(dir), os.RemoveAll(filepath.Join(dir, "d-moved")))) })
			path := filepath.Join(dir, "d", "s")
			must(t, os.Mkdir(filepath.Dir(path), 0o700))
			l, err := Unix(path, 0o640)
			must(t, err)
			said := &lines{}
			srv := &http.Server{Handler: http.NotFoundHandler(), ReadHeaderTimeout: time.Minute, ErrorLog: log.New(said, "", 0)}
			served := make(chan error, 1)
			go func() { served <- HTTP(srv, l) }()
			must(t, eventually(func() error { return reach(path) }))

			c.take(t, path)
			if c.free != nil {
				must(t, eventually(func() error { return has(said, c.says) }))
				if reach(path) == nil {
					t.Error("what stood in the way is not left alone")
				}
				must(t, c.free(path))
			}
			must(t, eventually(func() error { return reach(path) }))
			must(t, eventually(func() error { return has(said, "was gone, and is made anew") }))
			if n := strings.Count(said.String(), "\n"); n > 2 {
				t.Errorf("it is told %d times:\n%s", n, said)
			}
			if info, err := os.Lstat(path); err != nil || info.Mode().Perm() != 0o640 {
				t.Errorf("the socket that was made anew: %v %v", info, err)
			}
			must(t, srv.Close())
			if err := <-served; !errors.Is(err, http.ErrServerClosed) {
				t.Error(err)
			}
			if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("after its end the socket is there: %v", err)
			}
		})
	}
}

// TestClosedSocketIsNotMadeAnew: a close that comes while nobody accepts is final.
func TestClosedSocketIsNotMadeAnew(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := Unix(path, 0o600)
	must(t, err)
	must(t, os.Remove(path))
	must(t, l.Close())
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("accept: %v", err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is there: %v", err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually gives f ten seconds; a listener checks its file every second.
func eventually(f func() error) (err error) {
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if err = f(); err == nil {
			return nil
		}
	}
	return err
}

func reach(path string) error {
	c, err := net.Dial("unix", path)
	if err != nil {
		return err
	}
	return c.Close()
}

func has(said *lines, want string) error {
	if text := said.String(); !strings.Contains(text, want) {
		return errors.New("it says: " + text)
	}
	return nil
}

package daemon

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestDaemonWhoseSocketIsGoneIsReachedAgain: somebody removes the socket, or all that lies beside it, and a client that
// comes after that gets its answer. A second daemon does not get the path, and the one that had it takes it away at
// its end.
func TestDaemonWhoseSocketIsGoneIsReachedAgain(t *testing.T) {
	for name, take := range map[string]func(socket string) error{
		"the socket":             os.Remove,
		"the socket's directory": func(socket string) error { return os.RemoveAll(filepath.Dir(socket)) },
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t, "")
			b.socket = filepath.Join(filepath.Dir(b.socket), "d", "s")
			b.start()
			if _, err := b.client.Call(t.Context(), charge("order-1")); err != nil {
				t.Fatal(err)
			}
			if err := take(b.socket); err != nil {
				t.Fatal(err)
			}
			var code int
			for end := time.Now().Add(10 * time.Second); code != 200 && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
				if _, err := os.Lstat(b.socket); err == nil {
					code, _, _ = b.raw("GET", "/readyz", "")
				}
			}
			if code != 200 {
				t.Fatal("nobody answers at the socket's path")
			}
			if info, err := os.Lstat(b.socket); err != nil || info.Mode().Perm() != 0o660 {
				t.Errorf("the socket that was made anew: %v %v", info, err)
			}
			if _, err := lockFile(b.socket + ".lock"); err == nil {
				t.Error("the lock beside the socket is free")
			}
			if _, err := b.client.Call(t.Context(), charge("order-2")); err != nil {
				t.Error(err)
			}
			b.stop()
			if _, err := os.Lstat(b.socket); !os.IsNotExist(err) {
				t.Errorf("after its end the socket is there: %v", err)
			}
		})
	}
}

package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/runtime/client"
)

// TestVerifyAtASocketOfTheServiceManager: the package's socket is made by systemd, so for the kernel systemd listens there.
// The daemon that got it is the one that has the store all the same; another daemon's socket is refused.
func TestVerifyAtASocketOfTheServiceManager(t *testing.T) {
	t.Setenv("TGAD_DATA", "")
	dir, err := os.MkdirTemp("", "tgad-handed-") // a path that is not too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	at := func(name string) string { return filepath.Join(dir, name) }
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: at("s"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	file, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "LISTEN_FDS=1 LISTEN_PID=$$ exec tgad serve --data data --socket s")
	cmd.Dir, cmd.ExtraFiles = dir, []*os.File{file}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := client.New(at("s"), client.Options{})
	defer c.Close()
	if err := waitFor(func() error { return c.Ready(t.Context()) }); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(at("s"), at("link")); err != nil {
		t.Fatal(err)
	}
	for _, socket := range []string{"s", "link"} {
		if code, out, errs := says("verify", at("data"), "--socket", at(socket)); code != cli.ExitOK || !strings.Contains(out, "ok: open store") {
			t.Errorf("%s: exit code %d, %s%s", socket, code, out, errs)
		}
	}
	other := newHeld(t)
	defer other.serves(at("other"))()
	for _, socket := range []string{"other", "nowhere"} {
		if code, out, errs := says("verify", at("data"), "--socket", at(socket)); code != cli.ExitLocked {
			t.Errorf("%s: exit code %d, %s%s", socket, code, out, errs)
		}
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tgad/tgad/internal/cli"
)

// TestInterruptEndsRestoreAndLeavesNothing sends SIGINT to a restore that is in the middle of a
// long file.
func TestInterruptEndsRestoreAndLeavesNothing(t *testing.T) {
	h := newHeld(t)
	dir := filepath.Dir(h.data)
	// It takes no room but for what is copied until the signal.
	long, err := os.Create(filepath.Join(h.data, "999999.sst"))
	if err == nil {
		err = errors.Join(long.Truncate(4<<30), long.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(dir, "restored")
	cmd := exec.Command("tgad", "restore", h.data, "--data", to)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	copying := waitFor(func() error {
		info, err := os.Stat(filepath.Join(to+".partial", "999999.sst"))
		if err == nil && info.Size() == 0 {
			err = errors.New("it has not begun")
		}
		return err
	})
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Error(err)
	}
	err = cmd.Wait()
	if copying != nil {
		t.Fatalf("%v: %v %s", copying, err, stderr.String())
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != cli.ExitInterrupted {
		t.Errorf("%v: %s", err, stderr.String())
	}
	for _, left := range []string{to, to + ".partial"} {
		if _, err := os.Stat(left); !errors.Is(err, syscall.ENOENT) {
			t.Errorf("%s is left: %v", left, err)
		}
	}
}

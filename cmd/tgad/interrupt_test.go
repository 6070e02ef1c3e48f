package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/client"
)

// TestInterruptEndsRestoreAndLeavesNothing sends SIGINT to a restore that is in the middle of a
// long file.
func TestInterruptEndsRestoreAndLeavesNothing(t *testing.T) {
	h := newHeld(t)
	dir := filepath.Dir(h.data)
	// The file takes no room except for the part that is copied before the signal.
	long, err := os.Create(filepath.Join(h.data, "log", "long"))
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
		info, err := os.Stat(filepath.Join(to+".partial", "log", "long"))
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

// interrupted waits for a process that was sent SIGINT. It must end by itself, with the exit
// code of an interrupt.
func interrupted(t *testing.T, cmd *exec.Cmd, stderr fmt.Stringer) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != cli.ExitInterrupted {
			t.Errorf("%v: %s", err, stderr)
		}
	case <-time.After(30 * time.Second):
		t.Error("it does not end")
		_ = cmd.Process.Kill()
		<-ended
	}
}

// TestInterruptEndsVerifyOfAFile sends SIGINT to the check of a file while most of the file is still unread.
func TestInterruptEndsVerifyOfAFile(t *testing.T) {
	h := newHeld(t)
	code, one, errs := says("export", "--data", h.data)
	if code != 0 {
		t.Fatalf("%d %s", code, errs)
	}
	path := filepath.Join(filepath.Dir(h.data), "long.ndjson")
	// Exports can be concatenated: the check takes seconds, and the file is right to its end.
	if err := os.WriteFile(path, bytes.Repeat([]byte(one), (96<<20)/len(one)), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("tgad", "verify", path, "--progress")
	var out strings.Builder
	cmd.Stdout = &out
	errOut, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	// The first report of progress: the check has begun to read.
	if _, err := io.ReadFull(errOut, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	said, err := io.ReadAll(errOut)
	if err != nil {
		t.Error(err)
	}
	interrupted(t, cmd, bytes.NewBuffer(said))
	if out.String() != "" {
		t.Errorf("it has come to a verdict: %s", &out)
	}
}

// fill adds calls with long arguments.
func (h *held) fill(n, size int) {
	h.t.Helper()
	socket := filepath.Join(filepath.Dir(h.data), "fill")
	defer h.serves(socket)()
	c := client.New(socket, client.Options{})
	defer c.Close()
	for range n {
		b, err := c.Begin(h.t.Context(), runtime.BeginRequest{BeginID: uuid.NewString(), Request: runtime.Request{
			Server: "x", Tool: "done", Key: uuid.NewString(), Args: fmt.Appendf(nil, `{"text":%q}`, strings.Repeat("x", size)),
		}})
		if err == nil {
			_, err = c.Finish(h.t.Context(), b.Result.TraceID, b.Permit, runtime.Finished{Reply: runtime.Reply{Status: "SUCCESS", Result: []byte(`1`)}})
		}
		if err != nil {
			h.t.Fatal(err)
		}
	}
}

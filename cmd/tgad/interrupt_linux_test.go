package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tgad/tgad/internal/ndjson"
)

// TestInterruptedExportIsNoWholeOne: the reader has stopped, as a pager does. The process still ends, and
// its output can be told from a complete export.
func TestInterruptedExportIsNoWholeOne(t *testing.T) {
	h := newHeld(t)
	h.fill(8, 256<<10)
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	var stderr strings.Builder
	cmd := exec.Command("tgad", "export", "--data", h.data)
	cmd.Stdout, cmd.Stderr = out, &stderr
	err = errors.Join(cmd.Start(), out.Close())
	if err != nil {
		t.Fatal(err)
	}
	full := waitFor(func() error {
		if n, err := unix.IoctlGetInt(int(in.Fd()), unix.TIOCINQ); err != nil || n < 48<<10 {
			return fmt.Errorf("%d bytes are in the pipe, %w", n, err)
		}
		return nil
	})
	if full != nil {
		t.Error(full)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	interrupted(t, cmd, &stderr)
	wrote, err := io.ReadAll(in)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = ndjson.Verify(bytes.NewReader(wrote)); err == nil || len(wrote) == 0 {
		t.Errorf("%d bytes of an export that was interrupted verify: %v", len(wrote), err)
	}
}

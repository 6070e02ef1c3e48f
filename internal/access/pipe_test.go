//go:build unix

package access

import (
	"path/filepath"
	"syscall"
	"testing"
)

// TestPipeIsNotRead: to read a pipe would wait until somebody writes to it.
func TestPipeIsNotRead(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if raw, err := ReadFile(pipe); err == nil {
		t.Errorf("it has %q", raw)
	}
}

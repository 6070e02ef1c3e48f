//go:build unix

package checkpoint

import (
	"path/filepath"
	"syscall"
	"testing"
)

// TestPipeIsNoPlace: a pipe in the place of a checkpoint is an error, and is not waited for.
func TestPipeIsNoPlace(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if raw, err := (Directory{Path: pipe}).Newest(t.Context(), nil, nil); err == nil {
		t.Errorf("it has %q", raw)
	}
}

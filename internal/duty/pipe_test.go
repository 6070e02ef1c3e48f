//go:build unix

package duty

import (
	"path/filepath"
	"syscall"
	"testing"
)

// TestPipeIsNoState: a pipe in the place of the kept state is an error. A daemon that waited for it would neither begin nor end.
func TestPipeIsNoState(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if kept, _, err := File(pipe).Take(t.Context()); err == nil {
		t.Errorf("it has %q", kept)
	}
}

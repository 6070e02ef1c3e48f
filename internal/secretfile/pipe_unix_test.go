//go:build unix

package secretfile

import (
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestPipeIsNoSecret: opening a pipe waits for its writer, and a start or a reload must not wait.
func TestPipeIsNoSecret(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	read := make(chan error, 1)
	go func() {
		_, err := Read(pipe)
		read <- err
	}()
	select {
	case err := <-read:
		if err == nil {
			t.Error("a pipe is read as a secret")
		}
	case <-time.After(10 * time.Second):
		t.Error("it waits for somebody who writes to the pipe")
	}
}

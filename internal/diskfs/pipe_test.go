//go:build unix

package diskfs

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestPipeIsNoFile: a pipe in the place of a file is refused. To open it for reading would wait for a writer.
func TestPipeIsNoFile(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OS().OpenReadWrite(pipe, vfs.WriteCategoryUnspecified); err == nil {
		t.Error("it is opened for writing")
	}
	ended := make(chan error)
	go func() {
		_, err := OS().Open(pipe)
		ended <- err
	}()
	writer, err := vfs.Default.OpenReadWrite(pipe, vfs.WriteCategoryUnspecified) // for both, so that a reader would get it
	if err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("it is opened for reading")
	}
	if err := writer.Close(); err != nil {
		t.Error(err)
	}
}

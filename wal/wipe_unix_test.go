//go:build unix

package wal

import (
	"bytes"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestWipeWaitsForReaders: who began to read a segment before it was exchanged, without a pin, as a
// follower does, still finds in the old file what was there.
func TestWipeWaitsForReaders(t *testing.T) {
	b := newBench(t, &removing{FS: vfs.NewMem(), links: oneLink, seen: map[string][]byte{}})
	for range 90 {
		b.append(2, 100<<10)
	}
	if err := b.log.Wipe(true); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	if err := b.log.handles.with(2, func(h *handle) error {
		before, after := make([]byte, h.length), make([]byte, h.length)
		if _, err := h.ReadAt(before, 0); err != nil {
			return err
		}
		go func() {
			_, err := b.log.Rewrite(t.Context(), 2, even, nil)
			ended <- err
		}()
		for b.log.handles.generation(2) == 0 { // exchanged
			time.Sleep(time.Millisecond)
		}
		select {
		case err := <-ended:
			t.Errorf("it did not wait: %v", err)
			ended <- err
		case <-time.After(50 * time.Millisecond):
		}
		if _, err := h.ReadAt(after, 0); err != nil {
			return err
		}
		if !bytes.Equal(before, after) {
			t.Error("the file is wiped under its reader")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

package wal

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestFilesUsedLastStayOpen: as many as may be, and no more; none once the log is closed.
func TestFilesUsedLastStayOpen(t *testing.T) {
	b := newBenchOf(t, vfs.NewMem(), MinSegment)
	for b.last.Segment < 5 {
		b.append(1, 14<<10)
	}
	h := &b.log.handles
	h.limit = 2
	for _, c := range []struct {
		use  uint64
		open []uint64
	}{{1, []uint64{1}}, {2, []uint64{1, 2}}, {1, []uint64{1, 2}}, {3, []uint64{1, 3}}, {4, []uint64{3, 4}}, {3, []uint64{3, 4}}, {1, []uint64{1, 3}}} {
		if err := h.with(c.use, func(*handle) error { return nil }); err != nil {
			t.Fatal(err)
		}
		if got := slices.Sorted(maps.Keys(h.open)); !slices.Equal(got, c.open) {
			t.Errorf("after a read of segment %d the files of %d are open, want %d", c.use, got, c.open)
		}
	}
	if err := h.close(); err != nil || len(h.open) != 0 {
		t.Errorf("%d files are open in a closed log, %v", len(h.open), err)
	}
}

// TestQuietWaitsForThePinsBefore, in every era, and for none that is taken later: who erases would
// remove what somebody is reading, or wait as long as anybody reads at all.
func TestQuietWaitsForThePinsBefore(t *testing.T) {
	var h handles
	h.init(files{}, Options{})
	for era := range 4 {
		before := h.pin()
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := h.quiet(ended); !errors.Is(err, context.Canceled) {
			t.Fatalf("era %d: quiet beside a pin: %v", era, err)
		}
		quiet := make(chan error, 1)
		go func() { quiet <- h.quiet(t.Context()) }()
		was := before
		for deadline := time.Now().Add(time.Minute); was < before+2; { // quiet has begun its era
			if time.Now().After(deadline) {
				t.Fatalf("era %d: it does not begin another", era)
			}
			h.mu.Lock()
			was = h.era
			h.mu.Unlock()
			time.Sleep(time.Millisecond)
		}
		later := h.pin()
		h.unpin(before)
		select {
		case err := <-quiet:
			if err != nil {
				t.Fatal(err)
			}
		case <-time.After(time.Minute):
			t.Fatalf("era %d: it waits for a pin that was taken later", era)
		}
		h.unpin(later)
	}
}

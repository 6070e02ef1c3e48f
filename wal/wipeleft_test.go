package wal

import (
	"bytes"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// TestWipeLeavesTheFileOfARewrite: while a rewrite waits for a pin, its file is whole and verified. A wipe that is asked for
// then does not fill it with zeros: the segment is about to be read from it, and the old file is about to go.
func TestWipeLeavesTheFileOfARewrite(t *testing.T) {
	decoder() // else the bubble makes it, and no other test could use its channel
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &removing{FS: vfs.NewMem(), links: oneLink, seen: map[string][]byte{}})
		for range 9 {
			b.append(1, 900<<10)
		}
		unpin := b.log.Pin()
		ended := make(chan error, 1)
		go func() {
			_, err := b.log.Rewrite(t.Context(), 1, every, nil)
			ended <- err
		}()
		synctest.Wait()
		if len(ended) > 0 {
			t.Fatal("the rewrite does not wait for the pin")
		}
		if err := b.log.Wipe(true); err != nil {
			t.Error(err)
		}
		unpin()
		if err := <-ended; err != nil {
			t.Errorf("the rewrite: %v", err)
		}
		if r, err := b.read(); err != nil || r.tail.Doubt != nil || len(r.errs) > 0 || !b.same(r) {
			t.Errorf("after it: %+v %v %v", r.tail, r.errs, err)
		}
	})
}

// TestFailedRewriteIsWiped: what a rewrite has written by then may be erased meanwhile.
func TestFailedRewriteIsWiped(t *testing.T) {
	fs := &removing{FS: vfs.NewMem(), links: oneLink, seen: map[string][]byte{}}
	b := newBench(t, fs)
	for range 9 {
		b.append(1, 900<<10)
	}
	stop := errors.New("stop")
	for _, on := range []bool{false, true} {
		if err := b.log.Wipe(on); err != nil {
			t.Fatal(err)
		}
		if _, err := b.log.Rewrite(t.Context(), 1, func(*Op) (bool, error) { return false, stop }, nil); !errors.Is(err, stop) {
			t.Fatal(err)
		}
		left := bytes.Trim(fs.seen["log/"+packingName], "\x00")
		if zeros := len(left) == 0; zeros != (on && oneLink != nil) {
			t.Errorf("wiped: %v, with wiping %v", zeros, on)
		}
	}
}

// TestReplacedFileThatStayedGoesLater: if the old file of a rewritten segment cannot be wiped or removed, it goes with the next
// rewrite of any segment, or with the next wipe. Otherwise it would take its space until the next open, and what is erased would
// stand in it.
func TestReplacedFileThatStayedGoesLater(t *testing.T) {
	old := "log/" + segmentName(2)
	for _, failing := range []errorfs.OpKind{errorfs.OpFileWriteAt, errorfs.OpRemove} {
		for _, later := range []string{"a rewrite", "a wipe", "a wipe that fails too", "another rewrite of it"} {
			t.Run(fmt.Sprintf("operation %d, then %s", failing, later), func(t *testing.T) {
				if failing == errorfs.OpFileWriteAt && oneLink == nil {
					t.Skip("nothing is wiped on this system")
				}
				var fail atomic.Bool
				full := errors.New("full")
				fs := &removing{links: oneLink, seen: map[string][]byte{}, FS: errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
					if fail.Load() && op.Kind == failing && op.Path == old {
						return full
					}
					return nil
				}))}
				b := newBench(t, fs)
				for range 90 {
					b.append(2, 100<<10)
				}
				if err := b.log.Wipe(true); err != nil {
					t.Fatal(err)
				}
				fail.Store(true)
				if _, err := b.log.Rewrite(t.Context(), 2, even, nil); !errors.Is(err, full) {
					t.Fatalf("the rewrite: %v", err)
				}
				if later == "a wipe that fails too" {
					if err := b.log.Wipe(true); !errors.Is(err, full) {
						t.Errorf("the old file is still there, and the wipe says %v", err)
					}
				}
				fail.Store(false)
				var err error
				switch later {
				case "a rewrite":
					_, err = b.log.Rewrite(t.Context(), 3, even, nil)
				case "another rewrite of it":
					_, err = b.log.Rewrite(t.Context(), 2, even, nil)
				default:
					err = b.log.Wipe(true)
				}
				if err != nil {
					t.Fatal(err)
				}
				if _, err := fs.Stat(old); err == nil {
					t.Error("the old file is still there")
				}
				if left := bytes.Trim(fs.seen[old], "\x00"); len(left) > 0 && oneLink != nil {
					t.Errorf("%d bytes of it were removed as they were", len(left))
				}
				if r, err := b.read(); err != nil || r.tail.Doubt != nil {
					t.Errorf("%+v %v", r.tail, err)
				}
			})
		}
	}
}

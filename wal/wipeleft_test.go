package wal

import (
	"bytes"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"
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

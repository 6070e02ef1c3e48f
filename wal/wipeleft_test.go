package wal

import (
	"bytes"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/tgad/tgad/schemas/tga"
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
	operations := []errorfs.OpKind{errorfs.OpRemove}
	if oneLink != nil { // else nothing is wiped
		operations = append(operations, errorfs.OpFileWriteAt)
	}
	for _, failing := range operations {
		for _, later := range []string{"a rewrite", "a wipe", "a wipe that fails too", "another rewrite of it"} {
			t.Run(fmt.Sprintf("operation %d, then %s", failing, later), func(t *testing.T) {
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

// TestReplacedFileThatStaysKeepsNoOther: a replaced file that cannot be removed does not keep the files of other segments.
func TestReplacedFileThatStaysKeepsNoOther(t *testing.T) {
	full := errors.New("full")
	b := newBench(t, errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpRemove && op.Path == "log/"+segmentName(1) {
			return full
		}
		return nil
	})))
	for range 90 {
		b.append(2, 100<<10)
	}
	for n := range uint64(3) {
		if _, err := b.log.Rewrite(t.Context(), n+1, even, nil); !errors.Is(err, full) {
			t.Errorf("segment %d: the file that stays is not told: %v", n+1, err)
		}
		_, err := b.fs.Stat("log/" + segmentName(n+1))
		if there := err == nil; there != (n == 0) {
			t.Errorf("segment %d: its old file is there: %v", n+1, there)
		}
	}
}

// TestReaderOfAReplacedFile: a reader has the old file of a segment while the segment is rewritten, and a wipe begins before
// the old file is gone. The wipe waits, so the reader finds no zeros in the file.
func TestReaderOfAReplacedFile(t *testing.T) {
	decoder() // else the bubble makes it, and no other test could use its channel
	synctest.Test(t, func(t *testing.T) {
		var fail atomic.Bool
		full := errors.New("full")
		fs := &removing{links: oneLink, seen: map[string][]byte{}, FS: errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if fail.Load() && op.Kind == errorfs.OpRemove {
				return full
			}
			return nil
		}))}
		b := newBench(t, fs)
		for range 9 {
			b.append(1, 900<<10)
		}
		goOn, ended := make(chan bool), make(chan error, 1)
		go func() {
			ended <- b.log.handles.with(1, func(h *handle) error {
				before, after := make([]byte, 1<<20), make([]byte, 1<<20)
				_, err := h.ReadAt(before, 0)
				<-goOn
				_, again := h.ReadAt(after, 0)
				if !bytes.Equal(before, after) {
					return errors.New("the file has changed")
				}
				return errors.Join(err, again)
			})
		}()
		synctest.Wait()
		fail.Store(true)
		if _, err := b.log.Rewrite(t.Context(), 1, every, nil); !errors.Is(err, full) {
			t.Errorf("the rewrite: %v", err)
		}
		fail.Store(false)
		wiped := make(chan error, 1)
		go func() { wiped <- b.log.Wipe(true) }()
		synctest.Wait()
		if len(wiped) > 0 {
			t.Error("the wipe does not wait for the reader")
		}
		close(goOn)
		if err := <-ended; err != nil {
			t.Errorf("the reader: %v", err)
		}
		if err := <-wiped; err != nil {
			t.Error(err)
		}
		if _, err := b.fs.Stat("log/" + segmentName(1)); err == nil {
			t.Error("the old file is still there")
		}
	})
}

// TestWipeWaitsForWhatIsBeingRemoved: a file that is being removed when an erasure begins may have what is to be erased. It is
// removed as it is, but before the erasure destroys anything: afterwards nobody could do more about it.
func TestWipeWaitsForWhatIsBeingRemoved(t *testing.T) {
	var b *bench
	var begun atomic.Bool
	wiping := make(chan error, 1)
	b = newBench(t, errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpRemove && op.Path == "log/"+segmentName(1) && !begun.Swap(true) {
			go func() { wiping <- b.log.Wipe(true) }()
			select {
			case err := <-wiping:
				t.Errorf("it did not wait: %v", err)
				wiping <- err
			case <-time.After(100 * time.Millisecond):
			}
		}
		return nil
	})))
	for range 9 {
		b.append(1, 900<<10)
	}
	if _, err := b.log.Rewrite(t.Context(), 1, every, nil); err != nil {
		t.Fatal(err)
	}
	if err := <-wiping; err != nil {
		t.Error(err)
	}
}

// TestSweepBesideAppends: a file that gets its name, and its record, after the directory was listed is neither removed nor
// missed.
func TestSweepBesideAppends(t *testing.T) {
	during := func() {}
	b := newBench(t, &listing{vfs.NewMem(), func() { during() }})
	var f File
	var err error
	if f, err = b.log.WriteFile([]byte("a"), []byte("body")); err != nil {
		t.Fatal(err)
	}
	half := "log/" + bodyName(f.ID) + unfinished
	if err := b.fs.Rename("log/"+bodyName(f.ID), half); err != nil { // as it was a moment ago
		t.Fatal(err)
	}
	during = func() {
		during = func() {}
		if err := b.fs.Rename(half, "log/"+bodyName(f.ID)); err != nil {
			t.Fatal(err)
		}
		var g Group
		o := new(Ops)
		o.PutFile([]byte("a"), nil, f)
		g.Add(o, MaxRecord)
		if _, err := b.log.Append(&g); err != nil {
			t.Fatal(err)
		}
	}
	live := func([]byte, File) (bool, error) { return true, nil }
	for range 2 {
		if n, _, err := b.log.Sweep(t.Context(), live); n != 0 || err != nil {
			t.Errorf("%d removed, %v", n, err)
		}
	}
	if body, err := b.log.ReadFile(f, []byte("a")); string(body) != "body" {
		t.Errorf("%q, %v", body, err)
	}
	if _, err := b.log.ReadFile(File{ID: tga.ID{9}}, []byte("a")); err == nil {
		t.Error("a file that was never written is read")
	}
}

// listing calls then after each list of a directory.
type listing struct {
	vfs.FS
	then func()
}

func (l *listing) Unwrap() vfs.FS { return l.FS }

func (l *listing) List(dir string) ([]string, error) {
	names, err := l.FS.List(dir)
	l.then()
	return names, err
}

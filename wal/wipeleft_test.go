package wal

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

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

// TestWipeThatACrashEnded: wherever the wipe of a body's file ends, the next sweep removes the file, wiped where that is asked
// for. Until then no copy has the file.
func TestWipeThatACrashEnded(t *testing.T) {
	if oneLink == nil {
		t.Skip("nothing is wiped on this system")
	}
	ends := 0
	for more := true; more; ends++ {
		t.Run(fmt.Sprint("at operation ", ends), func(t *testing.T) {
			secret := []byte("a secret ")
			var left atomic.Int64
			left.Store(1 << 40)
			gone := errors.New("the process is gone")
			mem := vfs.NewMem()
			b := newBench(t, &removing{links: oneLink, seen: map[string][]byte{}, FS: errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
				if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && left.Add(-1) < 0 {
					return gone
				}
				return nil
			}))})
			key := []byte("a")
			f, err := b.log.WriteFile(key, bytes.Repeat(secret, 3*piece/len(secret)))
			if err != nil {
				t.Fatal(err)
			}
			var g Group
			o, then := new(Ops), new(Ops)
			o.PutFile(key, nil, f)
			then.Delete(key)
			g.Add(o, MaxRecord)
			g.Add(then, MaxRecord)
			if _, err := b.log.Append(&g); err != nil {
				t.Fatal(err)
			}
			if err := b.log.Wipe(true); err != nil {
				t.Fatal(err)
			}
			dead := func([]byte, File) (bool, error) { return false, nil }
			left.Store(int64(ends))
			_, err = b.log.Sweep(t.Context(), dead)
			more = err != nil
			b.log.Close()

			fs := &removing{FS: mem, links: oneLink, seen: map[string][]byte{}}
			b.fs = fs
			l, err := Open(b.options())
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			tail, err := l.Scan(Position{}, func(*Record) error { return nil })
			if err = errors.Join(err, l.Resume(tail), l.Wipe(true), mem.MkdirAll("copy", 0o700)); err != nil {
				t.Fatal(err)
			}
			end, list, err := l.CopyTo(t.Context(), mem, "copy", nil)
			if err == nil {
				err = VerifyCopy(t.Context(), Options{FS: mem, Dir: "copy"}, Position{}, end, list)
			}
			if err != nil {
				t.Errorf("a copy meanwhile: %v", err)
			}
			if _, err := l.Sweep(t.Context(), dead); err != nil {
				t.Error(err)
			}
			names, err := mem.List("log")
			if err != nil || slices.ContainsFunc(names, func(name string) bool { return strings.Contains(name, bodySuffix) }) {
				t.Errorf("there are %v, %v", names, err)
			}
			for name, b := range fs.seen {
				if bytes.Contains(b, secret) {
					t.Errorf("%s is removed with the secret in it", name)
				}
			}
		})
	}
	if ends < 6 {
		t.Errorf("the wipe ends after %d operations", ends)
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
		if n, err := b.log.Sweep(t.Context(), live); n != 0 || err != nil {
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

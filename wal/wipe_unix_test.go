//go:build unix

package wal

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
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

// racing begins a copy once a rewrite has waited for its pins, and lets the rewrite wipe the old file of segment 2
// between the moment at which it counted the file's names and the moment at which the copy makes another one.
type racing struct {
	vfs.FS
	copy                   func()
	begun, wiping, hasLink chan struct{}
	links                  atomic.Int64
}

func (r *racing) Rename(from, to string) error {
	err := r.FS.Rename(from, to)
	if to == "log/"+packedName(2, 1) {
		go r.copy()
		<-r.begun
	}
	return err
}

func (r *racing) Link(from, to string) error {
	if from != "log/"+segmentName(2) {
		return r.FS.Link(from, to)
	}
	close(r.begun)
	select {
	case <-r.wiping:
	case <-time.After(50 * time.Millisecond): // it waits for the copy
	}
	defer close(r.hasLink)
	r.links.Add(1)
	return r.FS.Link(from, to)
}

func (r *racing) Stat(name string) (vfs.FileInfo, error) {
	info, err := r.FS.Stat(name)
	if name == "log/"+segmentName(2) && r.links.Load() > 0 {
		return named{info, twoLinks}, err
	}
	return named{info, oneLink}, err
}

func (r *racing) OpenReadWrite(name string, c vfs.DiskWriteCategory, o ...vfs.OpenOption) (vfs.File, error) {
	if name == "log/"+segmentName(2) {
		close(r.wiping)
		<-r.hasLink
	}
	return r.FS.OpenReadWrite(name, c, o...)
}

// TestWipeWaitsForCopies: a copy that knows the old file of a segment has it whole, though the rewrite
// waited for the pins before the copy took its own.
func TestWipeWaitsForCopies(t *testing.T) {
	mem := vfs.NewMem()
	r := &racing{FS: mem, begun: make(chan struct{}), wiping: make(chan struct{}), hasLink: make(chan struct{})}
	b := newBench(t, mem)
	for range 90 {
		b.append(2, 100<<10)
	}
	if err := b.log.Close(); err != nil {
		t.Fatal(err)
	}
	b.fs = r
	l, err := Open(b.options())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	tail, err := l.Scan(Position{}, func(*Record) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(l.Resume(tail), l.Wipe(true), mem.MkdirAll("copy", 0o700)); err != nil {
		t.Fatal(err)
	}
	copied := make(chan error, 1)
	r.copy = func() {
		end, list, err := l.CopyTo(t.Context(), r, "copy", nil)
		if err == nil {
			err = VerifyCopy(t.Context(), Options{FS: mem, Dir: "copy"}, Position{}, end, list)
		}
		copied <- err
	}
	if _, err := l.Rewrite(t.Context(), 2, even, nil); err != nil {
		t.Error(err)
	}
	if err := <-copied; err != nil {
		t.Errorf("the copy: %v", err)
	}
}

// TestWipeThatACrashEnded: wherever the wipe of a body's file ends, the next sweep removes the file, wiped where that is asked
// for. Until then no copy has the file.
func TestWipeThatACrashEnded(t *testing.T) {
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
			_, _, err = b.log.Sweep(t.Context(), dead)
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
			if _, _, err := l.Sweep(t.Context(), dead); err != nil {
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

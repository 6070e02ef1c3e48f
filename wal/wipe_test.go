package wal

import (
	"bytes"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// removing keeps what is in each file that is removed, and says how many names files have.
type removing struct {
	vfs.FS
	links any
	seen  map[string][]byte
}

func (r *removing) Unwrap() vfs.FS { return r.FS }

func (r *removing) Stat(name string) (vfs.FileInfo, error) {
	info, err := r.FS.Stat(name)
	return named{info, r.links}, err
}

func (r *removing) Remove(name string) error {
	if info, err := r.FS.Stat(name); err == nil {
		f, err := r.FS.Open(name)
		if err != nil {
			return err
		}
		b := make([]byte, info.Size())
		if _, err := f.ReadAt(b, 0); err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
		r.seen[name] = b
	}
	return r.FS.Remove(name)
}

type named struct {
	vfs.FileInfo
	links any
}

func (n named) Sys() any { return n.links }

// TestWipedFilesAreZeros: a file that a rewrite replaces is filled with zeros before it is
// removed, if Wipe is on and the file has one name.
func TestWipedFilesAreZeros(t *testing.T) {
	for name, c := range map[string]struct {
		links any
		on    bool
		zeros bool
	}{
		"asked for":       {oneLink, true, oneLink != nil},
		"not asked for":   {oneLink, false, false},
		"with two names":  {twoLinks, true, false},
		"of unknown name": {nil, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			fs := &removing{FS: vfs.NewMem(), links: c.links, seen: map[string][]byte{}}
			b := newBench(t, fs)
			for range 90 {
				b.append(2, 100<<10)
			}
			if err := b.log.Wipe(c.on); err != nil {
				t.Fatal(err)
			}
			if _, err := b.log.Rewrite(t.Context(), 2, even, nil); err != nil {
				t.Fatal(err)
			}
			old, ok := fs.seen["log/"+segmentName(2)]
			if !ok {
				t.Fatal("the old file is still there")
			}
			if zeros := len(bytes.Trim(old, "\x00")) == 0; zeros != c.zeros {
				t.Errorf("zeros: %v, want %v", zeros, c.zeros)
			}
		})
	}
}

// TestEndedSegmentCanBeRewritten: after EndSegment the newest segment is one that is full, and the
// log goes on in the next one.
func TestEndedSegmentCanBeRewritten(t *testing.T) {
	b := newBench(t, vfs.NewMem())
	b.append(2, 100)
	if full := b.log.Full(); len(full) != 0 {
		t.Fatalf("full: %v", full)
	}
	if err := b.log.EndSegment(); err != nil {
		t.Fatal(err)
	}
	b.append(2, 100)
	if full := b.log.Full(); len(full) != 1 || full[0].Number != 1 || b.last.Segment != 2 {
		t.Fatalf("full: %v, the newest record is in segment %d", full, b.last.Segment)
	}
	if _, err := b.log.Rewrite(t.Context(), 1, even, nil); err != nil {
		t.Fatal(err)
	}
	if err := b.log.Close(); err != nil {
		t.Fatal(err)
	}
	if err := b.log.EndSegment(); err == nil {
		t.Error("a closed log begins a segment")
	}
}

// TestRetainedBodies: Retains finds a body that is still in a segment, raw or packed, and none
// that a rewrite left out.
func TestRetainedBodies(t *testing.T) {
	b := newBench(t, vfs.NewMem())
	for range 90 {
		b.append(2, 100<<10)
	}
	asked := 0
	retained := func(key string) bool {
		t.Helper()
		found := false
		for _, seg := range b.log.Full() {
			has, err := b.log.Retains(t.Context(), seg.Number, func(op *Op) (bool, error) {
				asked++
				return string(op.Key) == key, nil
			})
			if err != nil {
				t.Fatal(err)
			}
			found = found || has
		}
		return found
	}
	var keys []string
	for key, seg := range b.places() {
		if seg == 2 {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	for rewritten := range 2 {
		for _, key := range keys {
			keep, err := even(&Op{Key: []byte(key)})
			if err != nil {
				t.Fatal(err)
			}
			if got := retained(key); got != (keep || rewritten == 0) {
				t.Errorf("%d rewrites, key %q is retained: %v", rewritten, key, got)
			}
		}
		if _, err := b.log.Rewrite(t.Context(), 2, even, nil); err != nil {
			t.Fatal(err)
		}
	}
	if retained("of nobody") || asked == 0 || len(keys) < 2 {
		t.Errorf("%d keys, %d were asked for", len(keys), asked)
	}
	if _, err := b.log.Retains(t.Context(), 1000, every); err == nil {
		t.Error("a segment that is not there was read")
	}
}

// TestDroppedBodyFileIsZeros: the file of a body whose append was refused is wiped too.
func TestDroppedBodyFileIsZeros(t *testing.T) {
	fs := &removing{FS: vfs.NewMem(), links: oneLink, seen: map[string][]byte{}}
	b := newBench(t, fs)
	if err := b.log.Wipe(true); err != nil {
		t.Fatal(err)
	}
	f, err := b.log.WriteFile([]byte("key"), []byte("a secret"))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // a repeat finds no file
		if err := b.log.DropFile(f); err != nil {
			t.Fatal(err)
		}
	}
	if old, ok := fs.seen["log/"+bodyName(f.ID)+unfinished]; !ok || oneLink != nil && len(bytes.Trim(old, "\x00")) > 0 {
		t.Errorf("removed (%v) with %q in it", ok, old)
	}
}

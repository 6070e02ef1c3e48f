package wal

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/tgad/tgad/schemas/tga"
)

// every says that all bodies are needed.
func every(*Op) (bool, error) { return true, nil }

// TestPackedSegmentAfterAForkIsRead sets aside a packed segment that was read, and packs the
// segment that gets its number. Cached blocks of the first are not used for the second.
func TestPackedSegmentAfterAForkIsRead(t *testing.T) {
	b := newBench(t, vfs.NewMem())
	for range 90 {
		b.append(2, 100<<10)
	}
	if b.last.Segment < 4 {
		t.Fatalf("too few segments: %+v", b.last)
	}
	if _, err := b.log.Rewrite(t.Context(), 3, every, nil); err != nil {
		t.Fatal(err)
	}
	if err := b.log.Close(); err != nil {
		t.Fatal(err)
	}
	path := "log/" + segmentName(2)
	data := b.content(path)
	data[identityLen+linkSize+3] ^= 1
	b.write(path, data)
	l, err := Open(b.options())
	if err != nil {
		t.Fatal(err)
	}
	r, err := b.read()
	if err != nil {
		t.Fatal(err)
	}
	tail, err := l.Scan(Position{}, func(*Record) error { return nil })
	if err != nil || tail.Doubt == nil || tail.At.Segment != 2 {
		t.Fatalf("%+v %v", tail, err)
	}
	if err := l.Fork(tail, tga.ID{7}); err != nil {
		t.Fatal(err)
	}
	b.log, b.want = l, b.want[:len(r.ops)]
	for b.last = (Position{}); b.last.Segment < 4; {
		b.append(2, 100<<10)
	}
	if _, err := l.Rewrite(t.Context(), 3, every, nil); err != nil {
		t.Fatal(err)
	}
	read := 0
	if tail, err = l.Scan(Position{}, func(r *Record) error {
		return r.Ops(func(op *Op) error {
			if op.Place != Inline || op.Ref.Segment != 3 {
				return nil
			}
			read++
			_, err := l.Read(op.Ref, op.Key)
			return err
		})
	}); err != nil || tail.Doubt != nil || read == 0 {
		t.Errorf("%d bodies of segment 3 are read, doubt %v, %v", read, tail.Doubt, err)
	}
}

// TestEmptyBodyIsPacked: a body of no bytes begins where the next one does.
func TestEmptyBodyIsPacked(t *testing.T) {
	b := newBench(t, vfs.NewMem())
	var g Group
	o := new(Ops)
	o.PutBody([]byte("a"), nil, nil)
	o.PutBody([]byte("b"), nil, []byte("body"))
	o.PutBody([]byte("c"), nil, nil)
	if !g.Add(o, MaxRecord) {
		t.Fatal("full")
	}
	if _, err := b.log.Append(&g); err != nil {
		t.Fatal(err)
	}
	for b.last.Segment < 2 {
		b.append(1, 900<<10)
	}
	if _, err := b.log.Rewrite(t.Context(), 1, every, nil); err != nil {
		t.Error(err)
	}
	r, err := b.read()
	if err != nil || r.tail.Doubt != nil || len(r.errs) > 0 || r.ops[0].Body != "" || r.ops[1].Body != "body" || r.ops[2].Body != "" {
		t.Errorf("%+v %v %v", r.tail, r.errs, err)
	}
}

// TestNothingStaysOfARewriteThatFailed cancels a rewrite that waits for a pin, and fails the sync
// of the new name. Each time the directory has its old files, and the rewrite can be repeated.
func TestNothingStaysOfARewriteThatFailed(t *testing.T) {
	decoder() // else the first bubble makes it, and no other could use its channel
	for _, what := range []string{"under a pin", "sync of the name"} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { failARewrite(t, what == "under a pin") })
		})
	}
}

func failARewrite(t *testing.T, pinned bool) {
	var fail atomic.Bool
	full := errors.New("full")
	b := newBench(t, errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileSync && op.Path == "log" && fail.Swap(false) {
			return full
		}
		return nil
	})))
	for range 9 {
		b.append(1, 900<<10)
	}
	synctest.Wait() // the next segment is made as far as it may be
	before := slices.Sorted(maps.Keys(b.image()))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	unpin, want := func() {}, full
	if pinned {
		unpin, want = b.log.Pin(), context.Canceled
	}
	fail.Store(!pinned)
	ended := make(chan error, 1)
	go func() {
		_, err := b.log.Rewrite(ctx, 1, every, nil)
		ended <- err
	}()
	synctest.Wait()
	if pinned != (len(ended) == 0) {
		t.Fatal("it waits for a pin, and for nothing else")
	}
	cancel()
	if err := <-ended; !errors.Is(err, want) {
		t.Errorf("%v, want %v", err, want)
	}
	unpin()
	if after := slices.Sorted(maps.Keys(b.image())); !slices.Equal(after, before) {
		t.Errorf("the files are %v, %v before", after, before)
	}
	if _, err := b.log.Rewrite(t.Context(), 1, every, nil); err != nil {
		t.Errorf("again: %v", err)
	}
	if r, err := b.read(); err != nil || r.tail.Doubt != nil || !b.same(r) {
		t.Errorf("%+v %v", r.tail, err)
	}
}

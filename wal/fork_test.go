package wal

import (
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/schemas/tga"
)

// TestForkGoesOnBehindALoss damages a record in the middle of three segments. The log goes on
// behind the last whole record in a new timeline, later segments are kept under other names,
// and the next open finds no doubt.
func TestForkGoesOnBehindALoss(t *testing.T) {
	b := newBench(t, vfs.NewMem())
	for range 60 {
		b.append(2, 100<<10)
	}
	if b.last.Segment < 3 {
		t.Fatalf("one segment: %+v", b.last)
	}
	if err := b.log.Close(); err != nil {
		t.Fatal(err)
	}
	path := "log/" + segmentName(2)
	data := b.content(path)
	data[identityLen+linkSize+3] ^= 1 // the first record after the link
	b.write(path, data)

	r, err := b.read()
	if err != nil || r.tail.Doubt == nil || r.tail.At.Segment != 2 {
		t.Fatalf("%+v %v", r.tail, err)
	}
	kept := len(r.ops)
	l, err := Open(b.options())
	if err != nil {
		t.Fatal(err)
	}
	tail, err := l.Scan(Position{}, func(*Record) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Resume(tail); tga.CodeOf(err) != tga.StateChecksumMismatch {
		t.Errorf("resumed over a loss: %v", err)
	}
	if err := l.Fork(tail, tga.ID{7}); err != nil {
		t.Fatal(err)
	}
	if l.Timeline() != (tga.ID{7}) || !l.Has(tga.ID{2}) || !l.Has(tga.ID{7}) || l.Has(tga.ID{8}) {
		t.Errorf("timeline %v", l.Timeline())
	}
	b.log, b.want = l, b.want[:kept]
	b.append(2, 1000)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	r, err = b.read()
	if err != nil || r.tail.Doubt != nil || !b.same(r) || r.tail.At != b.last {
		t.Errorf("after the fork: %+v %v", r.tail, err)
	}
	lost := 0
	for name := range b.image() {
		if strings.HasPrefix(name, "lost-") {
			lost++
		}
	}
	if lost == 0 {
		t.Error("the segments behind the loss are gone")
	}
}

// TestSegmentsGrow follows the sizes of the first segments, and a record that is longer than
// the next one would be.
func TestSegmentsGrow(t *testing.T) {
	b := &bench{t: t, fs: vfs.NewMem()}
	l := newLog(Options{FS: b.fs, Random: func([]byte) error { return nil }})
	for n, want := range []uint32{4 << 20, 8 << 20, 16 << 20, 32 << 20, 64 << 20, 64 << 20, 64 << 20} {
		id, err := l.successor(true)
		if err != nil || id.Size != want {
			t.Errorf("segment %d: %d bytes, %v, want %d", n+1, id.Size, err, want)
		}
		l.id, l.at.End = id, id.Size/2
		if short, err := l.successor(false); err != nil || short.Size != 4<<20 {
			t.Errorf("after a short segment %d: %d bytes, %v", n+1, short.Size, err)
		}
		l.at.End++
	}
	l.id.Size, l.at.End = MaxSegment, MaxSegment // one that began with a very long record
	if id, err := l.successor(true); err != nil || id.Size != 64<<20 {
		t.Errorf("after the longest: %d bytes, %v", id.Size, err)
	}
	fs := vfs.NewMem()
	if err := fs.MkdirAll("log", 0o700); err != nil {
		t.Fatal(err)
	}
	o := newBench(t, vfs.NewMem()).options()
	o.FS, o.FirstSize, o.Size = fs, MinSegment, MinSegment
	small, err := Create(o, tga.ID{1}, tga.ID{2})
	if err != nil {
		t.Fatal(err)
	}
	defer small.Close()
	var ops Ops
	ops.PutBody([]byte("e"), nil, make([]byte, 300<<10))
	for range 3 {
		var g Group
		g.Add(&ops, MaxRecord)
		if _, err := small.Append(&g); err != nil {
			t.Fatal(err)
		}
	}
	if tail, err := small.Audit(func(*Record) error { return nil }); err != nil || tail.Doubt != nil || tail.At != small.End() {
		t.Errorf("%+v %v, the end is %+v", tail, err, small.End())
	}
}

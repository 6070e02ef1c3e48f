package wal

import (
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/schemas/tga"
)

// TestRecordsBehindALostLinkAreALoss: if the first record of a segment is lost, no link says that
// the log goes on there. The records behind it do.
func TestRecordsBehindALostLinkAreALoss(t *testing.T) {
	for _, lost := range []int{1, 2} { // segments whose links are gone
		b := newBenchOf(t, vfs.NewMem(), MinSegment)
		for b.last.Segment < 1+uint64(lost) {
			b.append(1, 14<<10)
		}
		b.append(1, 100)
		image := b.image()
		ends := b.places()
		for n := 2; n <= 1+lost; n++ {
			clear(image[segmentName(uint64(n))][identityLen:][:headerLen])
		}
		b.lay(image)
		r, err := b.read()
		if err != nil || r.tail.Doubt == nil || r.tail.At.Segment != 1 || !strings.Contains(r.tail.Doubt.Error(), "a later one in segment 2") {
			t.Errorf("%d links are gone: %+v %v", lost, r.tail, err)
		}
		for _, op := range r.ops {
			if n := ends[op.Key]; n > 1 {
				t.Errorf("%d links are gone: an operation of segment %d is read", lost, n)
			}
		}
		// Only the last segment has a record: the segment before it has only its identity.
		if lost == 2 {
			clear(image[segmentName(2)][identityLen:])
			b.lay(image)
			if r, err := b.read(); err != nil || r.tail.Doubt == nil || !strings.Contains(r.tail.Doubt.Error(), "a later one in segment 3") {
				t.Errorf("an empty segment between: %+v %v", r.tail, err)
			}
		}
	}
}

// TestLossNamesTheGroupThatIsMissing: the error names the group after the last one that is there.
func TestLossNamesTheGroupThatIsMissing(t *testing.T) {
	for more, want := range map[int]string{2: "group 3 is missing", 9: "no group 3 at offset"} { // in the last segment, and before it
		b := newBenchOf(t, vfs.NewMem(), MinSegment)
		b.append(1, 100)
		before := b.last
		for range more {
			b.append(1, 14<<10)
		}
		image := b.image()
		image[segmentName(1)][before.End+3] ^= 1
		b.lay(image)
		r, err := b.read()
		if err != nil || r.tail.At != before || r.tail.Doubt == nil || !strings.Contains(r.tail.Doubt.Error(), want) {
			t.Errorf("%+v %v, want a loss behind group %d", r.tail, err, before.Group)
		}
	}
}

// TestRecordPastItsSegmentIsNone: a header whose lengths go past the end of the file is the remains
// of a record after a crash, and not an error of the disk.
func TestRecordPastItsSegmentIsNone(t *testing.T) {
	for over := range uint32(2) {
		b := newBenchOf(t, vfs.NewMem(), MinSegment)
		b.append(1, 100)
		var o Ops
		o.PutBody([]byte("k"), nil, nil)
		body := MinSegment - b.last.End - headerLen - aligned(uint32(o.Len())) + over*align
		o.Reset()
		o.PutBody([]byte("k"), nil, make([]byte, body)) // its header and operations have room
		g := new(Group)
		g.Add(&o, MaxRecord)
		g.encode(&b.log.id, b.last.End, b.last, b.log.next, nil)
		image := b.image()
		copy(image[segmentName(1)][b.last.End:], g.record())
		b.lay(image)
		r, err := b.read()
		group := b.last.Group + 1 - uint64(over)
		if err != nil || r.tail.Doubt != nil || r.tail.At.Group != group {
			t.Errorf("%d bytes past the end: %+v %v, want group %d", over*align, r.tail, err, group)
		}
	}
}

// TestLogHoldsItsOwnPositions: every record's end is held, and nothing else: not one under another
// checksum, past the end, or of a record that was left behind by a fork.
func TestLogHoldsItsOwnPositions(t *testing.T) {
	b := newBenchOf(t, vfs.NewMem(), MinSegment)
	var ends []Position
	for range 9 {
		b.append(1, 14<<10)
		ends = append(ends, b.last)
	}
	holds := func(l *Log, at Position, want bool) {
		t.Helper()
		if is, err := l.Holds(at); err != nil || is != want {
			t.Errorf("%+v is held: %v, want %v (%v)", at, is, want, err)
		}
	}
	holds(b.log, Position{}, true)
	for _, at := range ends {
		holds(b.log, at, true)
		other := at
		other.Sum++
		holds(b.log, other, false)
		other = at
		other.End += align
		holds(b.log, other, false)
		other = at
		other.Group++
		holds(b.log, other, false)
	}
	holds(b.log, Position{Segment: 9, Group: 99}, false)
	if err := b.log.Close(); err != nil {
		t.Fatal(err)
	}
	// The log goes on behind its third record: the one after it is lost.
	path := "log/" + segmentName(ends[2].Segment)
	data := b.bytes(path)
	data[ends[2].End+3] ^= 1
	b.replace(path, data)
	l, err := Open(b.options())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	tail, err := l.Scan(Position{}, func(*Record) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if tail.At != ends[2] {
		t.Fatalf("the log ends at %+v", tail.At)
	}
	if err := l.Fork(tail, tga.ID{7}); err != nil {
		t.Fatal(err)
	}
	for i, at := range ends {
		holds(l, at, i <= 2)
	}
}

package wal

import (
	"errors"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/schemas/tga"
)

// TestDefaultsStandForWhatIsNotGiven, and for nothing else.
func TestDefaultsStandForWhatIsNotGiven(t *testing.T) {
	o := Options{}.withDefaults()
	if o.FirstSize != 4<<20 || o.Size != 64<<20 || o.Handles != 256 || o.BlockCache != 8<<20 || o.Logger == nil {
		t.Errorf("%+v", o)
	}
	given := Options{FirstSize: MinSegment, Size: 2 * MinSegment, Handles: 1, BlockCache: 2, Logger: slog.Default()}
	if o := given.withDefaults(); o.FirstSize != given.FirstSize || o.Size != given.Size || o.Handles != 1 || o.BlockCache != 2 || o.Logger != given.Logger {
		t.Errorf("%+v of %+v", o, given)
	}
	if o := (Options{Size: MinSegment}).withDefaults(); o.FirstSize != MinSegment {
		t.Errorf("the first segment has %d bytes, the others %d", o.FirstSize, o.Size)
	}
	if o := (Options{FirstSize: 128 << 20}).withDefaults(); o.Size != 128<<20 {
		t.Errorf("the first segment has %d bytes, the others %d", o.FirstSize, o.Size)
	}
}

// TestSegmentsOfAnySizeAreReadAgain: whatever sizes are given, what is acknowledged can be read after the next open.
func TestSegmentsOfAnySizeAreReadAgain(t *testing.T) {
	for size, want := range map[uint32]uint32{
		1: MinSegment, 4096: MinSegment, MinSegment: MinSegment, MinSegment + 1: MinSegment + 4096,
		MaxSegment: MaxSegment, MaxSegment + 1: MaxSegment, math.MaxUint32: MaxSegment,
	} {
		if o := (Options{FirstSize: size, Size: size}).withDefaults(); o.FirstSize != want || o.Size != want {
			t.Errorf("%d becomes %d and %d, want %d", size, o.FirstSize, o.Size, want)
		}
		if _, err := decodeIdentity(appendIdentity(nil, Identity{Number: 1, Size: want}), 1); err != nil {
			t.Errorf("%d: %v", want, err)
		}
	}
}

// filler is a group whose record has so many bytes.
func filler(t *testing.T, n uint32) *Group {
	t.Helper()
	var o Ops
	o.Put([]byte("k"), make([]byte, n-headerLen-opLen-1))
	g := new(Group)
	g.Add(&o, MaxRecord)
	if got := uint32(g.Len()); got != aligned(n) {
		t.Fatalf("a record of %d bytes, want %d", got, n)
	}
	return g
}

// TestRecordMayEndWithItsSegment: one that ends with the last byte lies in it, one that is 8 bytes
// longer in the next.
func TestRecordMayEndWithItsSegment(t *testing.T) {
	for over := range uint32(2) {
		b := newBenchOf(t, vfs.NewMem(), MinSegment)
		b.append(1, 100)
		at, err := b.log.Append(filler(t, MinSegment-b.last.End+align*over))
		if err != nil {
			t.Fatal(err)
		}
		if want := (Position{Segment: 1 + uint64(over)}); at.Segment != want.Segment || over == 0 && at.End != MinSegment {
			t.Errorf("%d bytes past the end: %+v", align*over, at)
		}
		b.last = at
		if r, err := b.read(); err != nil || r.tail.Doubt != nil || r.tail.At != at {
			t.Errorf("%+v %v", r.tail, err)
		}
		after, err := b.log.Append(filler(t, 128))
		if err != nil || after.Segment != 2 {
			t.Errorf("the next one: %+v %v", after, err)
		}
	}
}

// TestSpareOfACrashIsOneSegment: a segment that was made ahead and exists at an open is used, and
// is in the list only once.
func TestSpareOfACrashIsOneSegment(t *testing.T) {
	b := newBenchOf(t, vfs.NewMem(), MinSegment)
	for range 4 { // past three quarters: the next segment is made
		b.append(1, 14<<10)
	}
	if b.log.spare == nil {
		t.Fatal("no segment is made ahead")
	}
	waitSpare(b.log)
	image := b.image()
	if _, is := image[segmentName(2)]; !is || b.last.Segment != 1 {
		t.Fatalf("segment 2 is not there, the log ends in %d", b.last.Segment)
	}
	b.lay(image)
	l, err := Open(b.options())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	tail, err := l.Scan(Position{}, func(*Record) error { return nil })
	if err == nil {
		err = l.Resume(tail)
	}
	if err != nil {
		t.Fatal(err)
	}
	b.log = l
	for range 12 {
		b.append(1, 14<<10)
	}
	var numbers []uint64
	for _, s := range l.Full() {
		numbers = append(numbers, s.Number)
	}
	for i := range numbers {
		if numbers[i] != uint64(i+1) {
			t.Errorf("the segments are %d", numbers)
			break
		}
	}
	if r, err := b.read(); err != nil || r.tail.Doubt != nil || r.tail.At != b.last || len(r.ops) < 16*5 {
		t.Errorf("%+v %v", r.tail, err)
	}
}

// TestClosedLogSaysWhy: an append to a closed log is refused because it is closed, or because of
// the write that had failed before.
func TestClosedLogSaysWhy(t *testing.T) {
	failed := errors.New("the disk is gone")
	for _, before := range []error{nil, failed} {
		b := newBenchOf(t, vfs.NewMem(), MinSegment)
		b.append(1, 10)
		b.log.err = before
		if err := b.log.Close(); err != nil {
			t.Fatal(err)
		}
		_, err := b.log.Append(filler(t, 128))
		if before == nil && (tga.CodeOf(err) != tga.StoreUnavailable || !strings.Contains(err.Error(), "closed")) || before != nil && !errors.Is(err, failed) {
			t.Errorf("failed before: %v; then %v", before, err)
		}
	}
}

// TestAbandonedLogMakesNoSegment: Abandon stops the making of the next segment.
func TestAbandonedLogMakesNoSegment(t *testing.T) {
	b := newBenchOf(t, vfs.NewMem(), MinSegment)
	for range 2 { // past a quarter: the next segment is begun, and waits
		b.append(1, 12<<10)
	}
	s := b.log.spare
	if s == nil {
		t.Fatal("no segment is made ahead")
	}
	b.log.Abandon()
	s.wait()
	if !errors.Is(s.err, errNotWanted) {
		t.Errorf("its making ended with %v", s.err)
	}
}

// TestLargestRecordIsPacked: the headers and operations of one record are one piece, whatever
// their length.
func TestLargestRecordIsPacked(t *testing.T) {
	b := newBenchOf(t, vfs.NewMem(), 4<<20)
	at, err := b.log.Append(filler(t, MaxRecord-2*align))
	if err != nil {
		t.Fatal(err)
	}
	b.append(2, 1<<20) // in the next segment
	if at.Segment != 1 || b.last.Segment != 2 {
		t.Fatalf("%+v, then %+v", at, b.last)
	}
	if _, err := b.log.Rewrite(t.Context(), 1, every, nil); err != nil {
		t.Fatal(err)
	}
	r, err := b.read()
	if err != nil || r.tail.Doubt != nil || r.tail.At != b.last || len(r.errs) > 0 || !slices.ContainsFunc(r.ops, func(k kept) bool { return k.Key == "k" && len(k.Value) > MaxRecord-1024 }) {
		t.Errorf("%+v %v %v", r.tail, r.errs, err)
	}
}

package wal

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/schemas/tga"
)

// segments makes a log of so many segments with records, and returns the last record of each.
func segments(t *testing.T, n uint64) (b *bench, ends []Position) {
	t.Helper()
	b = newBenchOf(t, vfs.NewMem(), MinSegment)
	for b.append(1, 14<<10); b.last.Segment < n; b.append(1, 14<<10) {
		ends = append(ends[:b.last.Segment-1], b.last)
	}
	if err := b.log.Close(); err != nil {
		t.Fatal(err)
	}
	return b, append(ends[:n-1], b.last)
}

// TestOpenFindsALossThatAScanDoesNotReach: a process that opens a log may scan only the newest
// records. So Open must notice that earlier segments are missing without reading them.
func TestOpenFindsALossThatAScanDoesNotReach(t *testing.T) {
	b, ends := segments(t, 4)
	whole := b.image()
	noHeader := func(n int) func(map[string][]byte) {
		return func(image map[string][]byte) { image[segmentName(uint64(n))][ends[n-1].Start] ^= 1 }
	}
	for _, c := range []struct {
		name string
		harm func(image map[string][]byte)
		says string // "": nothing is missing
	}{
		{"nothing", func(map[string][]byte) {}, ""},
		{"a segment", func(image map[string][]byte) { delete(image, segmentName(2)) }, "segment 2 is missing: the one after 1 is 3"},
		{"two segments", func(image map[string][]byte) {
			delete(image, segmentName(2))
			delete(image, segmentName(3))
		}, "segment 2 is missing: the one after 1 is 4"},
		{"the last record of a segment", noHeader(2), fmt.Sprintf("segment 2 ends with group %d, which is not there", ends[1].Group)},
		{"those of two segments", func(image map[string][]byte) { noHeader(1)(image); noHeader(3)(image) },
			fmt.Sprintf("segment 1 ends with group %d, which is not there", ends[0].Group)},
		{"all records of a segment", func(image map[string][]byte) { clear(image[segmentName(3)][identityLen:]) }, "segment 4 follows segment 3, which has no record"},
		{"a segment's identity", func(image map[string][]byte) { image[segmentName(3)][20] ^= 1 }, "segment 3"},
	} {
		image := map[string][]byte{}
		for name, data := range whole {
			image[name] = bytes.Clone(data)
		}
		c.harm(image)
		b.lay(image)
		l, err := Open(b.options())
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		read := 0
		tail, err := l.Scan(b.last, func(*Record) error { read++; return nil })
		said := ""
		if tail.Doubt != nil {
			said = tail.Doubt.Error()
		}
		if err != nil || read != 0 || (said == "") != (c.says == "") || !strings.Contains(said, c.says) {
			t.Errorf("%s is missing: %d records are read, %v, doubt %q, want %q", c.name, read, err, said, c.says)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}

// refusing is a disk that does not open one file.
type refusing struct {
	vfs.FS
	path string
	err  error
}

func (d *refusing) Open(path string, opts ...vfs.OpenOption) (vfs.File, error) {
	if path == d.path {
		return nil, d.err
	}
	return d.FS.Open(path, opts...)
}

// TestOlderFileIsReadWhereTheNewestIsDamaged: and only then. A file that the disk fails to read
// may be good, and a file that counts as damaged is removed when the log goes on.
func TestOlderFileIsReadWhereTheNewestIsDamaged(t *testing.T) {
	b := newBenchOf(t, vfs.NewMem(), MinSegment)
	for range 9 {
		b.append(1, 14<<10)
	}
	raw, packed := segmentName(1), packedName(1, 1)
	first := b.content("log/" + raw)
	if _, err := b.log.Rewrite(t.Context(), 1, every, nil); err != nil {
		t.Fatal(err)
	}
	if err := b.log.Close(); err != nil {
		t.Fatal(err)
	}
	image := b.image()
	image[raw] = first // as a crash leaves it behind a rewrite
	there := func(name string) bool {
		_, err := b.fs.Stat("log/" + name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		return err == nil
	}
	for _, damage := range []bool{false, true} {
		image[packed] = bytes.Clone(image[packed])
		if damage {
			image[packed][3] ^= 1
		}
		b.lay(image)
		refused := errors.New("no file descriptor is left")
		o := b.options()
		o.FS = &refusing{b.fs, "log/" + packed, refused}
		if _, err := Open(o); !errors.Is(err, refused) || tga.CodeOf(err) != tga.StoreUnavailable {
			t.Errorf("a file that the disk refuses: %v", err)
		}
		l, err := Open(b.options())
		if err != nil {
			t.Fatal(err)
		}
		tail, err := l.Scan(Position{}, func(*Record) error { return nil })
		if err == nil {
			err = l.Resume(tail)
		}
		if err != nil {
			t.Fatalf("damaged %v: %v", damage, err)
		}
		if there(raw) != damage || there(packed) == damage {
			t.Errorf("damaged %v: raw file %v, packed file %v", damage, there(raw), there(packed))
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if r, err := b.read(); err != nil || r.tail.Doubt != nil || !b.same(r) {
			t.Errorf("damaged %v: %+v %v", damage, r.tail, err)
		}
	}
}

// TestSpareOfAnotherTimelineIsNotUsed: a fork that was interrupted by a crash may leave a segment
// of a timeline that never began. A log that goes on in its own timeline must not use it.
func TestSpareOfAnotherTimelineIsNotUsed(t *testing.T) {
	own := tga.ID{2}
	for _, line := range []tga.ID{own, {7}} {
		b := newBenchOf(t, vfs.NewMem(), MinSegment)
		b.append(1, 100)
		if err := b.log.Close(); err != nil {
			t.Fatal(err)
		}
		if err := (files{b.fs, "log"}).make(Identity{Store: tga.ID{1}, Timeline: line, Number: 2, Salt: 9, Size: MinSegment}, atOnce); err != nil {
			t.Fatal(err)
		}
		l, err := Open(b.options())
		if err != nil {
			t.Fatal(err)
		}
		tail, err := l.Scan(Position{}, func(*Record) error { return nil })
		if err == nil {
			err = l.Resume(tail) // the end is not clean: it goes on in a segment of its own
		}
		if err != nil {
			t.Fatal(err)
		}
		if l.id.Number != 2 || l.id.Timeline != own || (l.id.Salt == 9) != (line == own) {
			t.Errorf("beside a spare of timeline %s the log goes on in %+v", line, l.id)
		}
		b.log = l
		b.append(1, 100)
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if r, err := b.read(); err != nil || r.tail.Doubt != nil || !b.same(r) {
			t.Errorf("%+v %v", r.tail, err)
		}
	}
}

// TestForkKeepsEveryRecordItLeavesOut: each file with records behind the loss, raw or packed, gets
// another name and keeps its bytes. A segment that was made ahead has no records, and is removed.
func TestForkKeepsEveryRecordItLeavesOut(t *testing.T) {
	b := newBenchOf(t, vfs.NewMem(), MinSegment)
	for b.last.Segment < 4 {
		b.append(1, 14<<10)
	}
	if _, err := b.log.Rewrite(t.Context(), 3, every, nil); err != nil {
		t.Fatal(err)
	}
	if err := b.log.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.fs.Stat("log/" + segmentName(5)); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal("segment 5 is there already", err)
	}
	if err := (files{b.fs, "log"}).make(Identity{Store: tga.ID{1}, Timeline: tga.ID{2}, Number: 5, Salt: 9, Size: MinSegment}, atOnce); err != nil {
		t.Fatal(err)
	}
	image := b.image()
	clear(image[segmentName(1)][b.log.segments[1].link.start:]) // the last record of segment 1
	b.lay(image)
	l, err := Open(b.options())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	tail, err := l.Scan(Position{}, func(*Record) error { return nil })
	if err != nil || tail.Doubt == nil || tail.At.Segment != 1 {
		t.Fatalf("%+v %v", tail, err)
	}
	line := tga.ID{7}
	if err := l.Fork(tail, line); err != nil {
		t.Fatal(err)
	}
	var want, got []string
	after := b.image()
	for _, name := range []string{segmentName(2), packedName(3, 1), segmentName(4)} {
		aside := AsidePrefix + line.String() + "-" + name
		want = append(want, aside)
		if !bytes.Equal(after[aside], image[name]) {
			t.Errorf("%s has %d bytes, %s had %d, or others", aside, len(after[aside]), name, len(image[name]))
		}
	}
	for name := range after {
		if name != segmentName(1) && name != segmentName(2) {
			got = append(got, name)
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("beside segments 1 and 2: %q, want %q", got, want)
	}
}

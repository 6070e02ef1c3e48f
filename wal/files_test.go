package wal

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/schemas/tga"
)

// TestNamesOfSegments: no other name is taken for that of a segment.
func TestNamesOfSegments(t *testing.T) {
	for _, c := range []struct {
		name string
		n    uint64
		gen  uint32
	}{
		{"0000000000000001", 1, 0},
		{"9999999999999999", 9999999999999999, 0},
		{"0000000000000001.0001.z", 1, 1},
		{"0000000000000012.10000.z", 12, 10000},
		{"0000000000000000", 0, 0},
		{"0000000000000001.0000.z", 0, 0}, // the raw one has another name
		{"0000000000000001.001.z", 0, 0},
		{"0000000000000001.00001.z", 0, 0},
		{"0000000000000001.0001", 0, 0},
		{"0000000000000001.z", 0, 0},
		{"00000000000000010001.z", 0, 0},
		{"000000000000001", 0, 0},
		{"+000000000000001", 0, 0},
		{"lost-0000000000000001", 0, 0},
		{spareName, 0, 0}, {packingName, 0, 0}, {"", 0, 0},
	} {
		n, gen, ok := parseName(c.name)
		if ok != (c.n != 0) || ok && (n != c.n || gen != c.gen) {
			t.Errorf("%q is segment %d, generation %d, %v", c.name, n, gen, ok)
		}
	}
}

// unlisted is a disk that lists no directory.
type unlisted struct {
	vfs.FS
	err error
}

func (d unlisted) List(string) ([]string, error) { return nil, d.err }

// TestDirectoryThatIsNotListedMayHoldALog: nobody may take it for an empty one.
func TestDirectoryThatIsNotListedMayHoldALog(t *testing.T) {
	b := newBenchOf(t, vfs.NewMem(), MinSegment)
	if err := b.fs.MkdirAll("empty", 0o700); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		fs  vfs.FS
		dir string
		is  bool
	}{
		{b.fs, "log", true},
		{b.fs, "empty", false},
		{b.fs, "none", false},
		{unlisted{b.fs, errors.New("no read")}, "empty", true},
	} {
		if is := IsLog(c.fs, c.dir); is != c.is {
			t.Errorf("%s: %v", c.dir, is)
		}
	}
}

// TestSizeIsThatOfAllFiles, as far as they can be seen.
func TestSizeIsThatOfAllFiles(t *testing.T) {
	b := newBenchOf(t, vfs.NewMem(), MinSegment)
	d := files{b.fs, "log"}
	if n := d.size(); n != MinSegment {
		t.Errorf("%d bytes, want %d", n, MinSegment)
	}
	b.write("log/0.body", make([]byte, 100))
	if n := d.size(); n != MinSegment+100 {
		t.Errorf("%d bytes, want %d", n, MinSegment+100)
	}
	d.fs = unlisted{b.fs, errors.New("no read")}
	if n := d.size(); n != 0 {
		t.Errorf("%d bytes of files that are not seen", n)
	}
}

// TestSegmentIsFilledToItsEnd: it has its identity, zeros, and not a byte more; and its pace is
// asked before each piece, with where that ends.
func TestSegmentIsFilledToItsEnd(t *testing.T) {
	b := newBenchOf(t, vfs.NewMem(), MinSegment)
	for _, size := range []uint32{MinSegment, filled, filled + identityLen, 3*filled - identityLen} {
		id := Identity{Store: tga.ID{1}, Timeline: tga.ID{2}, Number: 9, Salt: 1, Size: size}
		var asked, want []int64
		for n := int64(0); n < int64(size); {
			n = min(n+filled, int64(size))
			want = append(want, n)
		}
		if err := (files{b.fs, "log"}).make(id, func(n int64) error { asked = append(asked, n); return nil }); err != nil {
			t.Fatal(err)
		}
		data := b.content("log/" + segmentName(9))
		if got, err := decodeIdentity(data[:identityLen], 9); err != nil || got != id {
			t.Errorf("%+v %v", got, err)
		}
		if len(data) != int(size) || len(bytes.Trim(data[identityLen:], "\x00")) > 0 || !slices.Equal(asked, want) {
			t.Errorf("%d bytes, want %d; the pace was asked at %d, want %d", len(data), size, asked, want)
		}
	}
}

// short is a file that takes so many writes.
type short struct {
	bytes.Buffer
	left int
	err  error
}

func (s *short) Write(b []byte) (int, error) {
	if s.left--; s.left < 0 {
		return 0, s.err
	}
	return s.Buffer.Write(b)
}

// TestLongBytesAreWrittenWhole: in pieces, and the failure of any of them is told.
func TestLongBytesAreWrittenWhole(t *testing.T) {
	b := make([]byte, 2*piece+5)
	for i := range b {
		b[i] = byte(i / 1000)
	}
	for left := range 5 {
		f := &short{left: left, err: errors.New("no space")}
		err := write(f, b)
		if whole := left >= 3; (err == nil) != whole || err != nil && !errors.Is(err, f.err) || whole != bytes.Equal(f.Bytes(), b) {
			t.Errorf("%d writes: %d bytes of %d, %v", left, f.Len(), len(b), err)
		}
	}
}

// TestSegmentOfItsIdentityAloneIsOne: it has no record, and is not damaged.
func TestSegmentOfItsIdentityAloneIsOne(t *testing.T) {
	b := newBenchOf(t, vfs.NewMem(), MinSegment)
	data := b.content("log/" + segmentName(1))
	for n, damaged := range map[int]bool{0: true, identityLen - 1: true, identityLen: false, identityLen + 1: false} {
		b.lay(map[string][]byte{segmentName(1): data[:n]})
		l, err := Open(b.options())
		if (err != nil) != damaged || err != nil && tga.CodeOf(err) != tga.StateChecksumMismatch {
			t.Errorf("%d bytes: %v", n, err)
		}
		if err != nil {
			continue
		}
		if s := l.segments[0]; s.size != uint32(n) || s.first != nil || l.doubt != nil {
			t.Errorf("%d bytes: %+v, doubt %v", n, s, l.doubt)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestNextSegmentIsAsLongAsItNeeds: twice as long as the one before where more than half of that is
// used, as long as the record that it is for, and made again where the first try failed.
func TestNextSegmentIsAsLongAsItNeeds(t *testing.T) {
	for _, c := range []struct {
		used, need, want uint32
	}{
		{MinSegment / 2, 0, MinSegment},
		{MinSegment/2 + 1, 0, 2 * MinSegment},
		{0, MinSegment, MinSegment},
		{0, MinSegment + 1, MinSegment + identityLen},
		{0, MinSegment + identityLen, MinSegment + identityLen},
		{0, 5*MinSegment + identityLen - 1, 5*MinSegment + identityLen},
	} {
		for _, fails := range []bool{false, true} {
			b := newBenchOf(t, vfs.NewMem(), MinSegment)
			l := b.log
			l.opts.Size, l.at.End = 4*MinSegment, c.used
			if fails { // it was begun when the disk was full
				l.spare = newSpare(Identity{Number: 2, Size: MinSegment})
				l.spare.err = errors.New("no space")
				close(l.spare.done)
			}
			id, err := l.takeSpare(c.need)
			if err != nil || id.Size != c.want || id.Number != 2 {
				t.Errorf("%d of %d bytes used, %d needed: %+v %v, want %d bytes", c.used, MinSegment, c.need, id, err, c.want)
				continue
			}
			if data := b.content("log/" + segmentName(2)); len(data) != int(c.want) {
				t.Errorf("the file has %d bytes, want %d", len(data), c.want)
			}
		}
	}
}

// TestBodyFileSurvivesAPowerCut: what WriteFile has returned is on the disk, with its name and every
// byte, whatever was not synced is lost.
func TestBodyFileSurvivesAPowerCut(t *testing.T) {
	disk := vfs.NewCrashableMem()
	b := newBenchOf(t, disk, MinSegment)
	for _, c := range []struct{ key, body int }{{1, 0}, {1, 100}, {255, piece + 100}} {
		key, body := bytes.Repeat([]byte("k"), c.key), bytes.Repeat([]byte("body "), c.body)
		f, err := b.log.WriteFile(key, body)
		if err != nil {
			t.Fatal(err)
		}
		o := b.options()
		o.FS = disk.CrashClone(vfs.CrashCloneCfg{})
		l, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := l.ReadFile(f, key); err != nil || !bytes.Equal(got, body) {
			t.Errorf("after a power cut: %d bytes of %d, %v", len(got), len(body), err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestBodyFileHasTheKeysOfRows: of at most 255 bytes.
func TestBodyFileHasTheKeysOfRows(t *testing.T) {
	b := newBenchOf(t, vfs.NewMem(), MinSegment)
	for n, want := range map[int]bool{0: true, 1: true, 255: true, 256: false} {
		key := make([]byte, n)
		f, err := b.log.WriteFile(key, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.log.ReadFile(f, key); (err == nil) != want || err != nil && tga.CodeOf(err) != tga.StateChecksumMismatch {
			t.Errorf("a key of %d bytes: %v", n, err)
		}
	}
}

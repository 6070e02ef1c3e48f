package wal

import (
	"bytes"
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// image is the bytes of every file of a log.
func (b *bench) image() map[string][]byte {
	b.t.Helper()
	list, err := b.fs.List("log")
	if err != nil {
		b.t.Fatal(err)
	}
	m := map[string][]byte{}
	for _, name := range list {
		if name == spareName {
			continue // nothing is in it
		}
		f, err := b.fs.Open("log/" + name)
		if err != nil {
			b.t.Fatal(err)
		}
		info, err := f.Stat()
		if err != nil {
			b.t.Fatal(err)
		}
		m[name] = make([]byte, info.Size())
		if err := errors.Join(readFull(f, m[name], 0), f.Close()); err != nil {
			b.t.Fatal(err)
		}
	}
	return m
}

// lay writes an image to files.
func (b *bench) lay(image map[string][]byte) {
	b.t.Helper()
	fs := vfs.NewMem()
	if err := fs.MkdirAll("log", 0o700); err != nil {
		b.t.Fatal(err)
	}
	for name, data := range image {
		f, err := fs.Create("log/"+name, vfs.WriteCategoryUnspecified)
		if err != nil {
			b.t.Fatal(err)
		}
		if _, err := f.Write(data); err != nil {
			b.t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			b.t.Fatal(err)
		}
	}
	b.fs = fs
}

// told reports whether the damage of a log is noticed: by an error, a doubt, a body that cannot
// be read, or an end before the newest group, which a witness of that group notices.
func (b *bench) told(r read, err error) bool {
	return err != nil || r.tail.Doubt != nil || len(r.errs) > 0 || r.tail.At.Group < b.last.Group || r.tail.At.Sum != b.last.Sum
}

// TestDamageIsTold changes bytes and cuts files anywhere. What is read is right, or the damage is
// noticed.
func TestDamageIsTold(t *testing.T) {
	b := newBench(t, vfs.NewMem())
	for i := range 40 {
		b.append(1+i%4, 50<<10)
	}
	for range 5 {
		b.append(3, 40)
	}
	if err := b.log.Close(); err != nil {
		t.Fatal(err)
	}
	whole := b.image()
	rounds, told := 200, 0
	for i := range rounds {
		name := segmentName(1 + b.rng.Uint64N(b.last.Segment))
		data := whole[name]
		damaged := bytes.Clone(data)
		at := b.rng.IntN(len(damaged))
		switch i % 4 {
		case 0: // where there is much to hit
			at = b.rng.IntN(identityLen + 2000)
			damaged[at] ^= 1 << b.rng.IntN(8)
		case 1:
			damaged[at] ^= byte(1 + b.rng.IntN(255))
		case 2: // a sector of zeros or noise
			at &^= 511
			for j := at; j < min(at+512, len(damaged)); j++ {
				damaged[j] = byte(b.rng.Uint32()) * byte(i/4%2)
			}
		case 3:
			damaged = damaged[:at]
		}
		image := map[string][]byte{}
		for n, d := range whole {
			image[n] = d
		}
		image[name] = damaged
		b.lay(image)
		r, err := b.read()
		if b.told(r, err) {
			told++
			continue
		}
		if !b.same(r) {
			t.Fatalf("round %d: %s damaged at %d, and nobody says so", i, name, at)
		}
	}
	if told < rounds/3 {
		t.Errorf("%d of %d told: the damage hits nothing", told, rounds)
	}
}

// TestTornGroupIsNone loses any sectors of the last write. The result is the log without the
// group or with it, and no doubt.
func TestTornGroupIsNone(t *testing.T) {
	for _, sector := range []int{512, 4096} {
		b := newBench(t, vfs.NewMem())
		b.append(3, 3000)
		before, acknowledged := b.image(), len(b.want)
		b.append(4, 2500)
		after := b.image()
		name := segmentName(1)
		at := int(b.last.Start) &^ (sector - 1)
		sectors := (int(b.last.End) - at + sector - 1) / sector
		rounds := 1 << min(sectors, 7)
		for i := range rounds {
			torn := bytes.Clone(before[name])
			for s := range sectors {
				if keep := i>>(s%7)&1 == 1; keep {
					copy(torn[at+s*sector:at+(s+1)*sector], after[name][at+s*sector:])
				}
			}
			b.lay(map[string][]byte{name: torn})
			r, err := b.read()
			if err != nil || r.tail.Doubt != nil || len(r.errs) > 0 {
				t.Fatalf("sectors %b: %+v %v %v", i, r.tail, r.errs, err)
			}
			want := b.want[:acknowledged]
			if bytes.Equal(torn, after[name]) {
				want = b.want
			}
			if len(r.ops) != len(want) {
				t.Fatalf("sectors %b: %d operations, want %d", i, len(r.ops), len(want))
			}
			l, err := Open(b.options())
			if err == nil {
				err = l.Resume(r.tail)
			}
			if err != nil {
				t.Fatal(err)
			}
			if r, err = b.read(); err != nil || r.tail.Doubt != nil || len(r.ops) != len(want) {
				t.Fatalf("sectors %b, once it went on: %+v %v", i, r.tail, err)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestTornLinkIsNone loses any part of the first record of a segment. No append waits for that
// record: every acknowledged group is in the segment before.
func TestTornLinkIsNone(t *testing.T) {
	b := newBench(t, vfs.NewMem())
	b.append(1, 5000)
	acknowledged := len(b.want)
	for b.last.Segment == 1 {
		acknowledged = len(b.want)
		b.append(1, 100<<10)
	}
	whole := b.image()
	second := segmentName(2)
	clear(whole[second][identityLen+linkSize:]) // what was written behind the link
	for at := 0; at < linkSize; at += 8 {
		for _, to := range []int{at + 8, linkSize} {
			image := map[string][]byte{segmentName(1): whole[segmentName(1)], second: bytes.Clone(whole[second])}
			clear(image[second][identityLen+at : identityLen+to])
			b.lay(image)
			r, err := b.read()
			if err != nil || r.tail.Doubt != nil || len(r.ops) != acknowledged {
				t.Fatalf("bytes %d to %d lost: %d operations, want %d, %+v %v", at, to, len(r.ops), acknowledged, r.tail, err)
			}
			if b.log, err = Open(b.options()); err == nil {
				err = b.log.Resume(r.tail)
			}
			if err != nil {
				t.Fatal(err)
			}
			want := b.want
			b.want = b.want[:acknowledged:acknowledged]
			b.append(1, 100)
			if r, err = b.read(); err != nil || r.tail.Doubt != nil || !b.same(r) {
				t.Fatalf("bytes %d to %d lost, once it went on: %+v %v", at, to, r.tail, err)
			}
			b.want = want
			if err := b.log.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestLostMiddleIsNoTornTail removes a group from the middle. The groups after it prove that it
// was acknowledged.
func TestLostMiddleIsNoTornTail(t *testing.T) {
	b := newBench(t, vfs.NewMem())
	var ends []Position
	for range 9 {
		b.append(2, 300<<10)
		ends = append(ends, b.last)
	}
	whole := b.image()
	for i, p := range ends[:len(ends)-1] {
		image := map[string][]byte{}
		for n, d := range whole {
			image[n] = bytes.Clone(d)
		}
		clear(image[segmentName(p.Segment)][p.Start : p.Start+headerLen])
		b.lay(image)
		r, err := b.read()
		if err != nil || r.tail.Doubt == nil {
			t.Errorf("group %d of %d lost: %+v %v", i+1, len(ends), r.tail, err)
		}
	}
	for n := range whole { // and whole segments
		image := map[string][]byte{}
		for m, d := range whole {
			if m != n {
				image[m] = d
			}
		}
		b.lay(image)
		r, err := b.read()
		if !b.told(r, err) {
			t.Errorf("without segment %s: %+v", n, r.tail)
		}
	}
}

// TestHeaderBehindTornBodiesIsALoss tears the bodies of one group and the operations of the
// next. The header of the second group proves that the first was acknowledged.
func TestHeaderBehindTornBodiesIsALoss(t *testing.T) {
	b := newBench(t, vfs.NewMem())
	b.append(2, 1000)
	first := b.last
	b.append(2, 1000)
	image := b.image()
	data := image[segmentName(1)]
	data[first.End-200] ^= 1
	data[b.last.Start+headerLen] ^= 1
	b.lay(image)
	if r, err := b.read(); err != nil || r.tail.Doubt == nil {
		t.Errorf("%+v %v", r.tail, err)
	}
	data[first.End-200] ^= 1
	b.lay(image)
	if r, err := b.read(); err != nil || r.tail.Doubt != nil || !r.tail.Torn || r.tail.At != first {
		t.Errorf("with the first one whole: %+v %v", r.tail, err)
	}
}

// TestRecycledBytesAreNoRecords makes a log over the bytes of another one.
func TestRecycledBytesAreNoRecords(t *testing.T) {
	old := newBench(t, vfs.NewMem())
	for range 20 {
		old.append(2, 80<<10)
	}
	was := old.image()[segmentName(1)]
	b := newBench(t, vfs.NewMem())
	b.append(1, 100)
	image := b.image()
	now := bytes.Clone(was)
	copy(now, image[segmentName(1)][:b.last.End])
	b.lay(map[string][]byte{segmentName(1): now})
	r, err := b.read()
	if err != nil || r.tail.Doubt != nil || !b.same(r) || r.tail.At != b.last {
		t.Fatalf("%+v %v", r.tail, err)
	}
	// With the salt of their own use, the same bytes are records, so the log has a loss.
	copy(now, was[:identityLen])
	b.lay(map[string][]byte{segmentName(1): now})
	if r, err = b.read(); err != nil || r.tail.Doubt == nil {
		t.Errorf("%+v %v", r.tail, err)
	}
}

// TestTornBodyWithARecordIsNone tears the header of a group whose body is a record of the
// same segment, byte for byte. At its new place it is none.
func TestTornBodyWithARecordIsNone(t *testing.T) {
	b := newBench(t, vfs.NewMem())
	b.append(1, 500)
	first := b.last
	record := b.image()[segmentName(1)][first.Start:first.End]
	var o Ops
	o.PutBody([]byte("eight by"), nil, record)
	var g Group
	g.Add(&o, MaxRecord)
	at, err := b.log.Append(&g)
	if err != nil {
		t.Fatal(err)
	}
	image := b.image()
	data := image[segmentName(1)]
	if i := bytes.Index(data[at.Start:at.End], record); i < 0 || i%align != 0 {
		t.Fatalf("the record is at %d of the body: nothing would find it", i)
	}
	data[at.Start] ^= 1
	b.lay(image)
	if r, err := b.read(); err != nil || r.tail.Doubt != nil || r.tail.At != first {
		t.Errorf("%+v %v", r.tail, err)
	}
}

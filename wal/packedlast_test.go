package wal

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/schemas/tga"
)

// TestLastRecordOfAPackedSegmentIsThere: the segment behind a packed one is lost, or its first record is.
// The last record of the packed one is read all the same, and a fork goes on behind that record.
func TestLastRecordOfAPackedSegmentIsThere(t *testing.T) {
	b := newBenchOf(t, vfs.NewMem(), MinSegment)
	var last Position // of the first segment
	ops := 0
	for b.last.Segment < 3 {
		if b.append(1, 14<<10); b.last.Segment == 1 {
			last, ops = b.last, len(b.want)
		}
	}
	if _, err := b.log.Rewrite(t.Context(), 1, every, nil); err != nil {
		t.Fatal(err)
	}
	whole := b.image()
	for what, lose := range map[string]func(image map[string][]byte){
		"its successor":            func(image map[string][]byte) { delete(image, segmentName(2)) },
		"its successor's link":     func(image map[string][]byte) { clear(image[segmentName(2)][identityLen:][:headerLen]) },
		"its successor's identity": func(image map[string][]byte) { clear(image[segmentName(2)][:identityLen]) },
		"all segments behind it":   func(image map[string][]byte) { delete(image, segmentName(2)); delete(image, segmentName(3)) },
		"the links of all behind it": func(image map[string][]byte) {
			clear(image[segmentName(2)][identityLen:])
			clear(image[segmentName(3)][identityLen:])
		},
	} {
		image := map[string][]byte{}
		for name, data := range whole {
			image[name] = append([]byte(nil), data...)
		}
		lose(image)
		b.lay(image)
		r, err := b.read()
		if err != nil || r.tail.Torn || r.tail.At != last || len(r.ops) != ops {
			t.Errorf("without %s: %d operations of %d, %+v %v; want the end %+v", what, len(r.ops), ops, r.tail, err, last)
		}
		l, err := Open(b.options())
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Fork(r.tail, tga.ID{7}); err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		r, err = b.read()
		if err != nil || r.tail.Doubt != nil || r.tail.At.Group <= last.Group || len(r.ops) != ops {
			t.Errorf("without %s, forked: %d operations of %d, %+v %v", what, len(r.ops), ops, r.tail, err)
		}
	}
}

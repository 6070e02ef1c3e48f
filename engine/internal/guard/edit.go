package guard

import (
	"encoding/binary"
	"fmt"
)

// edit is what a version edit, one record of a MANIFEST, says about durability.
type edit struct {
	minUnflushed  uint64 // 0 = not said
	lastSeqnum    uint64 // 0 = not said
	flushedSeqnum uint64 // the largest seqnum in any table that the edit adds
	tables        int    // added
}

// The tags of a version edit, as Pebble v2 writes and reads them.
const (
	tagComparator     = 1
	tagLogNumber      = 2
	tagNextFileNumber = 3
	tagLastSequence   = 4
	tagCompactPointer = 5
	tagDeletedFile    = 6
	tagNewFile        = 7
	tagPrevLogNumber  = 9
	tagNewFile2       = 100
	tagNewFile3       = 102
	tagNewFile4       = 103
	tagNewFile5       = 104
	tagCreatedBacking = 105
	tagRemovedBacking = 106
	tagNewBlobFile    = 107
	tagDeletedBlob    = 108

	customTerminate  = 1
	customVirtual    = 66
	customPrefix     = 67
	customSuffix     = 68
	customBlobRefs   = 69
	customUnsafeMask = 1 << 6
)

// fields gives, for a tag whose value is a fixed run of fields, that run: 'v' for a
// varint, 'b' for length-prefixed bytes. The other tags are in decodeEdit.
var fields = map[uint64]string{
	tagComparator: "b", tagNextFileNumber: "v", tagCompactPointer: "vb",
	tagDeletedFile: "vv", tagPrevLogNumber: "v", tagCreatedBacking: "vv",
	tagRemovedBacking: "v", tagNewBlobFile: "vvvvv", tagDeletedBlob: "vv",
}

// decodeEdit reads one version edit. It knows every tag, because only a known tag can
// be skipped.
func decodeEdit(b []byte) (edit, error) {
	var e edit
	d := editDecoder{b: b}
	for len(d.b) > 0 && d.err == nil {
		switch tag := d.varint(); tag {
		case tagLogNumber:
			e.minUnflushed = d.varint()
		case tagLastSequence:
			e.lastSeqnum = d.varint()
		case tagNewFile, tagNewFile2, tagNewFile3, tagNewFile4, tagNewFile5:
			e.tables++
			e.flushedSeqnum = max(e.flushedSeqnum, d.table(tag))
		default:
			run, ok := fields[tag]
			if !ok && d.err == nil {
				d.err = fmt.Errorf("unknown tag %d", tag)
			}
			d.skip(run)
		}
	}
	return e, d.err
}

// editDecoder takes fields off b. After the first error every field is zero.
type editDecoder struct {
	b   []byte
	err error
}

func (d *editDecoder) varint() uint64 {
	if d.err != nil {
		return 0
	}
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.err = fmt.Errorf("varint is cut off or too long, %d bytes from the end", len(d.b))
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *editDecoder) bytes() {
	n := d.varint()
	if d.err == nil && n > uint64(len(d.b)) {
		d.err = fmt.Errorf("field of %d bytes, %d are left", n, len(d.b))
	}
	if d.err == nil {
		d.b = d.b[n:]
	}
}

func (d *editDecoder) skip(run string) {
	for _, f := range run {
		if f == 'v' {
			d.varint()
		} else {
			d.bytes()
		}
	}
}

// table reads an added table and returns its largest seqnum.
func (d *editDecoder) table(tag uint64) (largest uint64) {
	d.skip("vv") // level, number
	if tag == tagNewFile3 {
		d.varint() // path id
	}
	d.varint() // size
	if tag == tagNewFile5 {
		const containsPointKeys = 1
		if len(d.b) == 0 {
			d.err = fmt.Errorf("table bounds are cut off")
			return 0
		}
		marker := d.b[0]
		d.b = d.b[1:]
		if marker&containsPointKeys != 0 {
			d.skip("bb")
		}
	}
	d.skip("bb") // smallest and largest key
	if tag != tagNewFile {
		d.varint()
		largest = d.varint()
	}
	if tag != tagNewFile4 && tag != tagNewFile5 {
		return largest
	}
	for d.err == nil {
		switch custom := d.varint(); custom {
		case customTerminate:
			return largest
		case customVirtual:
			d.varint()
		case customPrefix, customSuffix:
			d.bytes()
		case customBlobRefs:
			d.varint() // depth
			for n := d.varint(); n > 0 && d.err == nil; n-- {
				d.skip("vv")
			}
		default:
			if custom&customUnsafeMask != 0 && d.err == nil {
				d.err = fmt.Errorf("unknown table field %d", custom)
			}
			d.bytes()
		}
	}
	return largest
}

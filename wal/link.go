package wal

import (
	"encoding/binary"

	"github.com/tgad/tgad/schemas/tga"
)

// link is the first record of a segment. It says where the segment before it ends. It is
// synced before the next record is written, so a segment with any record has a whole link.
//
// It is a record with one operation, whose value is
//
//	0  start and end of the last record before [4] [4], zeros in the first segment
//	8  timeline of the segment before [16]
//
// The link's own header names the group and the checksum of that last record, and the
// checksum is bound to the use of the file. The link's timeline differs from that of its own
// segment only in the first segment of a new timeline.
type link struct {
	start    uint32
	end      uint32
	timeline tga.ID
}

const linkLen = 24

// linkSize is the length of a link's record.
const linkSize = headerLen + opLen + linkLen

func (l *link) appendTo(o *Ops) {
	b := binary.BigEndian.AppendUint32(nil, l.start)
	b = binary.BigEndian.AppendUint32(b, l.end)
	o.add(linkOp, Nowhere, nil, append(b, l.timeline[:]...), 0, 0)
}

// readLink reads the link of a segment. It returns nil if there is none: then no record was
// written to the segment yet.
func (w *window) readLink(id *Identity) (*Record, *link, error) {
	b, err := w.bytes(identityLen, linkSize)
	if b == nil {
		return nil, nil, err
	}
	h, ok := readHeader(b, id, identityLen)
	if !ok || h.ops != 1 || h.size() != linkSize {
		return nil, nil, nil
	}
	r, err := w.record(id, identityLen, Position{Group: h.group - 1, Sum: h.prev})
	if r == nil {
		return nil, nil, err
	}
	var l *link
	err = r.Ops(func(op *Op) error {
		if op.Kind == linkOp && len(op.Value) == linkLen {
			v := op.Value
			l = &link{binary.BigEndian.Uint32(v), binary.BigEndian.Uint32(v[4:]), tga.ID(v[8:])}
		}
		return nil
	})
	if err != nil || l == nil {
		return nil, nil, err
	}
	r.buf = append([]byte(nil), r.buf...)
	return r, l, nil
}

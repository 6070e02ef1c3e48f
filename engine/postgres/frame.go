package postgres

import (
	"encoding/binary"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// An entry frame (wal/chain, docs/FORMAT.md) is stored in two columns. The first has the header and
// the key, which never change; the second has the parts, which can be erased. The frame is the first
// column followed by the second.
const (
	frameHeader = 192 // without the key
	frameMade   = 1
	frameFlags  = 2
	frameParts  = 7
	frameKey    = 112
	frameLength = 116

	flagErased = 1 << 1
)

// erasedPart is the one part of a frame whose artifact was erased.
var erasedPart = []byte{2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

// splitFrame returns the two columns of an entry's frame, and the parts that are too long for the frame. If the entry has a
// key, the parts are sealed.
func splitFrame(e *chain.Entry, keys chain.Keys) (header, parts, spill []byte, err error) {
	frame, spill, err := chain.AppendSealedFrame(nil, e, keys)
	if err != nil {
		return nil, nil, nil, err
	}
	at := frameHeader + int(binary.BigEndian.Uint32(frame[frameKey:]))
	return frame[:at:at], frame[at:], spill, nil
}

// joinFrame reads an entry from its columns.
func joinFrame(header, parts, spill []byte, keys chain.Keys) (chain.Entry, error) {
	frame := append(append(make([]byte, 0, len(header)+len(parts)), header...), parts...)
	if parts == nil && len(frame) >= frameHeader {
		frame = append(frame, erasedPart...)
		frame[frameMade] = tga.EntryFrameVersion // no part of it is sealed any more
		binary.BigEndian.PutUint16(frame[frameFlags:], flagErased)
		frame[frameParts] = 1
		binary.BigEndian.PutUint32(frame[frameLength:], uint32(len(frame)))
	}
	return chain.DecodeSealedFrame(frame, keys, func(size int64) ([]byte, error) {
		if int64(len(spill)) != size {
			err := tga.Errorf(tga.StateChecksumMismatch, "%d bytes of long parts, want %d", len(spill), size)
			err.Where = "stored"
			return nil, err
		}
		return spill, nil
	})
}

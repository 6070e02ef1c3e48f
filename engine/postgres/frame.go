package postgres

import (
	"encoding/binary"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// An entry frame (wal/chain, docs/FORMAT.md) lies in two columns: what is never changed, its header
// with the key, and its parts, which can be erased. Put one behind the other, they are the frame.
const (
	frameHeader = 192 // without the key
	frameFlags  = 2
	frameParts  = 7
	frameKey    = 112
	frameLength = 116

	flagErased = 1 << 1
)

// erasedPart is the one part of a frame whose artifact was erased.
var erasedPart = []byte{2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

// splitFrame returns the two pieces of an entry's frame, and the parts that are too long for it.
func splitFrame(e *chain.Entry) (header, parts, spill []byte) {
	frame, spill := chain.AppendFrame(nil, e)
	at := frameHeader + int(binary.BigEndian.Uint32(frame[frameKey:]))
	return frame[:at:at], frame[at:], spill
}

// joinFrame reads an entry from its columns.
func joinFrame(header, parts, spill []byte) (chain.Entry, error) {
	frame := append(append(make([]byte, 0, len(header)+len(parts)), header...), parts...)
	if parts == nil && len(frame) >= frameHeader {
		frame = append(frame, erasedPart...)
		binary.BigEndian.PutUint16(frame[frameFlags:], flagErased)
		frame[frameParts] = 1
		binary.BigEndian.PutUint32(frame[frameLength:], uint32(len(frame)))
	}
	return chain.DecodeFrame(frame, func(size int64) ([]byte, error) {
		if int64(len(spill)) != size {
			err := tga.Errorf(tga.StateChecksumMismatch, "%d bytes of long parts, want %d", len(spill), size)
			err.Where = "stored"
			return nil, err
		}
		return spill, nil
	})
}

package keyspace

import (
	"encoding/binary"

	"github.com/tgad/tgad/schemas/tga"
)

// AppendEntry appends the key of a trace's entry. seq is at least 1.
func AppendEntry(dst []byte, trace tga.ID, seq uint64) []byte {
	return appendTraceSeq(dst, Entry, trace, seq)
}

// ParseEntry reads an entry key.
func ParseEntry(key []byte) (trace tga.ID, seq uint64, err error) {
	return parseTraceSeq(key, Entry, 1)
}

// EntryBounds returns the bounds of a trace's entries.
func EntryBounds(trace tga.ID) (lower, upper []byte) { return traceBounds(Entry, trace) }

// AppendChunk appends the key of one piece of an entry's spilled parts. Chunks are
// numbered from 0.
func AppendChunk(dst []byte, trace tga.ID, seq uint64, chunk uint16) []byte {
	return binary.BigEndian.AppendUint16(appendTraceSeq(dst, Chunk, trace, seq), chunk)
}

// ParseChunk reads a chunk key.
func ParseChunk(key []byte) (trace tga.ID, seq uint64, chunk uint16, err error) {
	trace, seq, err = parseTraceSeq(key, Chunk, 1)
	if err != nil {
		return tga.ID{}, 0, 0, err
	}
	return trace, seq, binary.BigEndian.Uint16(key[25:]), nil
}

// ChunkBounds returns the bounds of the chunks of one entry.
func ChunkBounds(trace tga.ID, seq uint64) (lower, upper []byte) {
	return prefix(appendTraceSeq(make([]byte, 0, 25), Chunk, trace, seq))
}

// TraceChunkBounds returns the bounds of the chunks of all entries of a trace.
func TraceChunkBounds(trace tga.ID) (lower, upper []byte) { return traceBounds(Chunk, trace) }

// AppendNote appends the key of a trace's note. number is at least 1.
func AppendNote(dst []byte, trace tga.ID, number uint32) []byte {
	return binary.BigEndian.AppendUint32(appendTrace(dst, Note, trace), number)
}

// ParseNote reads a note key.
func ParseNote(key []byte) (trace tga.ID, number uint32, err error) {
	if trace, err = parseTrace(key, Note); err != nil {
		return tga.ID{}, 0, err
	}
	if number = binary.BigEndian.Uint32(key[17:]); number == 0 {
		return tga.ID{}, 0, malformed("n key", key, "number 0")
	}
	return trace, number, nil
}

// NoteBounds returns the bounds of a trace's notes.
func NoteBounds(trace tga.ID) (lower, upper []byte) { return traceBounds(Note, trace) }

// AppendCheckpoint appends the key of the checkpoint of a trace at seq. seq 0 is
// the checkpoint of an empty trace.
func AppendCheckpoint(dst []byte, trace tga.ID, seq uint64) []byte {
	return appendTraceSeq(dst, Checkpoint, trace, seq)
}

// ParseCheckpoint reads a checkpoint key.
func ParseCheckpoint(key []byte) (trace tga.ID, seq uint64, err error) {
	return parseTraceSeq(key, Checkpoint, 0)
}

// CheckpointBounds returns the bounds of a trace's checkpoints.
func CheckpointBounds(trace tga.ID) (lower, upper []byte) { return traceBounds(Checkpoint, trace) }

// AppendOpen appends the key of an open trace in the index of open traces.
func AppendOpen(dst []byte, trace tga.ID) []byte { return appendTrace(dst, Open, trace) }

// ParseOpen reads the key of an open trace.
func ParseOpen(key []byte) (trace tga.ID, err error) { return parseTrace(key, Open) }

// OpenBounds returns the bounds of the open traces.
func OpenBounds() (lower, upper []byte) { return Bounds(Open) }

// AppendTombstone appends the key of an archived trace's tombstone.
func AppendTombstone(dst []byte, trace tga.ID) []byte { return appendTrace(dst, Tombstone, trace) }

// ParseTombstone reads a tombstone key.
func ParseTombstone(key []byte) (trace tga.ID, err error) { return parseTrace(key, Tombstone) }

// TombstoneBounds returns the bounds of the tombstones.
func TombstoneBounds() (lower, upper []byte) { return Bounds(Tombstone) }

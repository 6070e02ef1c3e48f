package guard

import (
	"encoding/binary"
	"fmt"
	"io"
)

// End says how a log ends.
type End uint8

// The ends. Only the newest live WAL may end otherwise than closed.
const (
	EndClosed End = iota // with the trailer that Pebble writes on close
	EndFile              // with the file, after a whole record
	EndTorn              // with zeros, bytes of an earlier use, or part of a record
)

// String names the end.
func (e End) String() string {
	return [...]string{EndClosed: "closed", EndFile: "end of file", EndTorn: "torn"}[e]
}

// WAL holds the facts of one live write-ahead log.
type WAL struct {
	Number      uint64
	Name        string
	Bytes       int64
	SyncOffsets bool   // its chunks carry sync offsets (format >= 20)
	Records     int    // whole records before End
	FirstSeqnum uint64 // Pebble's seqnum of the first and of the last key; 0 when it holds none
	LastSeqnum  uint64
	SyncedTo    int64 // the largest sync offset found
	End         End
	EndOffset   int64
}

// Problem is a place where the store is not what it was when it was durable.
type Problem struct {
	File   string
	Offset int64
	What   string
}

// String returns "file: offset: what".
func (p Problem) String() string { return fmt.Sprintf("%s: offset %d: %s", p.File, p.Offset, p.What) }

// walReader reads one WAL in one pass, block by block, in constant memory.
type walReader struct {
	WAL
	problems []Problem

	log      uint32
	base     int64 // offset of the current block
	layout   layout
	inRecord bool
	start    int64 // of the current record
	head     [batchHeader]byte
	headLen  int
	next     uint64 // the seqnum that the next batch must have; 0 = any
	ended    bool
}

// batchHeader is the length of a batch's header: seqnum[8] count[4], little-endian.
const batchHeader = 12

// readWAL reads the log numbered number from r. The returned error is r's.
func readWAL(r io.Reader, name string, number uint64) (WAL, []Problem, error) {
	// Chunks carry the low 32 bits of the log's number.
	w := &walReader{WAL: WAL{Number: number, Name: name}, log: uint32(number)}
	block := make([]byte, blockSize)
	for {
		n, err := io.ReadFull(r, block)
		if n > 0 {
			w.block(block[:n])
			w.base += int64(n)
		}
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			break
		}
		if err != nil {
			return w.WAL, w.problems, err
		}
	}
	w.Bytes = w.base
	if !w.ended {
		w.EndOffset, w.End = w.base, EndFile
		if w.inRecord {
			w.EndOffset, w.End = w.start, EndTorn
		}
	}
	return w.WAL, w.problems, nil
}

// block reads one block: records until the log ends, evidence after that.
func (w *walReader) block(b []byte) {
	off := 0
	for !w.ended && off < len(b) {
		c, what := at(b, off, w.log, true)
		switch {
		case what == foundPad:
			return
		case what == foundTrailer && !w.inRecord:
			w.stop(EndClosed, w.base+int64(off))
			off = c.end
		case what == foundChunk && w.accept(&c):
			off = c.end
		default:
			w.stop(EndTorn, w.base+int64(off))
			if c.end == 0 {
				return // nothing says where the next chunk of this block starts
			}
			off = c.end
		}
	}
	for off < len(b) {
		c, what := at(b, off, w.log, true)
		if what == foundChunk && c.log == w.log {
			w.evidence(&c)
		}
		if c.end == 0 || what == foundPad {
			return
		}
		off = c.end
	}
}

// accept takes a chunk into the current record. It refuses one that cannot follow.
func (w *walReader) accept(c *chunk) bool {
	offset := w.base + int64(c.start)
	switch {
	case c.layout == layoutLegacy:
		// It names no log, so Pebble would take one that an earlier use of the file left
		// there, perhaps inside a value, for a batch of this log.
		w.problem(offset, "chunk without a log number")
		return false
	case w.layout != layoutNone && c.layout != w.layout:
		w.problem(offset, "chunk of another format than those before it")
		return false
	case c.starts() == w.inRecord:
		w.problem(offset, "chunk that does not continue what is before it")
		return false
	case c.syncOffset > uint64(offset):
		w.problem(offset, fmt.Sprintf("sync offset %d beyond its own chunk", c.syncOffset))
		return false
	}
	w.layout = c.layout
	w.SyncOffsets = c.layout == layoutSync
	w.SyncedTo = max(w.SyncedTo, int64(c.syncOffset))
	if c.starts() {
		w.start, w.headLen = offset, 0
	}
	w.headLen += copy(w.head[w.headLen:], c.payload)
	w.inRecord = !c.ends()
	if c.ends() {
		w.record()
	}
	return true
}

// record ends a record: a batch, of which only the header is needed.
func (w *walReader) record() {
	if w.headLen < batchHeader {
		w.problem(w.start, fmt.Sprintf("record of %d bytes is shorter than a batch header", w.headLen))
		return
	}
	seqnum := binary.LittleEndian.Uint64(w.head[:8])
	count := uint64(binary.LittleEndian.Uint32(w.head[8:]))
	w.Records++
	if w.next != 0 && seqnum != w.next {
		w.problem(w.start, fmt.Sprintf("batch has seqnum %d, want %d", seqnum, w.next))
	}
	w.next = seqnum + count
	if count == 0 { // log data only: it takes no seqnum
		return
	}
	if w.FirstSeqnum == 0 {
		w.FirstSeqnum = seqnum
	}
	w.LastSeqnum = seqnum + count - 1
}

// stop ends the log at offset, or at the start of the record that offset cuts.
func (w *walReader) stop(end End, offset int64) {
	if w.inRecord {
		offset = w.start
	}
	w.ended, w.inRecord, w.End, w.EndOffset = true, false, end, offset
}

// evidence weighs a chunk of this log behind the log's end. A writer that was cut
// off may leave chunks there: the disk orders unsynced sectors as it likes. But a
// chunk that promises that the log was synced beyond its end proves that the end was
// written, synced and later lost; and nothing of a log follows its trailer.
func (w *walReader) evidence(c *chunk) {
	w.SyncedTo = max(w.SyncedTo, int64(min(c.syncOffset, 1<<62)))
	offset := w.base + int64(c.start)
	switch {
	case w.End == EndClosed:
		w.problem(offset, fmt.Sprintf("chunk of this log behind its trailer at offset %d", w.EndOffset))
	case c.syncOffset > uint64(w.EndOffset) && c.syncOffset <= uint64(offset):
		w.problem(w.EndOffset, fmt.Sprintf("unreadable, but the chunk at offset %d says that the log was synced to offset %d", offset, c.syncOffset))
	}
}

// problem notes a problem, up to a limit: a file of garbage must not fill memory.
func (w *walReader) problem(offset int64, what string) {
	const limit = 8
	if len(w.problems) < limit {
		w.problems = append(w.problems, Problem{w.Name, offset, what})
	}
}

package guard

import "fmt"

// Manifest holds the facts of the current MANIFEST, as far as it can be read.
type Manifest struct {
	Name  string
	Bytes int64
	Edits int
	// FlushedWAL is the number below which every WAL is flushed: Pebble replays the
	// logs from it on, and only those.
	FlushedWAL uint64
	// FlushedSeqnum is the largest seqnum in any table that was ever added. It is at
	// most what was flushed: compaction forgets the seqnums of old keys.
	FlushedSeqnum uint64
	// LastSeqnum is at least as large as every seqnum assigned when the last edit was
	// written, flushed or not.
	LastSeqnum uint64
	End        End
	EndOffset  int64
}

// manifestReader folds a MANIFEST's bytes, handed to it in order by Write, into the
// facts. Pebble syncs after every record, so at most the last one can be torn.
type manifestReader struct {
	Manifest
	problems []Problem

	block    []byte // what is known of the current block
	base     int64  // its offset
	off      int    // next chunk in it
	record   []byte
	inRecord bool
	start    int64 // of the current record
	ended    bool
}

func newManifestReader(name string) *manifestReader {
	return &manifestReader{Manifest: Manifest{Name: name}, block: make([]byte, 0, blockSize)}
}

// Write takes the next bytes of the file. It never fails.
func (m *manifestReader) Write(p []byte) (int, error) {
	written := len(p)
	for len(p) > 0 {
		n := copy(m.block[len(m.block):cap(m.block)], p)
		m.block, p = m.block[:len(m.block)+n], p[n:]
		m.read(false)
		if len(m.block) == blockSize {
			m.base += blockSize
			m.block, m.off = m.block[:0], 0
		}
	}
	return written, nil
}

// finish says that there are no more bytes.
func (m *manifestReader) finish() {
	m.read(true)
	m.Bytes = m.base + int64(len(m.block))
	if !m.ended {
		m.End, m.EndOffset = EndFile, m.Bytes
		if m.inRecord {
			m.End, m.EndOffset = EndTorn, m.start
		}
	}
	if m.Edits == 0 {
		m.problem(0, "no readable version edit")
	}
}

// read reads the chunks of the block that are there. In a block that is still
// growing, what is not a whole chunk may become one; final says that it will not.
func (m *manifestReader) read(final bool) {
	for !m.ended && m.off < len(m.block) {
		c, what := at(m.block, m.off, 0, false)
		switch {
		case what == foundPad:
			m.off = len(m.block)
		case what == foundChunk && c.starts() != m.inRecord:
			m.accept(&c)
			m.off = c.end
		case what != foundChunk && !final && len(m.block) < blockSize:
			return
		default:
			m.ended, m.End = true, EndTorn
			m.EndOffset = m.base + int64(m.off)
			if m.inRecord {
				m.EndOffset = m.start
			}
			m.inRecord, m.record = false, nil
		}
	}
	if m.ended && (final || len(m.block) == blockSize) {
		m.evidence()
		m.off = len(m.block)
	}
}

func (m *manifestReader) accept(c *chunk) {
	if c.starts() {
		m.start, m.record = m.base+int64(c.start), m.record[:0]
	}
	m.record = append(m.record, c.payload...)
	m.inRecord = !c.ends()
	if m.inRecord {
		return
	}
	e, err := decodeEdit(m.record)
	if err != nil {
		m.problem(m.start, fmt.Sprintf("version edit: %v", err))
		return
	}
	m.Edits++
	m.FlushedWAL = max(m.FlushedWAL, e.minUnflushed)
	m.LastSeqnum = max(m.LastSeqnum, e.lastSeqnum)
	m.FlushedSeqnum = max(m.FlushedSeqnum, e.flushedSeqnum)
}

// evidence looks for the start of a later record behind the end. There is none behind
// a torn write, because the record before it was synced first. Legacy chunks carry no
// log number and one damaged length hides all that follow in the block, so every
// offset is tried; a MANIFEST is never recycled and holds no caller's values.
func (m *manifestReader) evidence() {
	for off := m.off; off+legacyHeader <= len(m.block) && len(m.problems) == 0; off++ {
		c, what := at(m.block, off, 0, false)
		if what == foundChunk && c.starts() && m.base+int64(off) > m.EndOffset {
			m.problem(m.EndOffset, fmt.Sprintf("unreadable, but a later record starts at offset %d", m.base+int64(off)))
		}
	}
}

func (m *manifestReader) problem(offset int64, what string) {
	const limit = 8
	if len(m.problems) < limit {
		m.problems = append(m.problems, Problem{m.Name, offset, what})
	}
}

package engine

import (
	"errors"

	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal"
	"github.com/tgad/tgad/wal/segment"
)

// archive keeps what was read of segments of archived traces: their footers, and the blocks
// used last, unpacked. Whoever reads traces in the order of their ids then reads and unpacks
// each block once. Both are named by the file, which is never written again; a segment that
// is made anew has another file.
type archive struct {
	footers lru[tga.ID, *segment.Reader]
	blocks  lru[blockName, *segment.Block]
}

type blockName struct {
	file tga.ID
	n    uint32
}

// What an archive keeps at most. A footer of 1,024 traces takes 110 KB, a block mostly 64 KB.
const (
	footersBytes = 16 << 20
	blocksBytes  = 8 << 20
)

func (a *archive) init() {
	a.footers.init(1<<20, footersBytes)
	a.blocks.init(1<<20, blocksBytes)
}

func (a *archive) clear() {
	a.footers.clear()
	a.blocks.clear()
}

// trace reads a trace of a segment's file.
func (a *archive) trace(l *wal.Log, at wal.File, key []byte, id tga.ID) (t segment.Trace, err error) {
	r, ok := a.footers.get(at.ID)
	if ok {
		info, found := r.Lookup(id)
		if b, ok := a.blocks.get(blockName{at.ID, info.Block}); ok && found {
			return b.Trace(id)
		}
	}
	body, err := l.OpenFile(at, key)
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, body.Close()) }()
	if ok {
		r = r.On(body)
	} else if r, err = segment.Open(body, body.Len()); err != nil {
		return t, err
	} else {
		a.footers.put(at.ID, r.On(nil), r.Size())
	}
	info, ok := r.Lookup(id)
	if !ok {
		return t, damaged("trace %s is not in the segment that its tombstone names", id).In(id)
	}
	b, err := r.Block(info.Block)
	if err != nil {
		return t, err
	}
	a.blocks.put(blockName{at.ID, info.Block}, b, b.Size())
	return b.Trace(id)
}

// archived returns an archived trace from its segment; nil where the id has no
// tombstone.
func (db *DB) archived(r reader, id tga.ID) (*segment.Trace, uint64, error) {
	value, err := db.get(r, keyspace.AppendTombstone(nil, id))
	if err != nil || value == nil {
		return nil, 0, err
	}
	stone, err := decodeTombstone(value)
	if err != nil {
		return nil, 0, err
	}
	defer db.wal.Pin()()
	at, key, err := db.segmentFile(r, stone.Segment)
	if err != nil {
		return nil, 0, err
	}
	t, err := db.archive.trace(db.wal, at, key, id)
	if err != nil {
		return nil, 0, err
	}
	if last := t.Entries[len(t.Entries)-1]; last.Seq != stone.Last || last.Digest != stone.Head {
		err := damaged("trace %s ends in segment %d at seq %d, its tombstone says %d", id, stone.Segment, last.Seq, stone.Last).In(id)
		err.Seq, err.WantDigest, err.GotDigest = stone.Last, stone.Head, last.Digest
		return nil, 0, err
	}
	return &t, stone.Segment, nil
}

// segmentFile returns the file that the index names for a segment, and its key.
func (db *DB) segmentFile(r reader, n uint64) (at wal.File, key []byte, err error) {
	key = keyspace.AppendSegment(nil, n)
	row, err := db.row(r, key)
	if err != nil {
		return at, key, err
	}
	if row == nil {
		return at, key, damaged("segment %d is not there", n)
	}
	found, err := decodeRow(row)
	if err == nil && found.kind != rowFile {
		err = damaged("segment %d has no file", n)
	}
	return found.file, key, err
}

// inSegment calls f with a segment, which is read where f reads it.
func (db *DB) inSegment(r reader, n uint64, f func(*segment.Reader) error) (err error) {
	defer db.wal.Pin()()
	at, key, err := db.segmentFile(r, n)
	if err != nil {
		return err
	}
	body, err := db.wal.OpenFile(at, key)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, body.Close()) }()
	sr, err := segment.Open(body, body.Len())
	if err != nil {
		return err
	}
	return f(sr)
}

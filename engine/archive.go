package engine

import (
	"errors"

	"github.com/tgad/tgad/internal/segment"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal"
	"github.com/tgad/tgad/wal/chain"
)

// archive caches parts of archive segments: footers, and the blocks and lists used last,
// unpacked. So a caller that reads traces in the order of their ids reads and unpacks each block
// once. The cache is keyed by the segment's file, which never changes: a segment that is
// rewritten gets another file.
type archive struct {
	footers lru[tga.ID, *segment.Reader]
	blocks  lru[blockName, *segment.Block]
	lists   lru[tga.ID, *segment.List]
	keys    chain.Keys // open sealed entries; may be nil
}

type blockName struct {
	file tga.ID
	n    uint32
}

// Bounds of the caches of an archive. A footer of 1,024 traces takes 110 KB, a block mostly 64 KB,
// a list of 1,024 traces about 250 KB.
const (
	footersBytes = 16 << 20
	blocksBytes  = 8 << 20
	listsBytes   = 8 << 20
)

func newArchive(keys chain.Keys) *archive {
	a := &archive{keys: keys}
	a.footers.init(1<<20, footersBytes)
	a.blocks.init(1<<20, blocksBytes)
	a.lists.init(1<<20, listsBytes)
	return a
}

func (a *archive) clear() {
	a.footers.clear()
	a.blocks.clear()
	a.lists.clear()
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
	err = a.in(l, at, key, func(r *segment.Reader) error {
		info, ok := r.Lookup(id)
		if !ok {
			return notInSegment(id)
		}
		b, err := r.Block(info.Block)
		if err != nil {
			return err
		}
		a.blocks.put(blockName{at.ID, info.Block}, b, b.Size())
		t, err = b.Trace(id)
		return err
	})
	return t, err
}

// in calls f with a reader of a segment's file. It reads the footer if the cache does not have it.
func (a *archive) in(l *wal.Log, at wal.File, key []byte, f func(*segment.Reader) error) (err error) {
	body, err := l.OpenFile(at, key)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, body.Close()) }()
	r, ok := a.footers.get(at.ID)
	if ok {
		return f(r.On(body))
	}
	if r, err = segment.Open(body, body.Len(), a.keys); err != nil {
		return err
	}
	a.footers.put(at.ID, r.On(nil), r.Size())
	return f(r)
}

// listing reads the line of a trace in a segment's list. It unpacks no block.
func (a *archive) listing(l *wal.Log, at wal.File, key []byte, id tga.ID) (shown chain.Listing, info segment.Info, err error) {
	list, ok := a.lists.get(at.ID)
	if !ok {
		if err := a.in(l, at, key, func(r *segment.Reader) error {
			list, err = r.List()
			return err
		}); err != nil {
			return shown, info, err
		}
		a.lists.put(at.ID, list, list.Size())
	}
	if shown, info, ok = list.Listing(id); !ok {
		return shown, info, notInSegment(id)
	}
	return shown, info, nil
}

func notInSegment(id tga.ID) error {
	return damaged("trace %s is not in the segment that its tombstone names", id).In(id)
}

// archived returns an archived trace from its segment, nil if the id has no tombstone.
func (r *reading) archived(id tga.ID) (found *segment.Trace, n uint64, err error) {
	n, err = r.buried(id, func(at wal.File, key []byte) (chain.Head, error) {
		t, err := r.archive.trace(r.log, at, key, id)
		if err != nil {
			return chain.Head{}, err
		}
		found = &t
		last := t.Entries[len(t.Entries)-1]
		return chain.Head{Seq: last.Seq, Digest: last.Digest}, nil
	})
	if err != nil {
		return nil, 0, err
	}
	return found, n, nil
}

// archivedListing returns the line of a list for an archived trace; ok is false if the id has no
// tombstone.
func (r *reading) archivedListing(id tga.ID) (shown chain.Listing, ok bool, err error) {
	_, err = r.buried(id, func(at wal.File, key []byte) (head chain.Head, err error) {
		var info segment.Info
		shown, info, err = r.archive.listing(r.log, at, key, id)
		ok = err == nil
		return chain.Head{Seq: info.Last, Digest: info.HeadDigest}, err
	})
	return shown, ok && err == nil, err
}

// buried calls read with the file of the segment that the tombstone of a trace names, and compares
// the head that read returns with the tombstone. If there is no tombstone, it returns 0.
func (r *reading) buried(id tga.ID, read func(at wal.File, key []byte) (chain.Head, error)) (n uint64, err error) {
	value, err := r.get(keyspace.AppendTombstone(nil, id))
	if err != nil || value == nil {
		return 0, err
	}
	stone, err := decodeTombstone(value)
	if err != nil {
		return 0, err
	}
	defer r.log.Pin()()
	at, key, err := r.segmentFile(stone.Segment)
	if err != nil {
		return 0, err
	}
	head, err := read(at, key)
	if err != nil {
		return 0, err
	}
	if head.Seq != stone.Last || head.Digest != stone.Head {
		err := damaged("trace %s ends in segment %d at seq %d, its tombstone says %d", id, stone.Segment, head.Seq, stone.Last).In(id)
		err.Seq, err.WantDigest, err.GotDigest = stone.Last, stone.Head, head.Digest
		return 0, err
	}
	return stone.Segment, nil
}

// segmentFile returns the file that the index names for a segment, and its key.
func (r *reading) segmentFile(n uint64) (at wal.File, key []byte, err error) {
	key = keyspace.AppendSegment(nil, n)
	row, err := r.row(key)
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

// inSegment calls f with a reader of a segment. It reads only the parts that f reads.
func (r *reading) inSegment(n uint64, f func(*segment.Reader) error) (err error) {
	defer r.log.Pin()()
	at, key, err := r.segmentFile(n)
	if err != nil {
		return err
	}
	body, err := r.log.OpenFile(at, key)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, body.Close()) }()
	sr, err := segment.Open(body, body.Len(), r.keys)
	if err != nil {
		return err
	}
	return f(sr)
}

package wal

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io/fs"
	"math"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/klauspost/compress/zstd"

	"github.com/tgad/tgad/schemas/tga"
)

// Rewritten says what a rewrite did.
type Rewritten struct {
	Generation uint32
	Records    int
	Bodies     int   // kept
	Dropped    int   // bodies that are no longer needed
	Before     int64 // bytes of the file, before and after
	After      int64
}

// Rewrite replaces a segment by a smaller file: its headers and operations, and the bodies for
// which live returns true, compressed. This is how segments are compressed, and how erased
// bodies are removed from them. The newest segment cannot be rewritten: VALIDATION_ERROR.
//
// Rewrite reads the whole new file back before it replaces the old one, and makes it durable
// before it removes the old one. A crash leaves one of the two, or both. If both are left, the
// next [Log.Resume] removes the old one. Rewrite exchanges the files only once every pin that
// was held before was given back.
//
// One segment is rewritten at a time. Appends and reads go on meanwhile. If Rewrite fails, it
// removes its new file and the segment is unchanged: it can be tried again. STATE_CHECKSUM_MISMATCH: the segment is damaged,
// or the disk does not give it.
func (l *Log) Rewrite(ctx context.Context, number uint64, live func(*Op) (bool, error), pace Pace) (Rewritten, error) {
	l.packing.Lock()
	defer l.packing.Unlock()
	seg, end, err := l.rewritable(number)
	if err != nil {
		return Rewritten{}, err
	}
	gen := l.handles.generation(number) + 1
	out := Rewritten{Generation: gen}
	var new *packer
	err = l.handles.with(number, func(h *handle) error {
		out.Before = h.length
		if new, err = newPacker(l.files, number, gen, end, pace); err != nil {
			return err
		}
		return new.copy(ctx, h, seg, live, &out)
	})
	if err == nil {
		out.After, err = new.finish(ctx)
	}
	if err == nil {
		err = l.verify(ctx, pace, seg, end, out)
	}
	if err == nil {
		err = l.handles.quiet(ctx) // before the file gets its name: a canceled rewrite leaves no file
	}
	if err != nil {
		if new != nil {
			err = errors.Join(err, new.abandon(), l.dropPacking())
		}
		return Rewritten{}, valueError(err)
	}
	return out, l.exchange(number, gen)
}

// rewritable returns a segment and where its records end.
func (l *Log) rewritable(number uint64) (*segment, uint32, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, s := range l.segments {
		if end := endOf(l.segments, i); s.id.Number == number && end != 0 {
			return s, end, nil
		}
	}
	return nil, 0, tga.Errorf(tga.ValidationError, "log: segment %d has no end that another segment names: it cannot be rewritten", number)
}

// packer writes a packed segment.
type packer struct {
	files  files
	name   string
	f      vfs.File
	zip    *zstd.Encoder
	pace   Pace
	at     uint32
	synced uint32 // up to this offset the disk was asked to begin writing
	end    uint32
	head   []byte
	footer []byte
	heads  pieces
	bodies pieces
	kept   uint32 // bytes of bodies
	// held are the compressed body blocks. They are written after all headers.
	held []pieceBlock
}

// pieces is a block that is being filled.
type pieces struct {
	table []byte
	data  []byte
	first uint32
	n     uint32
}

type pieceBlock struct {
	stored []byte
	entry  packedEntry
}

func newPacker(d files, number uint64, gen, end uint32, pace Pace) (*packer, error) {
	zip, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return nil, unavailable("zstd", err)
	}
	p := &packer{files: d, name: packedName(number, gen), zip: zip, pace: pace, at: packedHeader, end: end}
	p.head = binary.BigEndian.AppendUint32([]byte(packedMagic), tga.LogPackedVersion)
	p.head = binary.BigEndian.AppendUint32(p.head, gen)
	if p.f, err = d.fs.Create(d.path(packingName), vfs.WriteCategoryUnspecified); err != nil {
		return nil, unavailable("make "+p.name, err)
	}
	if err = write(p.f, p.head); err != nil {
		return p, unavailable("write "+p.name, err)
	}
	return p, nil
}

// copy adds to the new file what stays of a segment.
func (p *packer) copy(ctx context.Context, h *handle, seg *segment, live func(*Op) (bool, error), out *Rewritten) error {
	w := &window{f: h, size: p.end}
	id, err := w.bytes(0, identityLen)
	if err != nil {
		return err
	}
	if err := p.piece(headPieces, 0, id); err != nil {
		return err
	}
	return w.records(ctx, p.pace, seg, p.end, func(r *Record) error {
		out.Records++
		if err := p.piece(headPieces, r.At.Start, r.buf); err != nil {
			return err
		}
		return r.Ops(func(op *Op) error { return p.body(h, op, live, out) })
	})
}

// body adds the body of an operation to the new file, if it has one that live wants to keep.
// If that body is damaged, body returns an error, and the segment stays as it is: damage is
// never removed silently.
func (p *packer) body(h *handle, op *Op, live func(*Op) (bool, error), out *Rewritten) error {
	if op.Place != Inline || op.Ref.Length == 0 {
		return nil
	}
	keep, err := live(op)
	if err != nil {
		return err
	}
	if !keep {
		out.Dropped++
		return nil
	}
	b := make([]byte, op.Ref.Length)
	if err := h.body(b, op.Ref, op.Key); err != nil {
		return err
	}
	out.Bodies++
	p.kept += op.Ref.Length
	return p.piece(bodyPieces, op.Ref.Offset, b)
}

// piece adds a piece to the block of its kind. It begins another block if that one is full.
func (p *packer) piece(kind byte, offset uint32, b []byte) error {
	q := &p.heads
	if kind == bodyPieces {
		q = &p.bodies
	}
	if q.n > 0 && len(q.data)+len(q.table)+len(b) > blockTarget {
		if err := p.flush(kind, q); err != nil {
			return err
		}
	}
	if q.n == 0 {
		q.first = offset
	}
	q.n++
	q.table = binary.BigEndian.AppendUint32(q.table, offset)
	q.table = binary.BigEndian.AppendUint32(q.table, uint32(len(b)))
	q.data = append(q.data, b...)
	return nil
}

// flush compresses a block. It writes blocks of headers at once. It holds blocks of bodies,
// which [packer.finish] writes after all headers.
func (p *packer) flush(kind byte, q *pieces) error {
	if q.n == 0 {
		return nil
	}
	plain := binary.BigEndian.AppendUint32(nil, q.n)
	plain = append(append(plain, q.table...), q.data...)
	stored := p.zip.EncodeAll(plain, nil)
	b := pieceBlock{stored, packedEntry{sum: crc32.Checksum(stored, castagnoli), first: q.first, plain: uint32(len(plain)), size: uint32(len(stored))}}
	q.table, q.data, q.n = q.table[:0], q.data[:0], 0
	if kind == bodyPieces {
		p.held = append(p.held, b)
		return nil
	}
	return p.write(kind, b)
}

func (p *packer) write(kind byte, b pieceBlock) error {
	if uint64(p.at)+uint64(len(b.stored)) > math.MaxUint32 {
		return tga.Errorf(tga.LimitExceeded, "log: %s is longer than 4 GiB", p.name)
	}
	if _, err := p.f.Write(b.stored); err != nil {
		return unavailable("write "+p.name, err)
	}
	e := b.entry
	p.footer = append(p.footer, kind, 0, 0, 0)
	for _, n := range []uint32{e.sum, e.first, e.plain, p.at, e.size} {
		p.footer = binary.BigEndian.AppendUint32(p.footer, n)
	}
	if p.at += e.size; p.at-p.synced >= filled {
		// Make the disk begin to write, so that the sync at the end is short and does not
		// delay the syncs of appends.
		if _, err := p.f.SyncTo(int64(p.at)); err != nil {
			return unavailable("write "+p.name, err)
		}
		p.synced = p.at
	}
	return nil
}

// finish writes what is left and makes the file durable under its working name.
func (p *packer) finish(ctx context.Context) (int64, error) {
	if err := errors.Join(p.flush(headPieces, &p.heads), p.flush(bodyPieces, &p.bodies)); err != nil {
		return 0, err
	}
	for _, b := range p.held {
		if err := p.pace.step(ctx); err != nil {
			return 0, err
		}
		if err := p.write(bodyPieces, b); err != nil {
			return 0, err
		}
	}
	tail := binary.BigEndian.AppendUint32(nil, uint32(len(p.footer)/packedBlock))
	tail = append(tail, 0, 0, 0, 0)
	tail = binary.BigEndian.AppendUint32(tail, p.end)
	tail = append(binary.BigEndian.AppendUint32(tail, p.kept), packedEnd...)
	binary.BigEndian.PutUint32(tail[4:], packedSum(p.head, p.footer, tail))
	size := int64(p.at) + int64(len(p.footer)+len(tail))
	_, err := p.f.Write(append(p.footer, tail...))
	if err == nil {
		err = p.f.Sync()
	}
	f := p.f
	p.f = nil
	if err = errors.Join(err, f.Close()); err != nil {
		return 0, unavailable("write "+p.name, err)
	}
	return size, nil
}

// abandon closes the file of a failed rewrite.
func (p *packer) abandon() error {
	var err error
	if p.f != nil {
		err = closing(p.f)
		p.f = nil
	}
	return errors.Join(err, p.zip.Close())
}

// dropPacking removes what a failed rewrite has written, so that it takes no disk space.
func (l *Log) dropPacking() error {
	if err := l.unlink(packingName, nil); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// verify reads the whole new file and checks the chain of its records and every body in it.
func (l *Log) verify(ctx context.Context, pace Pace, seg *segment, end uint32, out Rewritten) (err error) {
	f, err := l.files.fs.Open(l.files.path(packingName))
	if err != nil {
		return unavailable("open the unfinished packed segment", err)
	}
	defer func() { err = errors.Join(err, closing(f)) }()
	var cache blocks
	cache.init(maxBlock)
	p, err := openPacked(f, seg.id.Number, &cache)
	if err != nil {
		return err
	}
	if p.id != seg.id || p.end != end {
		return damaged("packed segment %d is another one", seg.id.Number)
	}
	w := &window{f: p, size: end}
	records, bodies, kept := 0, 0, uint32(0)
	if err := w.records(ctx, pace, seg, end, func(r *Record) error {
		records++
		return r.Ops(func(op *Op) error {
			if op.Place != Inline || op.Ref.Length == 0 {
				return nil
			}
			found, err := p.sameBody(op)
			if found {
				bodies++
				kept += op.Ref.Length
			}
			return err
		})
	}); err != nil {
		return err
	}
	if records != out.Records || bodies != out.Bodies || kept != p.bodies {
		return damaged("packed segment %d has %d records and %d bodies, of %d and %d", seg.id.Number, records, bodies, out.Records, out.Bodies)
	}
	return nil
}

// sameBody reads the body of an operation, if it was kept.
func (p *packed) sameBody(op *Op) (kept bool, err error) {
	b := make([]byte, op.Ref.Length)
	err = p.readBody(b, op.Ref)
	if errors.Is(err, errGone) {
		return false, nil
	}
	if err == nil && BodySum(op.Key, b) != op.Ref.Sum {
		err = damaged("packed segment %d offset %d: not the body that was there", op.Ref.Segment, op.Ref.Offset)
	}
	return true, err
}

// exchange gives the new file its name, makes readers use it, and removes the old file.
func (l *Log) exchange(number uint64, gen uint32) error {
	d := l.files
	if err := d.fs.Rename(d.path(packingName), d.path(packedName(number, gen))); err != nil {
		return errors.Join(unavailable("name "+packedName(number, gen), err), l.dropPacking())
	}
	if err := d.sync(); err != nil {
		// The old file is still the one that is read.
		return errors.Join(unavailable("name "+packedName(number, gen), err), d.remove([]version{{number, gen}}))
	}
	err := l.handles.exchange(number, gen)
	l.mu.Lock()
	l.stale = append(l.stale, version{number, gen - 1})
	l.mu.Unlock()
	return errors.Join(err, l.dropStale())
}

// dropStale removes the files that rewrites have replaced. If a file cannot be removed, the next rewrite, or the next
// [Log.Wipe], tries again: the file takes disk space, and it may have what was erased.
func (l *Log) dropStale() error {
	err, some := l.dropUnwiped(), false
	err = errors.Join(err, l.drop(&l.stale, func(v version) error {
		some = true
		if e := l.unlink(v.name(), func() { l.handles.left(v.number) }); !errors.Is(e, fs.ErrNotExist) {
			return e
		}
		return nil
	}))
	if !some {
		return err
	}
	if e := l.files.sync(); e != nil {
		err = errors.Join(err, unavailable("sync "+l.opts.Dir, e))
	}
	return err
}

package wal

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"hash"
	"io"
	iofs "io/fs"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/schemas/tga"
)

// CopiedFile is a file in a copy of a log.
type CopiedFile struct {
	Name   string   // in the log's directory
	Length int64    // how many of its bytes are the copy's: a file may have more
	Digest [32]byte // SHA-256 of those
	New    bool     // it was copied now; it was there before otherwise
}

// copying is the suffix of a file that is being copied.
const copying = ".copy"

// CopyTo copies the log up to its end now into a directory that holds nothing, or an earlier
// copy of this log: have says which files of that are there, by name, and they are not copied
// again. A file gets its name when it is whole and synced, and none that is there loses a byte
// that have names, so the earlier copy stays what it was until [TrimCopy].
//
// Files that are not written any more are linked where the file system can. Appends go on
// meanwhile; a rewrite waits.
func (l *Log) CopyTo(ctx context.Context, fs vfs.FS, dir string, have map[string]CopiedFile) (Position, []CopiedFile, error) {
	defer l.Pin()()
	end := l.End()
	parts, err := l.parts(end)
	if err != nil {
		return end, nil, err
	}
	c := copier{ctx: ctx, fs: fs, from: l.files, to: files{fs, dir}}
	out := make([]CopiedFile, 0, len(parts))
	for _, p := range parts {
		f, err := c.file(p, have)
		if missing := errors.Is(err, iofs.ErrNotExist); missing && p.number == 0 {
			continue // the file of a body that no record came to name
		} else if missing { // a rewrite that was over before the pin
			p.name = l.current(p.number)
			f, err = c.file(p, have)
		}
		if err != nil {
			return end, nil, errors.Join(ctx.Err(), unavailable("copy "+p.name, err))
		}
		out = append(out, f)
	}
	if err := c.to.sync(); err != nil {
		return end, nil, unavailable("sync "+dir, err)
	}
	return end, out, nil
}

// part is a file that belongs in a copy.
type part struct {
	name   string
	number uint64 // of a segment; 0: a body
	length int64  // of the newest segment, which is still written to; 0 otherwise: the whole file
}

// current is the name of the file that a segment is read from now.
func (l *Log) current(n uint64) string { return version{n, l.handles.generation(n)}.name() }

// parts lists the files of the log up to a position: of each segment the one that is read
// now. Another generation may be there that a rewrite is about to exchange; it lacks what was
// nobody's a moment later. The caller holds a pin.
func (l *Log) parts(end Position) (list []part, err error) {
	l.mu.Lock()
	segments := slices.Clone(l.segments)
	l.mu.Unlock()
	for _, s := range segments {
		n := s.id.Number
		p := part{name: l.current(n), number: n}
		if n == end.Segment {
			p.length = int64(end.End)
		}
		if n <= end.Segment {
			list = append(list, p)
		}
	}
	names, err := l.opts.FS.List(l.opts.Dir)
	if err != nil {
		return nil, unavailable("list "+l.opts.Dir, err)
	}
	slices.Sort(names)
	for _, name := range names {
		if _, body := parseBodyName(name); body {
			list = append(list, part{name: name})
		}
	}
	return list, nil
}

// copier copies files from one directory to another.
type copier struct {
	ctx      context.Context
	fs       vfs.FS
	from, to files
}

// file copies a file, unless an earlier copy has it.
func (c *copier) file(p part, have map[string]CopiedFile) (CopiedFile, error) {
	if err := c.ctx.Err(); err != nil {
		return CopiedFile{}, err
	}
	length, linked := p.length, p.length == 0
	if linked {
		info, err := c.fs.Stat(c.from.path(p.name))
		if err != nil {
			return CopiedFile{}, err
		}
		length = info.Size()
	}
	if f, ok := have[p.name]; ok && f.Length == length {
		if same, err := c.same(p.name, length); same || err != nil {
			f.New = false
			return f, err
		}
	}
	tmp := c.to.path(p.name + copying)
	if err := c.fs.Remove(tmp); err != nil && !errors.Is(err, iofs.ErrNotExist) {
		return CopiedFile{}, err
	}
	linked = linked && c.fs.Link(c.from.path(p.name), tmp) == nil
	into := tmp
	if linked {
		into = ""
	}
	digest, err := CopyFile(c.ctx, c.fs, c.from.path(p.name), into, length)
	if err == nil {
		err = c.fs.Rename(tmp, c.to.path(p.name))
	}
	return CopiedFile{p.name, length, digest, true}, err
}

// CopyFile copies the first n bytes of a file into a new one, synced, and digests them; into
// none where to is "". io.EOF: the file has fewer.
func CopyFile(ctx context.Context, fs vfs.FS, from, to string, n int64) (digest [32]byte, err error) {
	in, err := fs.Open(from, vfs.SequentialReadsOption)
	if err != nil {
		return digest, err
	}
	var out vfs.File
	sum := sha256.New()
	w := io.Writer(sum)
	if to != "" {
		if out, err = fs.Create(to, vfs.WriteCategoryUnspecified); err != nil {
			return digest, errors.Join(err, in.Close())
		}
		w = io.MultiWriter(sum, out) // in this order: a write may change what it is given
	}
	err = copyPieces(ctx, w, in, n)
	if out != nil {
		if err == nil {
			err = out.Sync()
		}
		err = errors.Join(err, out.Close())
	}
	return digestOf(sum), errors.Join(err, in.Close())
}

func digestOf(h hash.Hash) (d [32]byte) {
	h.Sum(d[:0])
	return d
}

// copyPieces copies exactly n bytes and looks at the context between two pieces.
func copyPieces(ctx context.Context, w io.Writer, r io.Reader, n int64) error {
	for at := int64(0); at < n; at += piece {
		if err := ctx.Err(); err != nil {
			return err
		}
		if _, err := io.CopyN(w, r, min(piece, n-at)); err != nil {
			return err
		}
	}
	return nil
}

// same reports whether a file of the copy is this one: files of one name and one length differ
// in the first block, which has the identity of the use of a raw segment and the digest of a
// body, or at the end, where a packed segment has its checksum.
func (c *copier) same(name string, length int64) (bool, error) {
	var ends [2][]byte
	for i, d := range []files{c.from, c.to} {
		f, err := c.fs.Open(d.path(name))
		if i == 1 && errors.Is(err, iofs.ErrNotExist) {
			return false, nil // it was removed from the copy
		}
		if err != nil {
			return false, err
		}
		head := make([]byte, min(length, identityLen))
		tail := make([]byte, min(length, headerLen))
		err = readFull(f, head, 0)
		if err == nil {
			err = readFull(f, tail, length-int64(len(tail)))
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return false, err
		}
		ends[i] = append(head, tail...)
	}
	return bytes.Equal(ends[0], ends[1]), nil
}

// TrimCopy removes every file of a copy's directory but those, and syncs that: what a copy that
// did not end left, and what an earlier one had.
func TrimCopy(fs vfs.FS, dir string, keep map[string]CopiedFile) error {
	d := files{fs, dir}
	names, err := fs.List(dir)
	if err != nil {
		return unavailable("list "+dir, err)
	}
	removed := false
	for _, name := range names {
		if _, ok := keep[name]; ok {
			continue
		}
		if err := fs.Remove(d.path(name)); err != nil {
			return unavailable("remove "+name, err)
		}
		removed = true
	}
	if !removed {
		return nil
	}
	if err := d.sync(); err != nil {
		return unavailable("sync "+dir, err)
	}
	return nil
}

// VerifyCopy reads the new files of the copy at o.Dir: the records of each new segment, with
// every body that it has, each new file of a body, and the chain of the records from one
// position to the end. STATE_CHECKSUM_MISMATCH: they are not what they should be.
func VerifyCopy(ctx context.Context, o Options, from, end Position, list []CopiedFile) (err error) {
	l, err := Open(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	tail, err := l.Scan(from, func(*Record) error { return ctx.Err() })
	switch {
	case err != nil:
		return err
	case tail.Doubt != nil:
		return tail.Doubt
	case tail.At != end:
		return damaged("the copy ends with group %d, not with group %d", tail.At.Group, end.Group)
	}
	for _, f := range list {
		if !f.New {
			continue
		}
		if n, _, segment := parseName(f.Name); segment {
			err = l.prove(ctx, n)
		} else if id, body := parseBodyName(f.Name); body {
			err = l.files.proveBody(id)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// prove reads a segment whole: its chain, and the bodies that it has.
func (l *Log) prove(ctx context.Context, number uint64) error {
	i := slices.IndexFunc(l.segments, func(s *segment) bool { return s.id.Number == number })
	if i < 0 || l.segments[i].first == nil {
		return damaged("segment %d is not there", number)
	}
	seg, stop := l.segments[i], endOf(l.segments, i)
	return l.handles.with(number, func(h *handle) error {
		w := &window{f: h, size: seg.size}
		prev := Position{Group: seg.first.head.group - 1, Sum: seg.first.head.prev}
		for at := uint32(identityLen); at != stop; at = prev.End {
			if err := ctx.Err(); err != nil {
				return err
			}
			r, err := w.record(&seg.id, at, prev)
			if err != nil {
				return err
			}
			if r == nil && stop == 0 {
				return nil // the newest segment: the scan found its end
			}
			if r == nil {
				return damaged("segment %d: no group %d at offset %d", number, prev.Group+1, at)
			}
			prev = r.At
			if err := r.Ops(h.proveBody); err != nil {
				return err
			}
		}
		return nil
	})
}

// proveBody reads the body of an operation, where it has one that is there.
func (h *handle) proveBody(op *Op) error {
	if op.Place != Inline {
		return nil
	}
	err := h.body(make([]byte, op.Ref.Length), op.Ref, op.Key)
	if Gone(err) {
		return nil
	}
	return err
}

// proveBody reads the file of a body whole.
func (d files) proveBody(id tga.ID) error {
	file, f, key, err := d.openBody(id)
	if err != nil {
		return err
	}
	b := &Body{file, f, int64(bodyHeader + len(key))}
	_, err = b.Bytes()
	return errors.Join(err, b.Close())
}

// Holds reports whether a record of this log ends at a position: then an earlier log that ended
// there goes on in this one, also in another timeline.
func (l *Log) Holds(at Position) (bool, error) {
	l.mu.Lock()
	s := scan{l: l, segments: slices.Clone(l.segments), fn: func(*Record) error { return nil }}
	end := l.durable
	l.mu.Unlock()
	if at.Group > end.Group || at == (Position{}) {
		return at == (Position{}), nil
	}
	i, err := s.begin(at)
	if tga.CodeOf(err) == tga.StateChecksumMismatch {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	// What a restore at an earlier group left behind the end of a segment is none of its records.
	stop := endOf(s.segments, i)
	return stop == 0 || at.End <= stop, nil
}

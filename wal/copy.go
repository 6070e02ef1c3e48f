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
	Length int64    // how many of its bytes belong to the copy: the file may be longer
	Digest [32]byte // SHA-256 of those bytes
	New    bool     // it was copied now; false: an earlier copy had it
}

// copying is the suffix of a file that is being copied.
const copying = ".copy"

// CopyTo copies the log, up to its present end, into a directory that is empty or holds an
// earlier copy of this log. have lists the files of the earlier copy by name: they are not
// copied again. A file gets its name once it is whole and synced, and no file of the earlier
// copy loses bytes that have lists. So the earlier copy stays usable until [TrimCopy].
//
// Files that are no longer written to are hard-linked if the file system can. Appends go on
// meanwhile. A rewrite waits until CopyTo returns.
func (l *Log) CopyTo(ctx context.Context, fs vfs.FS, dir string, have map[string]CopiedFile) (Position, []CopiedFile, error) {
	l.copies.RLock()
	defer l.copies.RUnlock()
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
			continue // the file of a body that no record names
		} else if missing { // by a rewrite whose wait ended before the pin
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

// current returns the name of the file that a segment is read from now.
func (l *Log) current(n uint64) string { return version{n, l.handles.generation(n)}.name() }

// parts lists the files of the log up to a position: for each segment the file that is read
// now. A rewrite may have made another generation that it has not exchanged yet. That one is
// not listed: it may lack bodies that the copy still needs. The caller holds a pin.
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

// CopyFile copies the first n bytes of a file into a new file, syncs that, and returns the
// digest of the bytes. If to is "", it only computes the digest. io.EOF: the file is shorter.
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
		w = io.MultiWriter(sum, out) // the digest first, because the file's Write may modify the slice
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

// copyPieces copies exactly n bytes and checks the context between two pieces.
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

// same reports whether the copy's file of that name is the same as the log's. Two files of one
// name and length that are not the same differ in the first block or at the end: the first
// block has the identity of a raw segment or the digest of a body, and the end has the
// checksum of a packed segment.
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
		short := i == 1 && tga.CodeOf(err) == tga.StateChecksumMismatch // it was cut, or is older than the list says
		if short {
			err = nil
		}
		if err = errors.Join(err, f.Close()); err != nil || short {
			return false, err
		}
		ends[i] = append(head, tail...)
	}
	return bytes.Equal(ends[0], ends[1]), nil
}

// TrimCopy removes every file of a copy's directory that is not in keep, and syncs the
// directory. It removes the remains of an interrupted copy, and files of an earlier copy.
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

// VerifyCopy checks the new files of the copy at o.Dir: the records of each new segment with
// every body that it still has, each new body file, and the chain of records from one position
// to the end. STATE_CHECKSUM_MISMATCH: the copy is damaged or does not end where it should.
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

// prove reads a whole segment and checks its chain and the bodies that it still has.
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

// proveBody reads and checks the body of an operation, if the operation has one that was not
// left out by a rewrite.
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

// proveBody reads and checks the whole file of a body.
func (d files) proveBody(id tga.ID) error {
	file, f, key, err := d.openBody(id)
	if err != nil {
		return err
	}
	b := &Body{file, f, int64(bodyHeader + len(key))}
	_, err = b.Bytes()
	return errors.Join(err, b.Close())
}

// Holds reports whether a record of this log ends at a position. If so, this log continues any
// earlier log that ended there, even if the timeline differs.
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
	// A restore to an earlier group may have left old records behind the end of the segment.
	// They are no records of this log.
	stop := endOf(s.segments, i)
	return stop == 0 || at.End <= stop, nil
}

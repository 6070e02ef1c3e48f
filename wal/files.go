package wal

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/schemas/tga"
)

// Names in the log's directory. The name of a segment is its number in sixteen digits. A file
// that is being made has one of the names here. If a crash leaves it, it is made anew.
const (
	spareName   = "spare"
	packingName = "packing"
	nameLen     = 16
)

// AsidePrefix begins the names of segments that [Log.Fork] takes out of the log.
const AsidePrefix = "lost-"

func segmentName(n uint64) string { return fmt.Sprintf("%0*d", nameLen, n) }

// packedName is the name of a packed segment: the number and the generation, from 1.
func packedName(n uint64, gen uint32) string {
	return fmt.Sprintf("%s.%04d.z", segmentName(n), gen)
}

// parseName reads the name of a segment; generation 0 is the raw one.
func parseName(name string) (n uint64, gen uint32, ok bool) {
	if len(name) < nameLen {
		return 0, 0, false
	}
	n, err := strconv.ParseUint(name[:nameLen], 10, 64)
	if err != nil || n == 0 {
		return 0, 0, false
	}
	if name == segmentName(n) {
		return n, 0, true
	}
	mid, ok := strings.CutSuffix(name[nameLen:], ".z")
	g, err := strconv.ParseUint(strings.TrimPrefix(mid, "."), 10, 32)
	return n, uint32(g), ok && err == nil && g > 0 && name == packedName(n, uint32(g))
}

// files is the log's directory.
type files struct {
	fs  vfs.FS
	dir string
}

func (d files) path(name string) string { return d.fs.PathJoin(d.dir, name) }

// version is one file of a segment. Of two files with one number, the newer generation is used.
type version struct {
	number uint64
	gen    uint32
}

func (v version) name() string {
	if v.gen == 0 {
		return segmentName(v.number)
	}
	return packedName(v.number, v.gen)
}

// versions lists the files of segments in the order of their numbers, the newest generation
// of each first. The list is empty if the directory does not exist.
func (d files) versions() ([]version, error) {
	names, err := d.fs.List(d.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, unavailable("list "+d.dir, err)
	}
	var list []version
	for _, name := range names {
		if n, gen, ok := parseName(name); ok {
			list = append(list, version{n, gen})
		}
	}
	slices.SortFunc(list, func(a, b version) int {
		return cmp.Or(cmp.Compare(a.number, b.number), cmp.Compare(b.gen, a.gen))
	})
	return list, nil
}

// IsLog reports whether a directory holds segments of a log.
func IsLog(fs vfs.FS, dir string) bool {
	list, err := files{fs, dir}.versions()
	return err != nil || len(list) > 0
}

// size returns the length of all files in the directory, in bytes. Files that cannot be
// examined count as 0.
func (d files) size() (sum int64) {
	names, err := d.fs.List(d.dir)
	if err != nil {
		return 0
	}
	for _, name := range names {
		if info, err := d.fs.Stat(d.path(name)); err == nil {
			sum += info.Size()
		}
	}
	return sum
}

// make prepares the file of a segment. It writes the file at its full length, so that no later
// sync has to allocate anything. It syncs the file with its identity, and then the name. So no
// record is ever written to a segment that a crash could remove, or leave with another
// identity. Before make fills the file up to n bytes it calls pace(n), whose error ends it.
func (d files) make(id Identity, pace func(int64) error) error {
	tmp, name := d.path(spareName), d.path(segmentName(id.Number))
	f, err := d.fs.Create(tmp, vfs.WriteCategoryUnspecified)
	if err != nil {
		return unavailable("make segment "+segmentName(id.Number), err)
	}
	err = fill(f, id, pace)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = d.fs.Rename(tmp, name)
	}
	if err != nil { // what there is of it takes space for nothing
		if e := d.fs.Remove(tmp); !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	if err == nil {
		err = d.sync()
	}
	if err != nil {
		return unavailable("make segment "+segmentName(id.Number), err)
	}
	return nil
}

// piece is how much is written, filled or copied at a time.
const piece = 1 << 20

// filled is how much of a segment is filled at a time, in bytes. The disk may begin to write
// each such part at once, so that the sync of the whole file waits for little.
const filled = 256 << 10

// atOnce is the pace of a segment that the writer waits for: no pauses.
func atOnce(int64) error { return nil }

// fill writes a whole segment: its identity and zeros.
func fill(to vfs.File, id Identity, pace func(int64) error) error {
	f := pagesOf(to)
	b := pages(nil).room(int(min(filled, id.Size)))
	appendIdentity(b[:0], id)
	for done, size := int64(0), int64(id.Size); done < size; {
		n := min(size-done, int64(len(b)))
		if err := pace(done + n); err != nil {
			return err
		}
		if err := f.write(b[:n]); err != nil {
			return err
		}
		done += n
		if _, err := f.SyncTo(done); err != nil {
			return err
		}
		clear(b)
	}
	return nil
}

// write writes a copy of b, because a file system may modify the slice that Write is given.
func write(f io.Writer, b []byte) error {
	buf := make([]byte, min(piece, len(b)))
	for len(b) > 0 {
		n := copy(buf, b)
		if _, err := f.Write(buf[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

func (d files) sync() error {
	f, err := d.fs.OpenDir(d.dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// identity reads the identity of a segment, and how many bytes of the segment the file has.
func (h *handle) identity(n uint64) (id Identity, size uint32, err error) {
	if h.packed != nil {
		return h.packed.id, h.packed.end, nil
	}
	if h.length < identityLen {
		return id, 0, damaged("segment %d has %d bytes", n, h.length)
	}
	b := make([]byte, identityLen)
	if err := readFull(h.File, b, 0); err != nil {
		return id, 0, err
	}
	if id, err = decodeIdentity(b, n); err != nil {
		return id, 0, err
	}
	return id, uint32(min(h.length, int64(id.Size))), nil
}

// remove removes files that are no longer needed, and syncs the directory.
func (d files) remove(list []version) error {
	if len(list) == 0 {
		return nil
	}
	for _, v := range list {
		if err := d.fs.Remove(d.path(v.name())); err != nil {
			return unavailable("remove "+v.name(), err)
		}
	}
	if err := d.sync(); err != nil {
		return unavailable("sync "+d.dir, err)
	}
	return nil
}

func closing(f io.Closer) error {
	if err := f.Close(); err != nil {
		return unavailable("close", err)
	}
	return nil
}

// readFull reads exactly len(b) bytes at an offset. STATE_CHECKSUM_MISMATCH: the file has fewer, or a block of a packed
// segment is damaged, which [packed.ReadAt] says itself.
func readFull(f readerAt, b []byte, at int64) error {
	n, err := f.ReadAt(b, at)
	if n == len(b) {
		return nil
	}
	if errors.Is(err, io.EOF) {
		return damaged("the file ends %d bytes after offset %d, before %d", n, at, len(b))
	}
	if tga.CodeOf(err) != "" {
		return err
	}
	return unread(err)
}

// draw makes a salt.
func draw(random func([]byte) error) (uint64, error) {
	var b [8]byte
	if err := random(b[:]); err != nil {
		return 0, tga.Errorf(tga.StoreUnavailable, "log: draw a salt: %w", err)
	}
	return binary.BigEndian.Uint64(b[:]), nil
}

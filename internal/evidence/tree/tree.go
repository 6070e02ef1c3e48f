package tree

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"os"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/tgad/tgad/internal/access"
	"github.com/tgad/tgad/schemas/tga"
)

// Dir is the tree's directory in that of the store.
const Dir = "evidence"

const (
	hashesName = "hashes"
	markName   = "mark"

	hashesMagic = "tgadht\x00" + string(rune(tga.EvidenceTreeVersion))
	markMagic   = "tgadhm\x00" + string(rune(tga.EvidenceTreeVersion))

	headerSize = 8 + 16 + 8
	markSize   = 8 + 16 + 8 + tlog.HashSize + 4

	maxUnwritten = 64 << 10 // bytes of hashes that are only in memory
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Tree is the tree of one store. The package comment says which calls may run concurrently.
type Tree struct {
	proving
	fs    vfs.FS
	dir   string
	store tga.ID
	f     vfs.File

	mu      sync.RWMutex
	size    int64  // leaves
	written int64  // hashes in the file
	rest    []byte // hashes after these, in memory only
	err     error  // of a failed write: after it the content of the file is not known

	// edge is the newest node of each level that has one. A new leaf needs no other node: each node that
	// it completes has the newest node of a level as its left child. Only the appender uses it.
	edge [64]tlog.Hash
}

// Open opens the tree of a store in its directory dir, with the leaves up to the mark. If there is no
// tree, or it cannot be trusted, Open returns an empty tree, and the caller makes it again from the
// log. last returns the hash of a leaf as the log has it now. If the newest leaf of the tree is another
// one, the tree was made from another log.
func Open(fs vfs.FS, dir string, store tga.ID, last func(number int64) (tlog.Hash, error)) (*Tree, error) {
	t := &Tree{fs: fs, dir: fs.PathJoin(dir, Dir), store: store}
	t.from = t
	if err := errors.Join(fs.MkdirAll(t.dir, access.DirMode), syncDir(fs, dir)); err != nil {
		return nil, unavailable(t.dir, err)
	}
	ok, err := t.load(last)
	if err == nil && !ok {
		err = t.Clear()
	}
	if err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

// load reads the tree up to its mark. ok is false if it cannot be trusted.
func (t *Tree) load(last func(int64) (tlog.Hash, error)) (ok bool, err error) {
	size, head, ok, err := readMark(t.fs, t.fs.PathJoin(t.dir, markName), t.store)
	if !ok || err != nil {
		return false, err
	}
	name := t.fs.PathJoin(t.dir, hashesName)
	t.f, err = t.fs.OpenReadWrite(name, vfs.WriteCategoryUnspecified) // makes it where there is none
	if err != nil {
		return false, unavailable(name, err)
	}
	var header [headerSize]byte
	if n, err := t.f.ReadAt(header[:], 0); n < headerSize {
		return false, unreadable(name, err)
	}
	if header != t.header() {
		return false, nil
	}
	if info, err := t.f.Stat(); err != nil {
		return false, unavailable(name, err)
	} else if info.Size() < offset(tlog.StoredHashCount(size)) {
		return false, nil
	}
	t.size, t.written = size, tlog.StoredHashCount(size)
	if size == 0 {
		return true, t.loadEdge()
	}
	// If the head follows from the nodes of the right edge, these are whole, and appends need no
	// others. Damage further left shows later, as a proof that does not hold.
	if got, err := tlog.TreeHash(size, t); err != nil || got != head {
		return false, unreadable(name, err)
	}
	want, err := last(size - 1)
	if err != nil {
		return false, err
	}
	if got, err := t.read(tlog.StoredHashIndex(0, size-1)); err != nil || got != want {
		return false, unreadable(name, err)
	}
	return true, t.loadEdge()
}

// loadEdge reads the newest node of each level.
func (t *Tree) loadEdge() (err error) {
	for level := 0; t.size>>level > 0; level++ {
		if t.edge[level], err = t.read(tlog.StoredHashIndex(level, t.size>>level-1)); err != nil {
			return err
		}
	}
	return nil
}

func (t *Tree) header() (h [headerSize]byte) {
	copy(h[:], hashesMagic)
	copy(h[8:], t.store[:])
	return h
}

func offset(hashes int64) int64 { return headerSize + hashes*tlog.HashSize }

// Clear makes the tree empty.
func (t *Tree) Clear() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.f != nil {
		if err := t.f.Close(); err != nil {
			return unavailable(t.dir, err)
		}
		t.f = nil
	}
	// A file of hashes without a mark is not trusted. Remove the mark durably before the hashes
	// change. Otherwise a crash could leave the mark beside a mixture of two trees.
	err := t.fs.Remove(t.fs.PathJoin(t.dir, markName))
	if err == nil || errors.Is(err, os.ErrNotExist) {
		err = syncDir(t.fs, t.dir)
	}
	if err != nil {
		return unavailable(t.dir, err)
	}
	name := t.fs.PathJoin(t.dir, hashesName)
	f, err := t.fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return unavailable(name, err)
	}
	t.f, t.size, t.written, t.rest, t.err = f, 0, 0, nil, nil
	header := t.header()
	if _, err := f.WriteAt(header[:], 0); err != nil {
		return unavailable(name, err)
	}
	return nil
}

// Failed returns why the tree takes no leaves any more, nil if it does. After a failed write the content of the files past
// the mark is not known. The caller then opens the tree again, appends to that one, and gives it to [Tree.Take].
func (t *Tree) Failed() error {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.err
}

// Take continues with the files of again, which is the same tree, opened anew, with as many leaves or more. again is not
// used afterwards. Readers of t see no leaf go.
func (t *Tree) Take(again *Tree) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.f != nil {
		// Its error says nothing new: a write to this file has failed. Nothing of it counts past the mark, and again has written
		// that part anew.
		_ = t.f.Close()
	}
	t.f, t.size, t.written, t.rest, t.err, t.edge = again.f, again.size, again.written, again.rest, nil, again.edge
}

// Size returns how many leaves the tree has.
func (t *Tree) Size() int64 {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.size
}

// Append adds the next leaf.
func (t *Tree) Append(l *Leaf) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err != nil {
		return t.err
	}
	if l.Index != uint64(t.size)+1 {
		return tga.Errorf(tga.ValidationError, "tree: leaf %d follows %d", l.Index, t.size)
	}
	// Add the hash of the leaf, and of each node that it completes: one for each 1 at the end of the
	// size in binary. They are those of [tlog.StoredHashesForRecordHash], which would read the edge
	// from the tree and allocate.
	h := l.Hash()
	for level := 0; ; level++ {
		left := t.edge[level]
		t.edge[level] = h
		t.rest = append(t.rest, h[:]...)
		if t.size>>level&1 == 0 {
			break
		}
		h = tlog.NodeHash(left, h)
	}
	t.size++
	if len(t.rest) >= maxUnwritten {
		t.err = t.flush()
	}
	return t.err
}

// flush writes the hashes that are only in memory to the file.
func (t *Tree) flush() error {
	if len(t.rest) == 0 {
		return nil
	}
	if _, err := t.f.WriteAt(t.rest, offset(t.written)); err != nil {
		return unavailable(t.dir, err)
	}
	t.written += int64(len(t.rest)) / tlog.HashSize
	t.rest = t.rest[:0]
	return nil
}

// Mark makes the leaves so far durable: an Open after it has them.
func (t *Tree) Mark() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err == nil {
		t.err = t.flush()
	}
	if t.err == nil {
		if err := t.f.Sync(); err != nil { // writes may be lost, and a second sync would not report it
			t.err = unavailable(t.dir, err)
		}
	}
	if t.err != nil {
		return t.err
	}
	var head tlog.Hash
	if t.size > 0 {
		var err error
		if head, err = tlog.TreeHash(t.size, tlog.HashReaderFunc(t.readLocked)); err != nil {
			return unavailable(t.dir, err)
		}
	}
	return writeMark(t.fs, t.dir, t.store, t.size, head)
}

// Close closes the files. The next Open makes the leaves after the mark again from the log.
func (t *Tree) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.f == nil {
		return nil
	}
	err := t.f.Close()
	t.f, t.err = nil, tga.Errorf(tga.StoreUnavailable, "the tree is closed")
	return err
}

// ReadHashes returns stored hashes by their index, for package tlog.
func (t *Tree) ReadHashes(at []int64) ([]tlog.Hash, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.readLocked(at)
}

func (t *Tree) readLocked(at []int64) ([]tlog.Hash, error) {
	out := make([]tlog.Hash, len(at))
	for i, at := range at {
		var err error
		if out[i], err = t.read(at); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (t *Tree) read(at int64) (h tlog.Hash, err error) {
	switch {
	case t.f == nil:
		return h, t.err
	case at >= t.written:
		i := (at - t.written) * tlog.HashSize
		if at < 0 || i >= int64(len(t.rest)) {
			return h, tga.Errorf(tga.NotFound, "tree: no hash %d", at)
		}
		copy(h[:], t.rest[i:])
		return h, nil
	}
	if n, err := t.f.ReadAt(h[:], offset(at)); n < len(h) {
		return h, unavailable(t.dir, err)
	}
	return h, nil
}

func readMark(fs vfs.FS, name string, store tga.ID) (size int64, head tlog.Hash, ok bool, err error) {
	f, err := fs.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return 0, head, false, nil
	}
	if err != nil {
		return 0, head, false, unavailable(name, err)
	}
	defer f.Close()
	var b [markSize + 1]byte
	n, err := io.ReadFull(f, b[:])
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return 0, head, false, unavailable(name, err)
	}
	body := b[:markSize-4]
	if n != markSize || string(b[:8]) != markMagic || tga.ID(b[8:24]) != store ||
		binary.LittleEndian.Uint32(b[markSize-4:]) != crc32.Checksum(body, castagnoli) {
		return 0, head, false, nil
	}
	size = int64(binary.BigEndian.Uint64(b[24:]))
	copy(head[:], b[32:])
	return size, head, size >= 0 && size < 1<<48, nil
}

func writeMark(fs vfs.FS, dir string, store tga.ID, size int64, head tlog.Hash) error {
	b := make([]byte, 0, markSize)
	b = append(b, markMagic...)
	b = append(b, store[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(size))
	b = append(b, head[:]...)
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	temp, name := fs.PathJoin(dir, markName+".new"), fs.PathJoin(dir, markName)
	f, err := fs.Create(temp, vfs.WriteCategoryUnspecified)
	if err == nil {
		_, err = f.Write(b)
		err = errors.Join(err, f.Sync(), f.Close())
	}
	if err == nil {
		err = fs.Rename(temp, name)
	}
	if err == nil {
		err = syncDir(fs, dir)
	}
	if err != nil {
		return unavailable(name, err)
	}
	return nil
}

func syncDir(fs vfs.FS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// unreadable is the error of a failed read. It is nil if the read succeeded or the file was too
// short: then the content is wrong, and the tree is made again.
func unreadable(name string, err error) error {
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return unavailable(name, err)
}

func unavailable(name string, err error) error {
	return tga.Errorf(tga.StoreUnavailable, "tree %s: %w", name, err)
}

package wal

import (
	"context"
	"errors"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// handles keeps files of segments open for reading, up to a limit, and closes the least
// recently used: a store may have more segments than a process may have open files.
type handles struct {
	files files
	limit int
	cache blocks

	mu   sync.Mutex
	idle sync.Cond // signals that a pin was given back, or that an exchanged file lost its last user
	tick uint64
	open map[uint64]*handle
	gens map[uint64]uint32 // generations of the packed segments; a raw segment has 0 or no row
	shut bool
	// leaving counts, by segment, the replaced files that readers still use.
	leaving map[uint64]int
	// pins counts the pins that are held, by the era in which they were taken. A rewrite
	// begins a new era and waits for the pins of earlier eras. A later reader reads an index
	// that no longer names the bodies that the rewrite left out.
	pins map[uint64]int
	era  uint64
}

// handle is an open file that a segment is read from.
type handle struct {
	vfs.File
	number uint64 // of the segment
	length int64
	packed *packed // nil: it is raw
	users  int
	used   uint64
	gone   bool // no new user gets it, and the last user closes it
}

// ReadAt reads at an offset of the raw segment. If the segment is packed, bodies read as
// zeros, see [packed.ReadAt].
func (h *handle) ReadAt(b []byte, off int64) (int, error) {
	if h.packed != nil {
		return h.packed.ReadAt(b, off)
	}
	return h.File.ReadAt(b, off)
}

// body reads the body at ref and checks that it belongs to key.
func (h *handle) body(b []byte, ref Ref, key []byte) error {
	var err error
	if h.packed != nil {
		err = h.packed.readBody(b, ref)
	} else {
		err = readFull(h.File, b, int64(ref.Offset))
	}
	if err == nil && BodySum(key, b) != ref.Sum {
		err = damaged("segment %d offset %d: not the body of that key", ref.Segment, ref.Offset)
	}
	return err
}

func (h *handles) init(f files, o Options) {
	h.files, h.limit = f, o.Handles
	h.open, h.gens, h.pins, h.leaving = map[uint64]*handle{}, map[uint64]uint32{}, map[uint64]int{}, map[uint64]int{}
	h.cache.init(o.BlockCache)
	h.idle.L = &h.mu
}

func (h *handles) generation(n uint64) uint32 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.gens[n]
}

// with calls fn with the file of a segment.
func (h *handles) with(n uint64, fn func(*handle) error) (err error) {
	f, err := h.acquire(n)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.release(f)) }()
	return fn(f)
}

func (h *handles) acquire(n uint64) (*handle, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.shut {
		return nil, unavailable("read", errClosed)
	}
	h.tick++
	f := h.open[n]
	if f == nil {
		var err error
		if f, err = h.files.open(n, h.gens[n], &h.cache); err != nil {
			return nil, err
		}
		h.open[n] = f
	}
	f.users++
	f.used = h.tick
	return f, nil
}

// open opens a segment for reading.
func (d files) open(n uint64, gen uint32, cache *blocks) (*handle, error) {
	name := segmentName(n)
	if gen > 0 {
		name = packedName(n, gen)
	}
	file, err := d.fs.Open(d.path(name))
	if err != nil {
		return nil, unavailable("open segment "+name, err)
	}
	f := &handle{File: file, number: n}
	info, err := file.Stat()
	if err != nil {
		return nil, errors.Join(unavailable("look at segment "+name, err), closing(file))
	}
	f.length = info.Size()
	if gen > 0 {
		if f.packed, err = openPacked(file, n, cache); err != nil {
			return nil, errors.Join(err, closing(file))
		}
	}
	return f, nil
}

// release gives a file back, and closes unused files over the limit.
func (h *handles) release(f *handle) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	f.users--
	if f.gone && f.users == 0 {
		if h.leaving[f.number]--; h.leaving[f.number] == 0 {
			delete(h.leaving, f.number)
		}
		h.idle.Broadcast()
		return closing(f.File)
	}
	return h.trim()
}

// forget makes the next reader of a segment open its file again, because another file has its
// name now.
func (h *handles) forget(n uint64) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.gens, n)
	return h.retire(n)
}

// retire removes the file of a segment from the open ones. h.mu is held.
func (h *handles) retire(n uint64) error {
	f := h.open[n]
	if f == nil {
		return nil
	}
	delete(h.open, n)
	if f.gone = true; f.users == 0 {
		return closing(f.File)
	}
	h.leaving[n]++
	return nil
}

func (h *handles) trim() (err error) {
	for len(h.open) > h.limit || h.shut && len(h.open) > 0 {
		oldest, found := uint64(0), false
		for n, f := range h.open {
			if f.users == 0 && (!found || f.used < h.open[oldest].used) {
				oldest, found = n, true
			}
		}
		if !found {
			break
		}
		err = errors.Join(err, closing(h.open[oldest].File))
		delete(h.open, oldest)
	}
	return err
}

// pin keeps every body that an index names now, until unpin is called with the returned era.
func (h *handles) pin() (era uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pins[h.era]++
	return h.era
}

func (h *handles) unpin(era uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.pins[era]--; h.pins[era] == 0 {
		delete(h.pins, era)
		h.idle.Broadcast()
	}
}

// quiet waits until every pin that is held now was given back.
func (h *handles) quiet(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.idle.Broadcast()
	})
	defer stop()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.era++
	for era := h.era; h.pinned(era); {
		if err := ctx.Err(); err != nil {
			return err
		}
		h.idle.Wait()
	}
	return nil
}

// pinned reports whether a pin of an earlier era is held.
func (h *handles) pinned(before uint64) bool {
	for era := range h.pins {
		if era < before {
			return true
		}
	}
	return false
}

// exchange makes new readers of a segment read another generation of it. The caller has waited
// for [handles.quiet].
func (h *handles) exchange(n uint64, gen uint32) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.gens[n] = gen
	return h.retire(n)
}

// left returns once no reader uses a replaced file of a segment. The caller is about to wipe it, and a
// reader of a body that was kept would find zeros. This cannot deadlock: a reader holds the file of one
// segment at most, and waits for no wipe.
func (h *handles) left(n uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for h.leaving[n] > 0 {
		h.idle.Wait()
	}
}

// close closes every file that has no user, and the others when their users leave.
func (h *handles) close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.shut = true
	return h.trim()
}

var errClosed = errors.New("the log is closed")

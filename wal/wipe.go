package wal

import (
	"context"
	"errors"
	"io/fs"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Wipe sets whether files that are no longer needed are filled with zeros before they are
// removed, so that their bytes do not stay in free blocks of the disk. A file that has another
// name, in a backup made of hard links, is not filled: the backup needs its bytes. The file
// that a rewrite had replaced before a crash is always wiped, see [Log.Resume].
//
// Once Wipe has returned, no file is being removed any more that is not wiped.
func (l *Log) Wipe(on bool) error {
	l.removing.Lock()
	l.wipe.Store(on)
	l.removing.Unlock()
	l.handles.cache.clear()
	if !on {
		return nil
	}
	if err := l.dropStale(); err != nil {
		return err
	}
	// What a rewrite writes now is the next file of its segment. It is not wiped: if the rewrite succeeds, the segment
	// is read from it, and if it fails, the file is wiped and removed.
	if !l.packing.TryLock() {
		return nil
	}
	defer l.packing.Unlock()
	return l.files.wipe(packingName)
}

// EndSegment begins the next segment, so that the one written to so far can be rewritten. Like
// [Log.Append], only the writer may call it.
func (l *Log) EndSegment() error {
	if l.err == nil {
		l.err = l.advance(0)
	}
	return l.err
}

// unlink removes a file. If [Log.Wipe] is on, it wipes the file before, once left, if it is not nil, says that no reader uses
// the file. A copy that is being made may know the file by its name: it has it, or a name of its own for it, before the file
// is wiped.
func (l *Log) unlink(name string, left func()) error {
	l.removing.RLock()
	if !l.wipe.Load() {
		defer l.removing.RUnlock()
		return l.files.unlink(name)
	}
	l.removing.RUnlock() // a wipe may wait for readers and copies, and nobody else has to
	if left != nil {
		left()
	}
	l.copies.Lock()
	defer l.copies.Unlock()
	name, err := l.files.unfinish(name)
	if err == nil {
		err = l.files.wipe(name)
	}
	if err != nil {
		return err
	}
	return l.files.unlink(name)
}

func (d files) unlink(name string) error {
	if err := d.fs.Remove(d.path(name)); err != nil {
		return unavailable("remove "+name, err)
	}
	return nil
}

// unfinish gives the file of a body the name of an unfinished one, durably, and returns that name. If a crash ends the
// wipe, [Log.Sweep] would take a file without its header for damage, and keep it with what is left in it.
func (d files) unfinish(name string) (string, error) {
	if _, body := parseBodyName(name); !body {
		return name, nil
	}
	err := d.fs.Rename(d.path(name), d.path(name+unfinished))
	if err == nil {
		err = d.sync()
	}
	if err != nil {
		return name, unavailable("wipe "+name, err)
	}
	return name + unfinished, nil
}

// wipe fills a file with zeros and syncs it. It does nothing if the file is not there or has
// another name too.
func (d files) wipe(name string) (err error) {
	info, err := d.fs.Stat(d.path(name))
	if errors.Is(err, fs.ErrNotExist) || err == nil && linked(info) {
		return nil
	}
	if err != nil {
		return unavailable("look at "+name, err)
	}
	f, err := d.fs.OpenReadWrite(d.path(name), vfs.WriteCategoryUnspecified)
	if err != nil {
		return unavailable("wipe "+name, err)
	}
	defer func() { err = errors.Join(err, closing(f)) }()
	for at, size := int64(0), info.Size(); at < size; at += piece {
		if _, err := f.WriteAt(make([]byte, min(piece, size-at)), at); err != nil {
			return unavailable("wipe "+name, err)
		}
	}
	if err := f.Sync(); err != nil {
		return unavailable("wipe "+name, err)
	}
	return nil
}

// Retains reports whether a segment of [Log.Full] still has a body for which f returns true. STATE_CHECKSUM_MISMATCH:
// the segment is damaged, or the disk does not give it.
func (l *Log) Retains(ctx context.Context, number uint64, f func(*Op) (bool, error)) (found bool, err error) {
	seg, end, err := l.rewritable(number)
	if err != nil {
		return false, err
	}
	err = l.handles.with(number, func(h *handle) error {
		w := &window{f: h, size: end}
		return w.records(ctx, nil, seg, end, func(r *Record) error {
			return r.Ops(func(op *Op) error {
				if op.Place != Inline || op.Ref.Length == 0 {
					return nil
				}
				asked, err := f(op)
				if asked && h.packed != nil {
					asked, err = h.packed.sameBody(op)
				}
				if asked && err == nil {
					return errEnough
				}
				return err
			})
		})
	})
	if errors.Is(err, errEnough) {
		return true, nil
	}
	return false, valueError(err)
}

var errEnough = errors.New("enough was seen")

package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tgad/tgad/engine/internal/guard"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal"
)

// Directories of a store. The log is authoritative; the index can be rebuilt from it.
const (
	logName   = "log"
	indexName = "index"
)

// found is what an open knows of a store before it writes anything.
type found struct {
	empty     bool       // there is no store, or none that was ever written to
	beginning bool       // a store is being made for the first time
	mark      guard.Mark // zero if there is none
	tail      wal.Tail
	index     position   // newest record that the index on disk has
	indexed   bool       // index is a position of this log
	doubt     *tga.Error // acknowledged records are missing, or may be
}

// inspect opens the log for reading, finds its end, and compares that end with the two
// witnesses: the watermark and the position of the index. It writes nothing.
func (o *opening) inspect() (out found, err error) {
	p, _, err := placeOf(o.opts.FS, o.dir)
	if err != nil {
		return out, err
	}
	out.beginning = p == placeBeginning
	if err := o.formerFormat(); err != nil {
		return out, err
	}
	mark, merr := guard.ReadWatermark(o.opts.FS, o.dir)
	switch tga.CodeOf(merr) {
	case "", tga.NotFound, tga.StateChecksumMismatch:
		out.mark = mark
	default:
		return out, merr
	}
	o.wal, err = wal.Open(o.logOptions())
	if tga.CodeOf(err) == tga.NotFound {
		out.empty = out.beginning || tga.CodeOf(merr) == tga.NotFound
		if out.empty {
			return out, nil
		}
		return out, damaged("open %s: its log is missing", o.dir)
	}
	if err != nil {
		return out, err
	}
	if err := o.findEnd(&out); err != nil {
		return out, err
	}
	if out.tail.At.Group == 0 {
		if out.empty = out.beginning; out.empty {
			return out, o.closeLog()
		}
		why := errors.New("it has no record")
		if out.tail.Doubt != nil {
			why = out.tail.Doubt
		}
		return out, damaged("open %s: nothing of its log can be read: %w", o.dir, why)
	}
	out.doubt = out.tail.Doubt
	if out.doubt == nil && merr != nil && !out.beginning {
		if out.doubt = damaged("open %s: its watermark is missing", o.dir); tga.CodeOf(merr) != tga.NotFound {
			errors.As(merr, &out.doubt)
		}
	}
	if out.doubt == nil && merr == nil {
		out.doubt = o.marked(&out)
	}
	if out.doubt == nil && o.mode.cut != nil {
		err = o.mode.cut.of(o.wal, out.tail)
		out.tail = o.mode.cut.found
	}
	return out, err
}

// formerFormat refuses a store of format 1, in which Pebble held the log.
func (o *opening) formerFormat() error {
	names, err := o.opts.FS.List(o.dir)
	if err != nil {
		return tga.Errorf(tga.StoreUnavailable, "open %s: %w", o.dir, err)
	}
	if slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, "MANIFEST-") }) {
		return tga.Errorf(tga.ValidationError, "open %s: the store has format 1, this program has format %d. No command takes it over. tgad export of the program that wrote it keeps its traces as NDJSON, which tgad verify FILE checks", o.dir, tga.StoreVersion)
	}
	return nil
}

// findEnd finds the end of the log. It starts at the position of the index, if there is one.
func (o *opening) findEnd(out *found) (err error) {
	out.index, out.indexed = o.lookIntoIndex()
	if out.indexed && !o.wal.Has(out.index.line) {
		o.log.Warn("the index is of another store and is rebuilt", "timeline", out.index.line)
		out.indexed = false
	}
	from := wal.Position{}
	if out.indexed {
		from = out.index.at
	}
	var other *tga.Error
	check := func(r *wal.Record) error {
		if r.At.Group == out.mark.Group && r.At.Sum != out.mark.Sum {
			other = damaged("open %s: group %d is not the one that was acknowledged", o.dir, r.At.Group)
		}
		return o.mode.cut.see(r)
	}
	out.tail, err = o.wal.Scan(from, check)
	if out.indexed && tga.CodeOf(err) == tga.StateChecksumMismatch {
		out.indexed = false
		if out.tail, err = o.wal.Scan(wal.Position{}, check); err == nil && out.tail.Doubt == nil {
			out.tail.Doubt = damaged("open %s: the index knows group %d, which the log no longer has", o.dir, out.index.at.Group)
		}
	}
	if err == nil && out.tail.Doubt == nil && out.mark.Timeline == o.wal.Timeline() {
		if out.indexed && out.index.at.Group == out.mark.Group && out.index.at.Sum != out.mark.Sum {
			other = damaged("open %s: group %d is not the one that was acknowledged", o.dir, out.mark.Group)
		}
		out.tail.Doubt = other
	}
	return err
}

// marked compares the end of the log with the watermark.
func (o *opening) marked(out *found) *tga.Error {
	switch {
	case out.mark.Timeline != o.wal.Timeline():
		return damaged("open %s: its watermark is of another log", o.dir)
	case out.mark.Group > out.tail.At.Group:
		return damaged("open %s: the log ends with group %d, and group %d was acknowledged", o.dir, out.tail.At.Group, out.mark.Group)
	}
	return nil
}

// lookIntoIndex reads the position of the index on disk. ok is false if the index cannot be read,
// or if the process ended before it flushed anything of the index.
func (o *opening) lookIntoIndex() (at position, ok bool) {
	err := attempt(func() error {
		if o.indexDir().spoilt() {
			return errOtherKeys
		}
		p := o.listener().options(&o.opts, o.opts.FS, true)
		// Without this listener Pebble treats a damaged block as fatal. That would poison the
		// store, although only its index must be built anew.
		p.Logger, p.EventListener = lookLog{}, &pebble.EventListener{DataCorruption: func(pebble.DataCorruptionInfo) {}}
		index, err := pebble.Open(o.path(indexName), p)
		if err != nil {
			return err
		}
		in := reading{from: index, health: &o.health}
		at, err = in.position()
		return errors.Join(err, index.Close())
	})
	switch {
	case errors.Is(err, pebble.ErrDBDoesNotExist): // a backup has no index
		o.log.Info("there is no index: it is made of the log")
	case err != nil:
		o.log.Warn("the index cannot be read and is rebuilt", "error", err)
	}
	return at, err == nil && at.at.Group != 0
}

// lookLog is Pebble's logger in [attempt].
type lookLog struct{}

func (lookLog) Infof(string, ...any)              {}
func (lookLog) Errorf(string, ...any)             {}
func (lookLog) Fatalf(format string, args ...any) { panic(fatal{fmt.Sprintf(format, args...)}) }

// position returns the position of the index, the zero position if it has no such row yet.
func (r *reading) position() (p position, err error) {
	row, err := r.row(keyspace.AppendMeta(nil, metaPosition))
	if err != nil || row == nil {
		return p, err
	}
	return decodePosition(row)
}

// attempt runs a call of Pebble. A panic of Pebble becomes an error, which concerns only the index.
func attempt(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = damaged("panic in pebble: %v", r)
		}
	}()
	return f()
}

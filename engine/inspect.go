package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/engine/internal/guard"
	"github.com/tgad/tgad/internal/access"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal"
)

// Directories of a store: the log is the truth, and the index can be made from it.
const (
	logName   = "log"
	indexName = "index"
)

func (db *DB) path(name string) string { return db.opts.FS.PathJoin(db.dir, name) }

// found is what is known of a store before anything is written.
type found struct {
	empty     bool       // no store, or one never written to
	beginning bool       // a store is being made for the first time
	mark      guard.Mark // the zero one where there is none
	tail      wal.Tail
	index     position   // what the index on disk has
	indexed   bool       // that is of this log
	doubt     *tga.Error // acknowledged records are missing, or may be
}

// inspect opens the log for reading, finds its end, and compares it with all that knows
// better: the watermark, and the position of the index. It writes nothing.
func (db *DB) inspect() (out found, err error) {
	p, _, err := placeOf(db.opts.FS, db.dir)
	if err != nil {
		return out, err
	}
	out.beginning = p == placeBeginning
	if err := db.formerFormat(); err != nil {
		return out, err
	}
	mark, merr := guard.ReadWatermark(db.opts.FS, db.dir)
	switch tga.CodeOf(merr) {
	case "", tga.NotFound, tga.StateChecksumMismatch:
		out.mark = mark
	default:
		return out, merr
	}
	db.wal, err = wal.Open(db.logOptions())
	if tga.CodeOf(err) == tga.NotFound {
		out.empty = out.beginning || tga.CodeOf(merr) == tga.NotFound
		if out.empty {
			return out, nil
		}
		return out, damaged("open %s: its log is missing", db.dir)
	}
	if err != nil {
		return out, err
	}
	if err := db.findEnd(&out); err != nil {
		return out, err
	}
	if out.tail.At.Group == 0 {
		if out.empty = out.beginning; out.empty {
			return out, db.closeLog()
		}
		why := errors.New("it has no record")
		if out.tail.Doubt != nil {
			why = out.tail.Doubt
		}
		return out, damaged("open %s: nothing of its log can be read: %w", db.dir, why)
	}
	out.doubt = out.tail.Doubt
	if out.doubt == nil && merr != nil && !out.beginning {
		if out.doubt = damaged("open %s: its watermark is missing", db.dir); tga.CodeOf(merr) != tga.NotFound {
			errors.As(merr, &out.doubt)
		}
	}
	if out.doubt == nil && merr == nil {
		out.doubt = db.marked(&out)
	}
	if out.doubt == nil && db.cut != nil {
		err = db.cut.of(db.wal, out.tail)
		out.tail = db.cut.found
	}
	return out, err
}

// formerFormat refuses a store of the format in which Pebble had the log.
func (db *DB) formerFormat() error {
	names, err := db.opts.FS.List(db.dir)
	if err != nil {
		return tga.Errorf(tga.StoreUnavailable, "open %s: %w", db.dir, err)
	}
	if slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, "MANIFEST-") }) {
		return tga.Errorf(tga.ValidationError, "open %s: the store has format 1, this program has format %d. No command takes it over. tgad export of the program that wrote it keeps its traces as NDJSON, which tgad verify FILE checks", db.dir, tga.StoreVersion)
	}
	return nil
}

func (db *DB) logOptions() wal.Options {
	return wal.Options{
		FS: db.files, Dir: db.path(logName), Random: db.opts.random, Logger: db.log,
		FirstSize: db.opts.FirstSegmentBytes, Size: db.opts.SegmentBytes,
	}
}

func (db *DB) closeLog() error {
	l := db.wal
	db.wal = nil
	return l.Close()
}

// findEnd finds the end of the log, from the position of the index on where there is one.
func (db *DB) findEnd(out *found) (err error) {
	out.index, out.indexed = db.lookIntoIndex()
	if out.indexed && !db.wal.Has(out.index.line) {
		db.log.Warn("the index is of another store, and is made anew", "timeline", out.index.line)
		out.indexed = false
	}
	from := wal.Position{}
	if out.indexed {
		from = out.index.at
	}
	var other *tga.Error
	check := func(r *wal.Record) error {
		if r.At.Group == out.mark.Group && r.At.Sum != out.mark.Sum {
			other = damaged("open %s: group %d is not the one that was acknowledged", db.dir, r.At.Group)
		}
		return db.cut.see(r)
	}
	out.tail, err = db.wal.Scan(from, check)
	if out.indexed && tga.CodeOf(err) == tga.StateChecksumMismatch {
		out.indexed = false
		if out.tail, err = db.wal.Scan(wal.Position{}, check); err == nil && out.tail.Doubt == nil {
			out.tail.Doubt = damaged("open %s: the index knows group %d, which the log no longer has", db.dir, out.index.at.Group)
		}
	}
	if err == nil && out.tail.Doubt == nil && out.mark.Timeline == db.wal.Timeline() {
		if out.indexed && out.index.at.Group == out.mark.Group && out.index.at.Sum != out.mark.Sum {
			other = damaged("open %s: group %d is not the one that was acknowledged", db.dir, out.mark.Group)
		}
		out.tail.Doubt = other
	}
	return err
}

// marked compares the end of the log with the watermark.
func (db *DB) marked(out *found) *tga.Error {
	switch {
	case out.mark.Timeline != db.wal.Timeline():
		return damaged("open %s: its watermark is of another log", db.dir)
	case out.mark.Group > out.tail.At.Group:
		return damaged("open %s: the log ends with group %d, and group %d was acknowledged", db.dir, out.tail.At.Group, out.mark.Group)
	}
	return nil
}

// goOn makes the log ready to be written, with its watermark; a new one where there is none.
func (db *DB) goOn(found *found, acceptLoss bool) (err error) {
	if db.storeID.IsZero() {
		if db.storeID, err = db.opts.newID(); err != nil {
			return err
		}
	}
	line, err := db.opts.newID()
	if err != nil {
		return err
	}
	switch {
	case found.empty:
		if err = db.newLog(line); err != nil {
			return err
		}
	case acceptLoss, db.fork:
		// The rows of what is lost must not be there when the log no longer says so.
		found.indexed = false
		if err = db.indexDir.remove(); err == nil {
			err = db.wal.Fork(found.tail, line)
		}
	default:
		err = db.wal.Resume(found.tail)
	}
	if err != nil {
		return err
	}
	if found.empty || acceptLoss || db.fork || found.mark.StoreID.IsZero() {
		db.mark, err = guard.CreateWatermark(db.opts.FS, db.dir, guard.Mark{StoreID: db.storeID, Timeline: db.wal.Timeline()})
	} else {
		db.mark, err = guard.OpenWatermark(db.opts.FS, db.dir)
	}
	return err
}

// newLog makes the log of a new store, in place of what a crash left of making one.
func (db *DB) newLog(line tga.ID) error {
	for _, name := range []string{logName, indexName} {
		err := db.files.RemoveAll(db.path(name))
		if err == nil {
			err = db.files.MkdirAll(db.path(name), access.DirMode)
		}
		if err != nil {
			return tga.Errorf(tga.StoreUnavailable, "create %s: %w", db.path(name), err)
		}
	}
	if err := syncDir(db.files, db.dir); err != nil {
		return tga.Errorf(tga.StoreUnavailable, "create %s: %w", db.dir, err)
	}
	var err error
	db.wal, err = wal.Create(db.logOptions(), line, line)
	return err
}

// lookIntoIndex reads the position of the index on disk; false where there is none that can
// be read, and where the process ended before anything of it was flushed.
func (db *DB) lookIntoIndex() (p position, ok bool) {
	var at position
	err := db.attempt(func() (err error) {
		if db.indexDir.spoilt() {
			return errOtherKeys
		}
		o := db.pebbleOptions(db.opts.FS, true)
		// Without a listener of its own Pebble calls a damaged block fatal, and that would poison
		// a store whose index is only to be made anew.
		o.Logger, o.EventListener = lookLog{}, &pebble.EventListener{DataCorruption: func(pebble.DataCorruptionInfo) {}}
		index, err := pebble.Open(db.path(indexName), o)
		if err != nil {
			return err
		}
		in := reading{from: index, health: &db.health}
		at, err = in.position()
		return errors.Join(err, index.Close())
	})
	if err != nil {
		db.log.Warn("the index cannot be read, and is made anew", "error", err)
	}
	return at, err == nil && at.at.Group != 0
}

// lookLog is Pebble's logger in [DB.attempt].
type lookLog struct{}

func (lookLog) Infof(string, ...any)              {}
func (lookLog) Errorf(string, ...any)             {}
func (lookLog) Fatalf(format string, args ...any) { panic(fatal{fmt.Sprintf(format, args...)}) }

// position returns the position of the index, the zero one where it has no row yet.
func (r *reading) position() (p position, err error) {
	row, err := r.row(keyspace.AppendMeta(nil, metaPosition))
	if err != nil || row == nil {
		return p, err
	}
	return decodePosition(row)
}

// attempt runs a call of Pebble whose failure concerns only the index.
func (db *DB) attempt(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = damaged("panic in pebble: %v", r)
		}
	}()
	return f()
}

// openIndex opens the index and takes it to the end of the log. One that is not of this log
// is made anew. A store that is open for reading gets a temporary one, unless its own has
// everything.
func (db *DB) openIndex(found found) (at position, err error) {
	fs, dir, readOnly := vfs.FS(db.files), db.path(indexName), false
	switch {
	case db.readOnly && found.indexed && found.index.at == found.tail.At:
		readOnly = true
	case db.readOnly:
		found.indexed = false
		if fs, dir, err = db.temporary(); err != nil {
			return at, err
		}
	case !found.indexed:
		if err := db.indexDir.remove(); err != nil {
			return at, err
		}
	}
	db.health.opening.Store(true)
	db.health.begun.Store(false)
	var p *pebble.DB
	err = db.health.awaited(func() (err error) {
		p, err = pebble.Open(dir, db.pebbleOptions(fs, readOnly))
		return err
	})
	db.health.opening.Store(false)
	if err != nil {
		return at, tga.Errorf(tga.StoreUnavailable, "open %s: %w", dir, err)
	}
	db.index = newIndex(p, db.wal, &db.health)
	at = position{line: db.wal.Timeline(), at: found.tail.At}
	if !readOnly {
		from := position{}
		if found.indexed {
			from = found.index
		}
		if at, err = db.catchUp(p, from); err != nil {
			return at, err
		}
	}
	if !db.readOnly {
		db.filter = &keyFilter{index: db.index, dir: db.indexDir, log: db.log, limit: uint64(db.opts.KeyFilterBytes)}
		err := db.filter.watch(2 * at.keys)
		if unlike(err) && found.indexed {
			db.log.Warn("the index is not what it was, and is made anew", "error", err)
			found.indexed = false
			db.index = nil
			if err := errors.Join(db.health.guarded(p.Close), db.indexDir.remove()); err != nil {
				return at, err
			}
			return db.openIndex(found)
		}
		if err != nil {
			return at, err
		}
	}
	db.times.newest.Store(int64(found.tail.Times.Committed))
	db.times.newestTS.Store(int64(found.tail.Times.TS))
	db.order.init(max(found.tail.Next, 1) - 1)
	return at, nil
}

// progress says how far an index is that is being made. An error ends the making of it.
func (db *DB) progress(at wal.Position) error {
	if now := time.Now(); now.Sub(db.said) >= progressTime {
		db.said = now
		db.log.Info("making the index", "segment", at.Segment, "group", at.Group)
	}
	return db.remake.at(at)
}

package engine

import (
	"context"
	"errors"
	"time"

	"github.com/tgad/tgad/engine/internal/guard"
	"github.com/tgad/tgad/internal/access"
	"github.com/tgad/tgad/internal/clip"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal"
)

// opening is a store that one goroutine is opening: the request, and the parts that are open so
// far. A complete one becomes a DB, or replaces the opened part of a DB ([DB.Unfreeze]). If the
// open fails, [opening.giveUp] releases what it took.
type opening struct {
	*standing
	opened // so far
	mode   openMode
	said   time.Time // when progress was last told
}

func (o *opening) path(name string) string { return o.opts.FS.PathJoin(o.dir, name) }

func (o *opening) indexDir() indexDir { return indexDir{o.files, o.path(indexName)} }

// begin checks that the locked directory belongs to this store alone.
func (o *opening) begin() error {
	at := o.site(o.dir)
	if o.lock != nil { // nil: the store is not on the operating system's file system
		if err := at.checkAccess(o.log); err != nil {
			return err
		}
	}
	if !o.readOnly {
		if err := o.witness().lock(o.lock); err != nil {
			return err
		}
	}
	if err := at.begin(); err != nil {
		return err
	}
	o.space.init(o.opts, o.dir)
	return nil
}

// giveUp ends an open that failed with err.
func (o *opening) giveUp(err error) error {
	after := o.release()
	if after != nil && o.health.sick() != nil {
		// This error repeats what failed, or says what could not be released because of that.
		o.log.Warn("the store was not opened, and was cut off from its disk", "error", after)
		return err
	}
	return errors.Join(err, after)
}

// restart closes everything that is open except the directory's lock, and starts again.
func (o *opening) restart(acceptLoss bool, doubt *tga.Error) error {
	lock := o.lock
	o.lock = nil
	err := o.release()
	o.lock = lock
	if err != nil {
		return err
	}
	return o.start(acceptLoss, doubt)
}

// start opens the log and its index, and builds the state that is kept in memory. acceptLoss
// opens a store for writing although acknowledged records are missing from it. doubt is a
// reason, already known, to believe that records are missing.
func (o *opening) start(acceptLoss bool, doubt *tga.Error) error {
	o.files = guard.FS(o.opts.FS, guard.FSOptions{Index: o.path(indexName), OnSlowDisk: o.listener().slowDisk, OnLost: o.health.lost, OnFailed: o.health.failed})
	found, err := o.inspect()
	if err != nil {
		return err
	}
	if found.doubt == nil {
		found.doubt = doubt
	}
	o.doubt = found.doubt
	if err := o.mode.remake.again(&found); err != nil {
		return err
	}
	switch {
	case found.empty && o.readOnly:
		return tga.Errorf(tga.NotFound, "open %s: there is no store", o.dir)
	case found.empty && !found.beginning:
		return tga.Errorf(tga.NotFound, "open %s: there is no store, only files that one may have left. Move them away, then tgad init --data %s", o.dir, clip.ShellWord(o.dir))
	case found.doubt != nil && !acceptLoss:
		o.readOnly = true // a log in doubt is not written to
	}
	if !found.mark.StoreID.IsZero() {
		if err := o.site(o.dir).pinned(found.mark.StoreID); err != nil {
			return err
		}
		if found.doubt == nil && o.storeID != found.mark.StoreID {
			o.storeID = found.mark.StoreID
		}
	}
	if !o.readOnly {
		if err := o.goOn(&found, acceptLoss); err != nil {
			return err
		}
	}
	at, err := o.openIndex(found)
	if err != nil {
		return err
	}
	o.serve(at)
	if err := o.identify(found, o.mode.believe || acceptLoss); err != nil {
		return err
	}
	if !o.readOnly {
		floor, err := o.index.largestTrace()
		if tga.CodeOf(err) == tga.StateChecksumMismatch {
			// Damage concerns only its own trace: the read of that trace will report it.
			floor, err = nowhere, nil
		}
		if err != nil {
			return err
		}
		o.traces.begun.init(floor)
		o.mark.SyncEvery(time.Second)
		o.unwatch = o.lock.watch(&o.health, o.files)
		o.space.layBallast(o.log, min(4*int64(o.opts.MemTableBytes), o.wal.Size()/2))
		if err := o.finish(found); err != nil {
			return err
		}
		o.rewriter = o.rewriting.start(&o.health, &o.stats)
	}
	return nil
}

// finish completes what the last process that had the store began: archiving, an erasure, and
// the clean-up after a crash. What cannot be completed now, for example because a trace or an archive
// segment is damaged or a file cannot be removed, waits: the rest of the store is not refused for it.
func (o *opening) finish(found found) error {
	if err := o.sealer.finish(); err != nil && o.health.sick() == nil {
		o.log.Warn("an archiving that was begun cannot be finished now", "error", err)
	} else if err != nil {
		return err
	}
	o.eraser.resume()
	if !found.tail.Clean {
		if err := o.rewriting.afterCrash(context.Background(), found.tail.At.Segment); err != nil && o.health.sick() == nil {
			o.log.Warn("what a crash left cannot be removed now", "error", err)
		} else if err != nil {
			return err
		}
	}
	_, err := o.eraser.finish(context.Background())
	if err != nil && o.health.sick() == nil {
		o.log.Warn("an erasure that was begun cannot be finished now", "error", err)
		return nil
	}
	return err
}

// serve makes the parts that read and write, over an index whose position is at.
func (o *opening) serve(at position) {
	o.traces = openTraces(o.index, &o.cache)
	o.records = openRecords(o.index, o.filter, &o.changed, &o.ringed, o.opts)
	o.commits = &committer{
		log: o.wal, mark: o.mark, lock: o.lock, files: o.files, synced: o.opts.told(),
		health: &o.health, logger: o.log, times: &o.times, order: &o.order, stats: &o.stats, full: o.rewrites.wake,
		index: o.index, traces: o.traces, records: o.records,
	}
	o.commits.start(at)
	o.rewriting = &rewriting{
		rewrites: &o.rewrites, log: o.wal, index: o.index, commits: o.commits, space: &o.space,
		logger: o.log, share: o.opts.RewriteShare, turn: make(chan struct{}, 1),
	}
	o.sealer = &sealer{
		index: o.index, traces: o.traces, leases: &o.leases, commits: o.commits, rewriting: o.rewriting,
		logger: o.log, turn: make(chan struct{}, 1),
	}
	o.eraser = &eraser{
		traces: o.traces, index: o.index, leases: &o.leases, commits: o.commits, rewriting: o.rewriting, sealer: o.sealer,
		times: &o.times, log: o.wal, logger: o.log, ringed: &o.ringed, space: &o.space, owned: &o.owned, choosing: &o.choosing,
	}
}

// goOn makes the log and its watermark ready for writing. If there is no log, it makes one.
func (o *opening) goOn(found *found, acceptLoss bool) (err error) {
	if o.storeID.IsZero() {
		if o.storeID, err = o.opts.newID(); err != nil {
			return err
		}
	}
	line, err := o.opts.newID()
	if err != nil {
		return err
	}
	if !found.empty {
		o.space.regain(o.log, o.space.nextSegment(o.wal))
	}
	switch {
	case found.empty:
		if err = o.newLog(line); err != nil {
			return err
		}
	case acceptLoss, o.mode.fork:
		// The index may have rows of the lost records, which the log no longer has. So the
		// index is removed and built anew.
		found.indexed = false
		if err = o.indexDir().remove(); err == nil {
			err = o.wal.Fork(found.tail, line)
		}
	default:
		err = o.wal.Resume(found.tail)
	}
	if err != nil {
		return err
	}
	if found.empty || acceptLoss || o.mode.fork || found.mark.StoreID.IsZero() {
		o.mark, err = guard.CreateWatermark(o.opts.FS, o.dir, guard.Mark{StoreID: o.storeID, Timeline: o.wal.Timeline()})
	} else {
		o.mark, err = guard.OpenWatermark(o.opts.FS, o.dir)
	}
	return err
}

// newLog makes the log of a new store. It first removes what an earlier attempt left when it crashed.
func (o *opening) newLog(line tga.ID) error {
	for _, name := range []string{logName, indexName} {
		err := o.files.RemoveAll(o.path(name))
		if err == nil {
			err = o.files.MkdirAll(o.path(name), access.DirMode)
		}
		if err != nil {
			return tga.Errorf(tga.StoreUnavailable, "create %s: %w", o.path(name), err)
		}
	}
	if err := syncDir(o.files, o.dir); err != nil {
		return tga.Errorf(tga.StoreUnavailable, "create %s: %w", o.dir, err)
	}
	var err error
	o.wal, err = wal.Create(o.logOptions(), line, line)
	return err
}

func (o *opening) logOptions() wal.Options {
	return wal.Options{
		FS: o.files, Dir: o.path(logName), Random: o.opts.random, Logger: o.log,
		FirstSize: o.opts.FirstSegmentBytes, Size: o.opts.SegmentBytes,
	}
}

func (o *opening) closeLog() error {
	l := o.wal
	o.wal = nil
	return l.Close()
}

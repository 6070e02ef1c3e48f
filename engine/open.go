package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tgad/tgad/engine/internal/guard"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal"
)

// DB is an open store. Its methods may be called concurrently.
type DB struct {
	dir      string
	opts     Options
	log      *slog.Logger
	readOnly bool       // nothing can be written
	believe  bool       // the witness is not asked, see [Witness]
	fork     bool       // the log goes on in a new timeline
	cut      *cut       // where the log is to end, see [RestoreAt]
	remake   *remake    // the index is made anew, see [RebuildIndex]
	doubt    *tga.Error // why the log on disk is not believed to be whole
	lock     *dirLock
	indexDir indexDir
	unwatch  func() // ends the look at the lock
	files    *guard.Fenced
	wal      *wal.Log
	mark     *guard.Watermark // nil when read-only
	index    *index
	storeID  tga.ID
	// tempIndex is where the index of a store that is open for reading was made.
	tempIndex *tempIndex
	said      time.Time // when progress was last told
	secret    [32]byte

	health    health
	space     space
	stats     counters
	times     times
	leases    leases
	traces    *traces
	sealer    *sealer
	rewriting *rewriting
	rewrites  rewrites
	rewriter  *rewriter // nil: nothing is rewritten in the background

	works   works // under way
	order   order
	cache   lru[tga.ID, fold]
	filter  *keyFilter // nil in a store that is read only
	records *records

	commits *committer

	recordChanged hub[[32]byte]
	released      hub[tga.ID]
	quarantined   atomic.Pointer[Quarantine]
}

// Open opens the store in dir, and makes one where dir does not exist. A directory that is
// there and empty may be a disk that is not mounted: NOT_FOUND, unless Options.Create says
// that a new store is meant. One with other files is refused, VALIDATION_ERROR.
//
// One process has a store: STATE_LOCK_ACQUIRE_FAILED where another holds it, by
// whatever path. FORMAT_TOO_NEW: a later version wrote it. Where the log on disk is
// not all that was acknowledged, the store opens frozen: it can be read and checked,
// and every write is STORE_UNAVAILABLE wrapping STATE_CHECKSUM_MISMATCH until
// [DB.Unfreeze]. Nothing is written before that is known.
func Open(dir string, opts Options) (*DB, error) { return open(dir, opts, openMode{}) }

// OpenReadOnly opens a store that is open nowhere, such as a copy or a backup, and
// writes nothing in it but the lock file. A store that a daemon has open is to be read
// through the daemon. Where the index is not that of the whole log, one is made in the
// system's directory for temporary files. NOT_FOUND: there is none.
func OpenReadOnly(dir string, opts Options) (*DB, error) {
	return open(dir, opts, openMode{readOnly: true})
}

// openMode says how a store is opened.
type openMode struct {
	readOnly bool
	believe  bool // the directory is the newest, whatever the witness knows
	fork     bool // what is appended is of a new timeline, see [Restore]
	cut      *cut // nil: the log ends where it ends
	remake   *remake
}

func open(dir string, opts Options, mode openMode) (*DB, error) {
	db, err := openOnce(dir, opts, mode)
	fs := opts.withDefaults().FS
	if err != nil && !mode.readOnly && (indexDir{fs, fs.PathJoin(dir, indexName)}).spoilt() {
		return openOnce(dir, opts, mode) // with an index that is made anew
	}
	return db, err
}

func openOnce(dir string, opts Options, mode openMode) (*DB, error) {
	db := &DB{opts: opts.withDefaults(), readOnly: mode.readOnly, believe: mode.believe, fork: mode.fork, cut: mode.cut, remake: mode.remake}
	db.log = db.opts.Logger
	db.health.init(db.log)
	db.recordChanged.init()
	db.released.init()
	db.rewrites.init()
	db.unwatch = func() {}
	db.cache.init(db.opts.TraceCacheCount, db.opts.TraceCacheBytes)
	db.times.clock = db.opts.Clock
	var err error
	if err = db.settle(dir); err != nil {
		return nil, err
	}
	if db.dir, db.lock, err = lockDir(db.opts.FS, dir); err != nil {
		return nil, err
	}
	for _, step := range []func() error{db.checkAccess, db.lockWitness, db.begin} {
		if err := step(); err != nil {
			return nil, db.giveUp(err)
		}
	}
	db.space.init(db.opts, db.dir)
	err = db.start(false, nil)
	if other := (*otherStore)(nil); errors.As(err, &other) {
		err = db.restart(false, other.err)
	}
	if err != nil {
		return nil, db.giveUp(err)
	}
	return db, nil
}

// giveUp ends an open that failed with err.
func (db *DB) giveUp(err error) error {
	after := db.release()
	if after != nil && db.health.sick() != nil {
		// It says once more what failed, or what could not be given up because of that.
		db.log.Warn("the store was not opened, and was cut off from its disk", "error", after)
		return err
	}
	return errors.Join(err, after)
}

// restart closes what is open, but for the directory's lock, and starts again.
func (db *DB) restart(acceptLoss bool, doubt *tga.Error) error {
	lock := db.lock
	db.lock = nil
	err := db.release()
	db.lock = lock
	if err != nil {
		return err
	}
	return db.start(acceptLoss, doubt)
}

// start brings up the log, its index, and what is kept in memory beside them. acceptLoss
// opens a store for writing although acknowledged records are missing from it; doubt is a
// reason to think so that is known already.
func (db *DB) start(acceptLoss bool, doubt *tga.Error) error {
	db.files = guard.FS(db.opts.FS, guard.FSOptions{Index: db.path(indexName), OnSlowDisk: db.slowDisk, OnLost: db.health.lost, OnFailed: db.health.failed})
	db.indexDir = indexDir{db.files, db.path(indexName)}
	found, err := db.inspect()
	if err != nil {
		return err
	}
	if found.doubt == nil {
		found.doubt = doubt
	}
	db.doubt = found.doubt
	if err := db.remake.again(&found); err != nil {
		return err
	}
	switch {
	case found.empty && db.readOnly:
		return tga.Errorf(tga.NotFound, "open %s: there is no store", db.dir)
	case found.empty && !found.beginning:
		return tga.Errorf(tga.NotFound, "open %s: there is no store, only files that one may have left. Move them away, then tgad init --data %s", db.dir, db.dir)
	case found.doubt != nil && !acceptLoss:
		db.readOnly = true // what is in doubt is not written to
	}
	if !found.mark.StoreID.IsZero() {
		if err := db.pinned(found.mark.StoreID); err != nil {
			return err
		}
		if found.doubt == nil {
			db.storeID = found.mark.StoreID
		}
	}
	if !db.readOnly {
		if err := db.goOn(&found, acceptLoss); err != nil {
			return err
		}
	}
	at, err := db.openIndex(found)
	if err != nil {
		return err
	}
	db.serve(at)
	if err := db.identify(found, db.believe || acceptLoss); err != nil {
		return err
	}
	if !db.readOnly {
		floor, err := db.index.largestTrace()
		if tga.CodeOf(err) == tga.StateChecksumMismatch {
			// What is damaged concerns its own trace: the read that needs it will say so.
			floor, err = nowhere, nil
		}
		if err != nil {
			return err
		}
		db.traces.begun.init(floor)
		db.mark.SyncEvery(time.Second)
		db.watchLock()
		db.space.layBallast(db.log, min(4*int64(db.opts.MemTableBytes), db.wal.Size()/2))
		if err := db.sealer.finish(); err != nil {
			return err
		}
		if !found.tail.Clean {
			if err := db.rewriting.afterCrash(context.Background(), found.tail.At.Segment); err != nil {
				return err
			}
		}
		db.rewriter = db.rewriting.start(&db.health, &db.stats)
	}
	return nil
}

// inside runs f as a call that has entered. The parts of a store that serve go with a close and
// are made anew where it is opened again: only who is inside may ask for one of them.
func (db *DB) inside(f func() error) error {
	if err := db.health.enter(); err != nil {
		return err
	}
	defer db.health.leave()
	return f()
}

// serve makes what reads and writes, over an index that is at at.
func (db *DB) serve(at position) {
	db.traces = openTraces(db.index, &db.cache, nowhere)
	db.records = openRecords(db.index, db.filter, &db.recordChanged, db.opts)
	db.commits = &committer{
		log: db.wal, mark: db.mark, lock: db.lock, files: db.files,
		health: &db.health, logger: db.log, times: &db.times, order: &db.order, stats: &db.stats, full: db.rewrites.wake,
		index: db.index, traces: db.traces, records: db.records,
	}
	db.commits.start(at)
	db.rewriting = &rewriting{
		rewrites: &db.rewrites, log: db.wal, index: db.index, commits: db.commits, space: &db.space,
		logger: db.log, share: db.opts.RewriteShare, turn: make(chan struct{}, 1),
	}
	db.sealer = &sealer{
		index: db.index, traces: db.traces, leases: &db.leases, commits: db.commits, rewriting: db.rewriting,
		logger: db.log, turn: make(chan struct{}, 1),
	}
}

// Close waits for the calls inside and closes the store. A second Close does nothing.
func (db *DB) Close() error {
	if !db.health.drain() {
		return nil
	}
	err := db.leave()
	return errors.Join(err, db.release())
}

// release gives up all that start took, in reverse. A poisoned Pebble may never close:
// it is cut off from the disk, and its memory stays taken until the process ends. Where
// one of its writes does not end either, nothing is given up and the directory stays
// locked.
func (db *DB) release() error {
	db.unwatch()
	err := db.rewriter.halt()
	if err == nil {
		db.rewriter = nil
		err = db.closePebble()
	}
	if errors.Is(err, errStuck) {
		shut, ferr := db.files.Fence(5 * time.Second)
		if !shut { // a write hangs in the kernel
			return tga.Errorf(tga.StoreUnavailable, "close %s: %w", db.dir, err)
		}
		if db.wal != nil {
			db.wal.Abandon() // its writer stands at the fence
		}
		err, db.wal = errors.Join(db.health.sick(), ferr), nil
	}
	if db.wal != nil {
		err = errors.Join(err, db.wal.Close())
	}
	db.wal = nil
	if db.mark != nil {
		err = errors.Join(err, db.mark.Close())
		db.mark = nil
	}
	if db.files != nil {
		err = errors.Join(err, db.files.Close())
		db.files = nil
	}
	err = errors.Join(err, db.tempIndex.remove())
	db.tempIndex = nil
	err = errors.Join(err, db.lock.release())
	db.lock = nil
	return err
}

var errStuck = errors.New("the store was poisoned and its writers did not stop")

// closePebble waits for the commits under way, ends the log and closes Pebble. A Pebble that
// was poisoned may hold a mutex for ever: errStuck.
func (db *DB) closePebble() error {
	x, commits, filter := db.index, db.commits, db.filter
	db.index, db.commits = nil, nil
	filter.giveUp()
	select {
	case <-db.health.broken:
		if db.files != nil {
			return errStuck
		}
	default:
	}
	if x == nil {
		return nil
	}
	done := make(chan error, 1)
	go func() {
		defer func() {
			if r := recover(); r != nil {
				done <- fmt.Errorf("panic in pebble: %v", r)
			}
		}()
		if commits != nil {
			commits.stop()
			<-commits.ended
		}
		filter.halt()
		done <- errors.Join(db.endLog(x.p, commits), x.p.Close())
	}()
	closed := func(err error) error {
		if err != nil {
			return tga.Errorf(tga.StoreUnavailable, "close %s: %w", db.dir, err)
		}
		return nil
	}
	select {
	case err := <-done:
		return closed(err)
	case <-db.health.poisoned: // before, or by the close itself
	}
	select {
	case err := <-done:
		return closed(err)
	case <-db.health.broken:
		return errStuck
	case <-time.After(5 * time.Second): // a mutex that a panic left locked
		return errStuck
	}
}

// endLog makes the last record of the log, which says that it ends there, and flushes the
// index up to it: the next open finds nothing to do.
func (db *DB) endLog(p *pebble.DB, commits *committer) error {
	if commits == nil || db.mark == nil || db.health.sick() != nil { // open for reading, or stopped
		return nil
	}
	at, err := db.wal.Finish()
	if err == nil {
		err = db.mark.Advance(at.Group, at.Sum)
	}
	if err != nil {
		return err
	}
	x := &indexer{b: p.NewBatch(), keys: commits.rows.keys, sum: commits.rows.sum}
	x.landmark(db.order.durable()+1, at)
	if err := x.commit(position{line: commits.line, at: at}); err != nil {
		return closing(x.b, err)
	}
	return errors.Join(closeBatch(x.b), p.Flush())
}

package engine

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/tgad/tgad/schemas/tga"
)

// DB is an open store. Its methods may be called concurrently.
type DB struct {
	*standing
	*opened
}

// standing is what a store has from Open to Close. A call may use it before it has entered
// ([health.enter]): each part has a lock of its own or is atomic, and the rest never changes once
// Open has returned.
type standing struct {
	dir     string
	opts    Options
	log     *slog.Logger
	storeID tga.ID
	secret  [32]byte
	ringed  ringed
	// choosing is held for reading while the key of a new trace is chosen and its first append
	// queued, see [eraser.planSubject].
	choosing sync.RWMutex
	owned    ownerKeys

	health      health
	space       space
	stats       counters
	times       times
	order       order
	leases      leases
	works       works
	rewrites    rewrites
	cache       lru[tga.ID, fold] // of traces
	changed     hub[[32]byte]     // ledger keys whose record is another one
	released    hub[tga.ID]       // traces whose lease nobody has any more
	quarantined atomic.Pointer[Quarantine]
}

func newStanding(o Options) *standing {
	s := &standing{opts: o, log: o.Logger}
	s.health.init(s.log)
	s.times.clock = o.Clock
	s.leases.init()
	s.rewrites.init()
	s.cache.init(o.TraceCacheCount, o.TraceCacheBytes)
	s.owned.init()
	s.changed.init()
	s.released.init()
	return s
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
	o := &opening{standing: newStanding(opts.withDefaults()), mode: mode}
	o.opened = opened{of: o.standing, readOnly: mode.readOnly}
	var err error
	if err = o.site(dir).settle(); err != nil {
		return nil, err
	}
	if o.dir, o.lock, err = lockDir(o.opts.FS, dir); err != nil {
		return nil, err
	}
	if err = o.begin(); err == nil {
		err = o.start(false, nil)
	}
	if other := (*otherStore)(nil); errors.As(err, &other) {
		err = o.restart(false, other.err)
	}
	if err != nil {
		return nil, o.giveUp(err)
	}
	return &DB{o.standing, &o.opened}, nil
}

// inside runs f as a call that has entered, with what is open.
func (db *DB) inside(f func(*opened) error) error {
	if err := db.health.enter(); err != nil {
		return err
	}
	defer db.health.leave()
	return f(db.opened)
}

// Close waits for the calls inside and closes the store. A second Close does nothing.
func (db *DB) Close() error {
	if !db.health.drain() {
		return nil
	}
	err := db.leave()
	return errors.Join(err, db.release())
}

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

// standing has the parts of a store that last from Open to Close. A call may use them before it
// has entered ([health.enter]): each part has a lock of its own or is atomic, and the other fields
// never change once Open has returned.
type standing struct {
	dir     string
	opts    Options
	log     *slog.Logger
	storeID tga.ID
	secret  [32]byte
	ringed  ringed

	forReading bool       // opened by [OpenReadOnly]
	thawing    sync.Mutex // held by an [DB.Unfreeze]
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
	changed     hub[[32]byte]     // ledger keys whose record has changed
	released    hub[tga.ID]       // traces whose lease was released
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

// Open opens the store in dir, and makes a new store if dir does not exist. An existing empty
// directory gets NOT_FOUND, because it may be a disk that is not mounted; Options.Create says
// that a new store is meant. A directory with other files gets VALIDATION_ERROR.
//
// Only one process can have a store open: Open returns STATE_LOCK_ACQUIRE_FAILED if another
// process holds it, by whatever path. FORMAT_TOO_NEW: a later version wrote the store. If the
// log lacks something that was acknowledged, the store opens frozen: it can be read and checked,
// and every write gets STORE_UNAVAILABLE wrapping STATE_CHECKSUM_MISMATCH until [DB.Unfreeze].
// Open writes nothing before it knows whether the log is complete.
func Open(dir string, opts Options) (*DB, error) { return open(dir, opts, openMode{}) }

// OpenReadOnly opens a store that no process has open, such as a copy or a backup, and
// writes nothing in it but the lock file. Of a backup it has what the manifest names. If a daemon
// has the store open, read it through the daemon. If the index does not cover the whole log,
// OpenReadOnly makes an index in the system's directory for temporary files. NOT_FOUND: dir has
// no store.
func OpenReadOnly(dir string, opts Options) (*DB, error) {
	return open(dir, opts, openMode{readOnly: true})
}

// openMode says how a store is opened.
type openMode struct {
	readOnly bool
	believe  bool // accept the directory as the newest, whatever the witness file says
	fork     bool // later appends begin a new timeline, see [Restore]
	cut      *cut // end the log earlier; nil: keep its end
	remake   *remake
}

func open(dir string, opts Options, mode openMode) (*DB, error) {
	db, err := openOnce(dir, opts, mode)
	fs := opts.withDefaults().FS
	if err != nil && !mode.readOnly && (indexDir{fs, fs.PathJoin(dir, indexName)}).spoilt() {
		return openOnce(dir, opts, mode) // the second open makes a new index
	}
	return db, err
}

func openOnce(dir string, opts Options, mode openMode) (*DB, error) {
	o := &opening{standing: newStanding(opts.withDefaults()), mode: mode}
	dir = o.opts.FS.PathJoin(dir) // without a slash at its end: names are made by adding to it
	o.forReading = mode.readOnly
	o.opened = opened{of: o.standing, readOnly: mode.readOnly}
	var err error
	if o.opts.WitnessFile, err = witnessAt(o.opts.FS, o.opts.WitnessFile); err != nil {
		return nil, err
	}
	if err = o.site(dir).settle(); err != nil {
		return nil, err
	}
	if o.dir, o.lock, err = lockDir(o.opts.FS, dir); err != nil {
		return nil, err
	}
	if mode.readOnly {
		o.opts.FS, err = asBackup(o.opts.FS, o.dir)
	}
	if err == nil {
		err = o.begin()
	}
	if err == nil {
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

// inside runs f as a call that has entered, with the open parts of the store.
func (db *DB) inside(f func(*opened) error) error {
	if err := db.health.enter(); err != nil {
		return err
	}
	defer db.health.leave()
	return f(db.opened)
}

// Close waits for the calls that have entered, and closes the store. A second Close does nothing.
func (db *DB) Close() error {
	if !db.health.drain() {
		return nil
	}
	err := db.leave()
	return errors.Join(err, db.release())
}

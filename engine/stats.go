package engine

import (
	"sync/atomic"

	"github.com/tgad/tgad/schemas/tga"
)

// counters count since Open.
type counters struct {
	appends, replayed, entries, notes         atomic.Uint64
	commits                                   atomic.Uint64
	badCheckpoints                            atomic.Uint64
	flushes, compactions, stalls              atomic.Uint64
	backgroundErrors, corruptions, slowWrites atomic.Uint64
}

func (c *counters) count(s *step) {
	c.appends.Add(1)
	c.entries.Add(uint64(len(s.entries)))
	c.notes.Add(uint64(len(s.notes)))
}

// Stats is what a store says of itself. Counters start at Open.
type Stats struct {
	StoreID     tga.ID
	Incarnation uint32
	Cursor      uint64 // newest index of the durable order
	NewestTS    tga.Millis

	Appends  uint64 // that committed
	Replayed uint64 // that the log already had
	Entries  uint64
	Notes    uint64
	Commits  uint64 // made durable: one per append, and those of the store itself
	LogSyncs uint64 // syncs of the log; appends that wait together share one

	Leases         int
	CachedTraces   int
	CachedBytes    int64
	IndexCached    int64 // bytes of the index's blocks in memory
	IndexHits      int64 // reads of a block that was there
	IndexMisses    int64
	BadCheckpoints uint64 // skipped, see [DB.LatestCheckpoint]

	Flushes, Compactions, Stalls              uint64
	BackgroundErrors, Corruptions, SlowWrites uint64

	DiskBytes uint64 // of the log and the index
	LogBytes  uint64 // of the log, what is prepared ahead and bodies in files included
	// UncompressedSegments and UncompressedBytes are full segments of the log that are not
	// compressed yet: how far that lags behind.
	UncompressedSegments int
	UncompressedBytes    int64
	// Rewritten counts segments that were made smaller, from so many bytes to so many.
	Rewritten, RewrittenFrom, RewrittenTo uint64
	FreeBytes                             uint64 // of the file system; meaningless unless FreeKnown
	FreeKnown                             bool
	LowWater                              uint64

	Poisoned string // which write failed, so that the store stopped; "" while it runs
	Frozen   string // why nothing may be appended, "" where it may
	// Restored says that the store is frozen for no other reason than that it was made from
	// a backup: of what the backup had, nothing is known to be missing.
	Restored   bool
	Quarantine *Quarantine
	// MissingKeys counts keys that the store has used, and its key ring, an older copy, does not have.
	MissingKeys int
}

// Stats returns the state of the store; it works on a poisoned one too.
func (db *DB) Stats() Stats {
	s := Stats{
		StoreID:  db.storeID,
		Cursor:   db.order.durable(),
		NewestTS: db.NewestTS(),

		Appends:  db.stats.appends.Load(),
		Replayed: db.stats.replayed.Load(),
		Entries:  db.stats.entries.Load(),
		Notes:    db.stats.notes.Load(),
		Commits:  db.stats.commits.Load(),

		BadCheckpoints: db.stats.badCheckpoints.Load(),

		Flushes:          db.stats.flushes.Load(),
		Compactions:      db.stats.compactions.Load(),
		Stalls:           db.stats.stalls.Load(),
		BackgroundErrors: db.stats.backgroundErrors.Load(),
		Corruptions:      db.stats.corruptions.Load(),
		SlowWrites:       db.stats.slowWrites.Load(),

		Rewritten:     db.rewrites.segments.Load(),
		RewrittenFrom: db.rewrites.before.Load(),
		RewrittenTo:   db.rewrites.after.Load(),

		LowWater:   db.space.lowWater,
		Quarantine: db.quarantined.Load(),

		MissingKeys: db.ringed.lacks,
	}
	s.Leases, s.Incarnation = db.leases.granted()
	s.CachedTraces, s.CachedBytes = db.cache.used()
	s.FreeBytes, s.FreeKnown, _ = db.space.measure() // an error shows as not known
	if why := db.health.failure(); why != nil {
		s.Poisoned = why.Message
	}
	if f := db.health.frozen.Load(); f != nil {
		s.Frozen, s.Restored = f.Error(), db.health.restored.Load()
	}
	if db.health.enter() != nil {
		return s // Pebble is closed, or not to be called any more
	}
	defer db.health.leave()
	waiting, bytes := db.rewriting.raw(minRewrite)
	s.UncompressedSegments, s.UncompressedBytes = len(waiting), bytes
	s.LogSyncs = uint64(db.wal.Syncs())
	s.LogBytes = uint64(db.wal.Size())
	m := db.index.p.Metrics()
	s.DiskBytes = s.LogBytes + m.DiskSpaceUsage()
	s.IndexCached, s.IndexHits, s.IndexMisses = m.BlockCache.Size, m.BlockCache.Hits, m.BlockCache.Misses
	return s
}

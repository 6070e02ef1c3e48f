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

// Stats describes the state of a store. Counters start at Open.
type Stats struct {
	StoreID     tga.ID
	Incarnation uint32
	Cursor      uint64 // newest index of the durable order
	NewestTS    tga.Millis

	Appends  uint64 // appends that committed
	Replayed uint64 // appends that the log already had
	Entries  uint64
	Notes    uint64
	Commits  uint64 // durable commits: one per append, and the store's own
	LogSyncs uint64 // syncs of the log; appends that wait together share one

	Leases         int
	CachedTraces   int
	CachedBytes    int64
	IndexCached    int64 // bytes of the index's blocks in memory
	IndexHits      int64 // reads of blocks that were in memory
	IndexMisses    int64
	BadCheckpoints uint64 // skipped, see [DB.LatestCheckpoint]

	Flushes, Compactions, Stalls              uint64
	BackgroundErrors, Corruptions, SlowWrites uint64

	DiskBytes uint64 // of the log and the index
	LogBytes  uint64 // of the log, including space prepared ahead and bodies in files
	// UncompressedSegments and UncompressedBytes count the full segments of the log that are
	// not compressed yet. They show how far the rewriter lags behind.
	UncompressedSegments int
	UncompressedBytes    int64
	// Rewritten counts segments that were made smaller; RewrittenFrom and RewrittenTo are their
	// sizes before and after, in bytes.
	Rewritten, RewrittenFrom, RewrittenTo uint64
	FreeBytes                             uint64 // of the file system; meaningless unless FreeKnown
	FreeKnown                             bool
	LowWater                              uint64

	Poisoned string // the write failure that stopped the store; "" while it runs
	Frozen   string // why appends are refused, "" if they are not
	// Restored says that the store is frozen only because it was made from a backup: nothing
	// that the backup had is known to be missing.
	Restored   bool
	Quarantine *Quarantine
	// MissingKeys counts keys that the store has used and that its key ring lacks, because the
	// ring is an older copy.
	MissingKeys int
}

// Stats returns the state of the store. It works on a poisoned store too.
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
	s.FreeBytes, s.FreeKnown, _ = db.space.measure() // on an error FreeKnown is false
	if why := db.health.failure(); why != nil {
		s.Poisoned = why.Message
	}
	if f := db.health.frozen.Load(); f != nil {
		s.Frozen, s.Restored = f.Error(), db.health.restored.Load()
	}
	if db.health.enter() != nil {
		return s // Pebble is closed, or must not be called any more
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

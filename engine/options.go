package engine

import (
	"crypto/rand"
	"io"
	"log/slog"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/engine/internal/guard"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Options are the choices of a store. The zero value is the safest; there is no option
// that gives durability up.
type Options struct {
	// FS is where the store lies; nil is the operating system's file system. Another
	// one is for tests: the lock that keeps a second process out is the system's.
	FS vfs.FS
	// Clock tells commit times and the ts of entries the store makes; nil is time.Now.
	Clock func() time.Time
	// Rand is read for the store id and the permit secret; nil is crypto/rand.Reader.
	Rand io.Reader
	// Keyring has the keys under which artifacts and documents are sealed; nil seals nothing. A
	// store that is sealed, and opened without its ring, can be read as far as nothing is sealed,
	// and takes no appends: STORE_UNAVAILABLE.
	Keyring Keyring
	// Synced, where it is set, is told how long each group of appends took to be written to the log
	// and synced. It is called before anybody of the group is answered, and must not block.
	Synced func(took time.Duration)
	// Logger gets what an operator should see; nil discards it.
	Logger *slog.Logger

	// Create makes a new store also in a directory that is there and empty; without it
	// only where there is no directory. An empty directory may be a disk that is not
	// mounted, and a new store would send again what the one on that disk has recorded.
	Create bool
	// StoreID is the store that must be in the directory. Another one, none, or the
	// beginnings of one is NOT_FOUND. Zero is any store.
	StoreID tga.ID
	// WitnessFile is a file on another disk that names the last open of the store. A
	// directory that was copied or rolled back does not agree with it and is refused,
	// STATE_CHECKSUM_MISMATCH; while the store is open no other one with the same witness
	// can be, STATE_LOCK_ACQUIRE_FAILED. See [Witness]. "" = none.
	WitnessFile string

	// LowWaterBytes is the free disk space under which no new trace is begun while
	// those open still end. Zero is the larger of 1 GiB and eight memtables.
	LowWaterBytes uint64
	// MemTableBytes is the size of one memtable of the index, of which up to four are held.
	// Zero is 16 MiB.
	MemTableBytes uint64
	// CacheBytes is the size of the cache of table blocks. Zero is 64 MiB.
	CacheBytes int64
	// KeyFilterBytes bounds the memory of the filter that knows which ledger keys were never
	// used: 1.5 bytes a key. A store with more keys than it has room for looks more of them up
	// that are not there. Zero is 64 MiB.
	KeyFilterBytes int64
	// TraceCacheCount and TraceCacheBytes bound the folded traces kept in memory, and
	// again the ledger records. Zero
	// is 8192 and 64 MiB.
	TraceCacheCount int
	TraceCacheBytes int64
	// FirstSegmentBytes is the size of the first segment of the log, and SegmentBytes that of
	// those which have grown to it; multiples of 4096. Zero is 4 MiB and 64 MiB. A segment is
	// written with zeros before it is used, so that an append changes no file size.
	FirstSegmentBytes, SegmentBytes uint32
	// RewriteShare is how much of the processors, in percent, the work may take that makes full
	// segments of the log smaller: it compresses them and leaves out what nobody needs. Zero is
	// 15. With a negative one nothing is done in the background: [DB.SealTraces] leaves out what
	// it made nobody's, and [DB.Rewrite] does the rest when it is called.
	RewriteShare int
}

func (o Options) withDefaults() Options {
	if o.FS == nil {
		o.FS = guard.OS()
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Rand == nil {
		o.Rand = rand.Reader
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.MemTableBytes == 0 {
		o.MemTableBytes = 16 << 20
	}
	if o.LowWaterBytes == 0 {
		o.LowWaterBytes = max(1<<30, 8*o.MemTableBytes)
	}
	if o.CacheBytes == 0 {
		o.CacheBytes = 64 << 20
	}
	if o.KeyFilterBytes == 0 {
		o.KeyFilterBytes = 64 << 20
	}
	if o.TraceCacheCount == 0 {
		o.TraceCacheCount = 8192
	}
	if o.TraceCacheBytes == 0 {
		o.TraceCacheBytes = 64 << 20
	}
	if o.RewriteShare == 0 {
		o.RewriteShare = 15
	}
	return o
}

// random fills b with random bytes.
func (o *Options) random(b []byte) error {
	if _, err := io.ReadFull(o.Rand, b); err != nil {
		return tga.Errorf(tga.StoreUnavailable, "read %d random bytes: %w", len(b), err)
	}
	return nil
}

// newID makes a UUIDv7 from the store's clock and randomness.
func (o *Options) newID() (id tga.ID, err error) {
	if err := o.random(id[6:]); err != nil {
		return id, err
	}
	ms := uint64(tga.MillisOf(o.Clock()))
	for i := range 6 {
		id[i] = byte(ms >> (40 - 8*i))
	}
	return tga.MakeID(id), nil
}

// formatMajorVersion pins Pebble's file format: the newest that this Pebble writes.
const formatMajorVersion = pebble.FormatValueSeparation

// keys are those of the ring; nil where there is none.
func (o *Options) keys() chain.Keys {
	if o.Keyring == nil {
		return nil // and not an interface that has none
	}
	return o.Keyring
}

// options returns Pebble's settings. It has no log of its own: what it loses in a crash
// is indexed again.
func (l *listener) options(of *Options, fs vfs.FS, readOnly bool) *pebble.Options {
	o := &pebble.Options{
		FS:                 fs,
		ReadOnly:           readOnly,
		DisableWAL:         true,
		FormatMajorVersion: formatMajorVersion,
		Logger:             pebbleLog{l.health},
		EventListener:      l.events(),
		CacheSize:          of.CacheBytes,

		MemTableSize:                of.MemTableBytes,
		MemTableStopWritesThreshold: 4,
		L0CompactionThreshold:       8,
		L0StopWritesThreshold:       32,
		LBaseMaxBytes:               256 << 20,
	}
	for i := range o.Levels {
		o.Levels[i].BlockSize = 16 << 10
		// Most keys of a store are looked for once, before they exist: a new trace, a
		// key never used. A filter answers that without a read.
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
	}
	o.ApplyCompressionSettings(func() pebble.DBCompressionSettings { return pebble.DBCompressionBalanced })
	return o
}

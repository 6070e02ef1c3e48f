package engine

import (
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/internal/diskfs"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Options configure a store. The zero value is the safest. No option gives up durability.
type Options struct {
	// FS is the file system of the store; nil is the operating system's. Use another one in
	// tests only: the lock that keeps a second process out needs the operating system's.
	FS vfs.FS
	// Clock gives the commit times, and the ts of entries that the store makes; nil is time.Now.
	Clock func() time.Time
	// Rand is read for the store id and the permit secret; nil is crypto/rand.Reader.
	Rand io.Reader
	// Keyring has the keys under which artifacts and documents are sealed; nil seals nothing. If
	// a sealed store is opened without its ring, only the parts that are not sealed can be read,
	// and an append gets STORE_UNAVAILABLE.
	Keyring Keyring
	// Synced, if not nil, gets the time that each group of appends took to be written to the log
	// and synced. It is called before any append of the group is answered, and must not block. A
	// panic of it is logged, and goes no further.
	Synced func(took time.Duration)
	// Logger gets the messages for operators; nil discards them.
	Logger *slog.Logger

	// Create permits a new store in an existing empty directory. Without Create, Open makes
	// a new store only if the directory does not exist: an empty directory may be the mount
	// point of a disk that is not mounted, and a new store there would send calls again whose
	// effects are recorded on that disk.
	Create bool
	// StoreID names the store that must be in the directory. If the directory has another
	// store, none, or an unfinished one, Open returns NOT_FOUND. Zero accepts any store.
	StoreID tga.ID
	// WitnessFile is a file on another disk that names the last open of the store. A
	// directory that was copied or rolled back does not agree with the file and is refused
	// with STATE_CHECKSUM_MISMATCH. While the store is open, another store with the same
	// witness file gets STATE_LOCK_ACQUIRE_FAILED. See [Witness]. "" = no witness.
	WitnessFile string

	// LowWaterBytes is a limit of free disk space. Below it no new trace begins, but open
	// traces can still end. Zero is the larger of 1 GiB and eight memtables.
	LowWaterBytes uint64
	// MemTableBytes is the size of one memtable of the index, which holds up to four of them.
	// Zero is 16 MiB.
	MemTableBytes uint64
	// CacheBytes is the size of the cache of table blocks. Zero is 64 MiB.
	CacheBytes int64
	// KeyFilterBytes bounds the memory of the filter that knows which ledger keys were never
	// used; it takes 1.5 bytes a key. If the store has more keys than fit, the store looks up
	// unused keys in the index more often. Zero is 64 MiB.
	KeyFilterBytes int64
	// TraceCacheCount and TraceCacheBytes bound the cache of folded traces. The same bounds
	// hold, separately, for the cache of ledger records. Zero is 8192 and 64 MiB.
	TraceCacheCount int
	TraceCacheBytes int64
	// FirstSegmentBytes is the size of the first segment of the log. Later segments grow up to
	// SegmentBytes. Both are rounded up to multiples of 4096, and to 64 KiB at least. Zero is
	// 4 MiB and 64 MiB. A segment is filled with zeros before it is used, so that an append
	// changes no file size.
	FirstSegmentBytes, SegmentBytes uint32
	// RewriteShare bounds, in percent of the processors, the background work that makes full
	// segments of the log smaller: it compresses them and leaves out values that are no longer
	// needed. Zero is 15. If it is negative, nothing runs in the background: [DB.SealTraces]
	// leaves out the values that it archived, and [DB.Rewrite] does the rest when it is called.
	RewriteShare int
}

func (o Options) withDefaults() Options {
	if o.FS == nil {
		o.FS = diskfs.OS()
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

// told returns Synced without its panics: the goroutine that calls it is the store's own, and a panic there ends the process.
func (o *Options) told() func(time.Duration) {
	synced, log := o.Synced, o.Logger
	if synced == nil {
		return nil
	}
	return func(took time.Duration) {
		defer func() {
			if p := recover(); p != nil {
				log.Error("panic in Options.Synced", "value", fmt.Sprint(p), "stack", string(debug.Stack()))
			}
		}()
		synced(took)
	}
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

// formatMajorVersion pins Pebble's file format to the newest that this version of Pebble writes.
const formatMajorVersion = pebble.FormatValueSeparation

// keys returns the keys of the ring, nil if there is no ring.
func (o *Options) keys() chain.Keys {
	if o.Keyring == nil {
		return nil // not a non-nil interface that holds a nil Keyring
	}
	return o.Keyring
}

// options returns Pebble's settings. Pebble keeps no WAL: the rows that it loses in a crash
// are indexed again from the log.
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
		// Most keys are looked up once, before they exist: a new trace, an unused ledger
		// key. A filter answers such a look-up without a read.
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
	}
	o.ApplyCompressionSettings(func() pebble.DBCompressionSettings { return pebble.DBCompressionBalanced })
	return o
}

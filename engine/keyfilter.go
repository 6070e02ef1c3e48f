package engine

import (
	"encoding/binary"
	"errors"
	"log/slog"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
)

// keyFilter tells from memory that a ledger key was never used: the look-up of an absent key in
// Pebble costs more than all other work of an append. It is a Bloom filter in which the bits of
// a key lie in one line of the processor's cache. Until it has seen every key of the index, it
// claims nothing.
//
// It never says of a key with a record that the key was never used. The row of the record is in
// the index before the bits of its key are set, and both happen before the lock of the key is
// released, which every asker holds. So if the view from which a filter is built lacks a row,
// the append of that row sets its bits in the filter that is being built.
type keyFilter struct {
	index    *index
	log      *slog.Logger
	making   sync.Mutex // one build at a time: a second build would replace the first in building
	asked    atomic.Pointer[bloom64]
	building atomic.Pointer[bloom64]
	growing  atomic.Bool
	limit    uint64 // bytes that a filter may take
	stop     atomic.Bool
	ended    sync.WaitGroup
}

// bloom64 is a Bloom filter of lines of 512 bits.
type bloom64 struct {
	lines [][8]atomic.Uint64 // a power of two of them
	keys  atomic.Int64       // keys that were set; a few are counted twice, while f was built
}

// bitsPerKey is the number of bits for each key in a filter that is not full; lineProbes is how
// many bits each key sets. About one in a hundred absent keys is then taken for one that may
// exist. If the bound on memory leaves half of the bits per key, it is one in eight.
const (
	bitsPerKey = 12
	lineProbes = 6
	lineBits   = 512
)

// capacity is how many keys f takes with bitsPerKey each.
func (f *bloom64) capacity() int64 { return int64(len(f.lines)) * lineBits / bitsPerKey }

// newBloom makes a filter for that number of keys, of at most limit bytes.
func newBloom(keys, limit uint64) *bloom64 {
	lines := uint64(1) << bits.Len64(max(keys*bitsPerKey/lineBits, 1))
	lines = min(lines, uint64(1)<<(bits.Len64(max(limit/(lineBits/8), 1))-1))
	return &bloom64{lines: make([][8]atomic.Uint64, lines)}
}

// set sets the bits of a key, and has reports whether they are set. A key is a SHA-256: its
// bytes are random enough as they are.
func (f *bloom64) set(key *[32]byte) {
	line := &f.lines[binary.LittleEndian.Uint64(key[:])&uint64(len(f.lines)-1)]
	for i := range lineProbes {
		b := binary.LittleEndian.Uint16(key[8+2*i:]) % lineBits
		line[b/64].Or(1 << (b % 64))
	}
	f.keys.Add(1)
}

func (f *bloom64) has(key *[32]byte) bool {
	line := &f.lines[binary.LittleEndian.Uint64(key[:])&uint64(len(f.lines)-1)]
	for i := range lineProbes {
		b := binary.LittleEndian.Uint16(key[8+2*i:]) % lineBits
		if line[b/64].Load()&(1<<(b%64)) == 0 {
			return false
		}
	}
	return true
}

// never reports whether a key was certainly never used. The key's lock is held.
func (k *keyFilter) never(key *[32]byte) bool {
	if k == nil {
		return false
	}
	f := k.asked.Load()
	return f != nil && !f.has(key)
}

// used records that a key has its first record, whose row is in the index. It reports whether
// the filter is full and may grow. The key's lock is held.
func (k *keyFilter) used(key *[32]byte) (full bool) {
	if k == nil {
		return false
	}
	// The row is in the index before building is loaded. So if no filter is being built
	// now, the view of a later build has the row.
	if f := k.building.Load(); f != nil {
		f.set(key)
	}
	f := k.asked.Load()
	if f == nil {
		return false
	}
	f.set(key)
	return f.keys.Load() > f.capacity() && uint64(len(f.lines))*lineBits/8*2 <= k.limit
}

// giveUp makes a running build end soon.
func (k *keyFilter) giveUp() {
	if k != nil {
		k.stop.Store(true)
	}
}

// halt ends a running build and waits until it has ended.
func (k *keyFilter) halt() {
	if k != nil {
		k.giveUp()
		k.ended.Wait()
	}
}

// keySum is the number that the key of a ledger record adds to the sum in the position row.
func keySum(key []byte) uint64 { return binary.LittleEndian.Uint64(key[len(key)-8:]) }

// filterTime is how long an open waits for the keys of the index to be counted. After that the
// store serves calls while the count goes on.
const filterTime = 250 * time.Millisecond

// errOtherKeys says that the index lacks ledger keys, or has wrong ones.
var errOtherKeys = errors.New("the index lacks ledger keys, or has wrong ones")

// unlike reports whether an error of [keyFilter.watch] means that the index must not be used.
func unlike(err error) bool {
	return errors.Is(err, errOtherKeys) || tga.CodeOf(err) == tga.StateChecksumMismatch
}

// watch begins to build the filter, and waits at most filterTime for it. If the build ends later
// and finds other ledger keys than the position row says, it poisons the store, and the next
// open makes a new index.
func (k *keyFilter) watch(expected uint64) error {
	done := make(chan error, 1)
	var left atomic.Bool // whichever of build and timer comes first sets it
	k.ended.Go(func() {
		err := k.make(expected)
		if left.Swap(true) {
			k.failed(err)
		} else {
			done <- err
		}
	})
	timer := time.NewTimer(filterTime)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
	}
	if left.Swap(true) {
		return <-done
	}
	return nil
}

// grow builds a filter for twice as many keys, unless it is already being built.
func (k *keyFilter) grow() {
	if !k.growing.CompareAndSwap(false, true) {
		return
	}
	expected := 2 * uint64(k.asked.Load().keys.Load())
	k.ended.Go(func() {
		defer k.growing.Store(false)
		k.failed(k.make(expected))
	})
}

// failed handles the result of a build that no caller waits for.
func (k *keyFilter) failed(err error) {
	switch {
	case err == nil || errors.Is(err, errNoFilter):
	case unlike(err):
		k.index.health.poison(errors.Join(err, k.index.dir.spoil()))
	default:
		k.log.Warn("no filter of ledger keys: they are looked for in the index", "error", err)
	}
}

var errNoFilter = errors.New("the store is closed")

// make builds a filter of every key in a view of the index, and compares the number and the
// sum of these keys with the position row of that view.
func (k *keyFilter) make(expected uint64) error {
	k.making.Lock()
	defer k.making.Unlock()
	f := newBloom(max(expected, 64<<10), k.limit)
	k.building.Store(f)
	defer k.building.Store(nil)
	var v *pebble.Snapshot
	if err := k.index.health.guarded(func() error { v = k.index.p.NewSnapshot(); return nil }); err != nil {
		return err
	}
	var keys, sum uint64
	lower, upper := keyspace.LedgerBounds()
	view := k.index.at(v)
	err := view.scanRows(lower, upper, func(key, _ []byte) error {
		hash, err := keyspace.ParseLedger(key)
		if err != nil {
			return err
		}
		if keys++; keys%1024 == 0 && k.stop.Load() {
			return errNoFilter
		}
		sum += keySum(key)
		f.set(&hash)
		return nil
	})
	var at position
	if err == nil {
		at, err = view.position()
	}
	if err = errors.Join(err, k.index.health.guarded(v.Close)); err != nil {
		return err
	}
	if at.keys != keys || at.sum != sum {
		return tga.Errorf(tga.StateChecksumMismatch, "%w: %d, want %d", errOtherKeys, keys, at.keys)
	}
	k.asked.Store(f)
	return nil
}

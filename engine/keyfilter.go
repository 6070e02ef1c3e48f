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

// keyFilter answers for ledger keys that were never used, from memory: a miss in Pebble
// costs more than all else that an append does. It is a Bloom filter, each key's bits in one
// line of the processor's cache. Before it has seen every key of the index it answers
// nothing.
//
// It never denies a key that has a record. The record's row is in the index before its bits
// are set, and whoever asks holds the lock of the key, which ends after both; so what a
// build did not meet in its view of the index set its bits in the filter that is built.
type keyFilter struct {
	index    *index
	log      *slog.Logger
	making   sync.Mutex // a second build would take the place of the first in building
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
	keys  atomic.Int64       // that were set; a few of them twice, while f was made
}

// bitsPerKey is what a key has in a filter that is not full; lineProbes is how many of them
// it sets: about one in a hundred keys that are not there is then taken for one that may
// be. Where the bound holds the filter at half of that, it is one in eight.
const (
	bitsPerKey = 12
	lineProbes = 6
	lineBits   = 512
)

// capacity is how many keys f takes with bitsPerKey each.
func (f *bloom64) capacity() int64 { return int64(len(f.lines)) * lineBits / bitsPerKey }

// newBloom makes a filter for so many keys, of at most limit bytes.
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

// never reports whether a key is known never to have been used. Its lock is held.
func (k *keyFilter) never(key *[32]byte) bool {
	if k == nil {
		return false
	}
	f := k.asked.Load()
	return f != nil && !f.has(key)
}

// used says that a key has its first record, whose row is in the index. The key's lock is held.
func (k *keyFilter) used(key *[32]byte) (full bool) {
	if k == nil {
		return false
	}
	// In this order: where there is no filter in the making yet, the view that one is
	// made from has the row.
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

// giveUp ends what is made, soon.
func (k *keyFilter) giveUp() {
	if k != nil {
		k.stop.Store(true)
	}
}

// halt returns once nothing is made any more.
func (k *keyFilter) halt() {
	if k != nil {
		k.giveUp()
		k.ended.Wait()
	}
}

// keySum is what the key of a ledger record adds to the sum of the position row.
func keySum(key []byte) uint64 { return binary.LittleEndian.Uint64(key[len(key)-8:]) }

// filterTime is how long an open waits for the keys of the index to be counted. A store with
// more of them counts on beside its first calls.
const filterTime = 250 * time.Millisecond

// errOtherKeys says that the index does not have the ledger keys that it ought to have.
var errOtherKeys = errors.New("the index has not the ledger keys that it had")

// unlike reports whether an index is not to be used, by the error of [keyFilter.watch].
func unlike(err error) bool {
	return errors.Is(err, errOtherKeys) || tga.CodeOf(err) == tga.StateChecksumMismatch
}

// watch begins to make the filter, and waits a while for it. What an index has that
// is counted later poisons the store where it is not what it was: the next open makes the
// index anew.
func (k *keyFilter) watch(expected uint64) error {
	done := make(chan error, 1)
	var left atomic.Bool // one of the two has the answer
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

// grow makes a filter for twice as many keys, unless one is made already.
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

// failed is told what became of a filter that nobody waits for.
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

// make makes a filter of every key in a view of the index, and compares their number
// and sum with the position row of that view.
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

package engine

import "testing"

// TestFilterIsFullAtItsCapacity: a filter is to be made anew for one key more than it takes at
// bitsPerKey, where one of twice its bytes is allowed; and for no key less.
func TestFilterIsFullAtItsCapacity(t *testing.T) {
	f := newBloom(1000, 1<<20)
	takes := int64(len(f.lines)) * 512 / 12
	twice := 2 * f.Bytes()
	if f.capacity() != takes {
		t.Fatalf("%d lines take %d keys, want %d", len(f.lines), f.capacity(), takes)
	}
	for _, c := range []struct {
		keys  int64 // before this one
		limit uint64
		full  bool
	}{
		{takes - 1, twice, false},
		{takes, twice, true},
		{takes, twice - 1, false},
		{takes, twice + 1, true},
	} {
		k := &keyFilter{limit: c.limit}
		k.asked.Store(f)
		f.keys.Store(c.keys)
		if full := k.used(&[32]byte{1}); full != c.full {
			t.Errorf("%d keys of %d, %d bytes of %d: full %v", c.keys+1, takes, f.Bytes(), c.limit, full)
		}
	}
}

// TestSizeOfAFilter: it has lines for bitsPerKey of each key, a power of two of them, never more bytes
// than it may have and never less than one line.
func TestSizeOfAFilter(t *testing.T) {
	const much = 1 << 30
	for _, c := range []struct {
		keys, limit uint64
		lines       int
	}{
		{0, much, 2}, {42, much, 2}, {85, much, 2}, {86, much, 4}, {170, much, 4}, {171, much, 8},
		{1000, much, 32}, {100_000, much, 4096}, {174_762, much, 4096}, {174_763, much, 8192},
		{1000, 0, 1}, {1000, 63, 1}, {1000, 64, 1}, {1000, 127, 1}, {1000, 128, 2}, {1000, 255, 2}, {1000, 256, 4},
		{1000, 32*64 - 1, 16}, {1000, 32 * 64, 32}, {1000, 64 * 64, 32},
	} {
		if f := newBloom(c.keys, c.limit); len(f.lines) != c.lines {
			t.Errorf("%d keys in %d bytes: %d lines, want %d", c.keys, c.limit, len(f.lines), c.lines)
		}
	}
}

// TestFullFilterGrowsToTwiceItsKeys.
func TestFullFilterGrowsToTwiceItsKeys(t *testing.T) {
	db := inMemory(t)
	const keys = 100_000
	db.records.filter.asked.Load().keys.Store(keys)
	db.records.filter.grow()
	db.records.filter.ended.Wait()
	f := db.records.filter.asked.Load()
	if want := len(newBloom(2*keys, db.records.filter.limit).lines); len(f.lines) != want || f.keys.Load() != 0 {
		t.Errorf("%d lines for %d keys, want %d", len(f.lines), f.keys.Load(), want)
	}
	if db.records.filter.growing.Load() || db.records.filter.building.Load() != nil {
		t.Error("it is still being made")
	}
	db.records.filter.growing.Store(true) // somebody makes one
	db.records.filter.grow()
	db.records.filter.ended.Wait()
	if db.records.filter.asked.Load() != f {
		t.Error("it was made twice")
	}
}

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

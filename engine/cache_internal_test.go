package engine

import (
	"strings"
	"testing"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// TestCacheKeepsValuesUpToItsBound: a value as large as the bound is kept alone. A larger value is not
// kept, and the earlier value of its key is removed.
func TestCacheKeepsValuesUpToItsBound(t *testing.T) {
	var c lru[string, int]
	c.init(10, 100)
	c.put("small", 1, 1)
	c.put("whole", 2, 100)
	if v, ok := c.get("whole"); !ok || v != 2 {
		t.Error("a value as large as the bound is not kept")
	}
	if n, bytes := c.used(); n != 1 || bytes != 100 {
		t.Errorf("%d values of %d bytes", n, bytes)
	}
	c.put("whole", 3, 101)
	if v, ok := c.get("whole"); ok {
		t.Errorf("a value larger than the bound: %d", v)
	}
	if n, bytes := c.used(); n != 0 || bytes != 0 {
		t.Errorf("%d values of %d bytes", n, bytes)
	}
}

// TestFoldTakesWhatItHolds: keys, notes and documents count with every byte. Without them a cache of
// few large traces would grow past its bound.
func TestFoldTakesWhatItHolds(t *testing.T) {
	empty := foldSize(chain.NewTrace(numbered(1, 1)))
	const n = 1000
	long := strings.Repeat("x", n)
	for _, c := range []struct {
		what string
		of   func(*chain.Trace)
		want int64
	}{
		{"an entry's key", func(t *chain.Trace) { t.Entries = make([]tga.LogEntry, 1); t.Entries[0].IdempotencyKey = long }, 256 + n},
		{"two entries", func(t *chain.Trace) { t.Entries = make([]tga.LogEntry, 2) }, 512},
		{"a note", func(t *chain.Trace) { t.Notes = []tga.Note{{Body: []byte(long)}} }, 256 + n},
		{"a document", func(t *chain.Trace) { t.Documents = []chain.Document{{Data: []byte(long)}} }, n},
		{"an artifact", func(t *chain.Trace) { t.Request = &tga.Artifact{Canonical: []byte(long)} }, 2*n + 512},
	} {
		trace := chain.NewTrace(numbered(1, 1))
		c.of(trace)
		if got := foldSize(trace) - empty; got != c.want {
			t.Errorf("%s: %d bytes, want %d", c.what, got, c.want)
		}
	}
}

// TestRoomIsForSoManyEntries: an entry past the last room gets memory of its own.
func TestRoomIsForSoManyEntries(t *testing.T) {
	r := new(room)
	for i := range len(r) + 2 {
		b := r.of(i)
		if len(b) != 0 || (cap(b) > 0) != (i < len(r)) {
			t.Errorf("entry %d: room of %d bytes", i, cap(b))
		}
	}
}

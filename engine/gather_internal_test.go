package engine

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"
)

// TestGatheredRowsAreTheNewest: whatever is put and deleted in whatever order, a batch of it has
// each key once, in order, with what was said of it last; and the rows are gone afterwards.
func TestGatheredRowsAreTheNewest(t *testing.T) {
	p, err := pebble.Open("index", &pebble.Options{FS: vfs.NewMem(), Logger: pebble.DefaultLogger})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}()
	var g gathered
	rapid.Check(t, func(t *rapid.T) {
		want := map[string]string{}
		for i := range rapid.IntRange(0, 60).Draw(t, "operations") {
			// Keys that are each other's beginning, that end in zeros, and that differ behind the
			// eighth byte only.
			key := rapid.SampledFrom([]string{"a", "a\x00", "abcdefgh", "abcdefgh\x00", "abcdefghi", "abcdefgj", "b", "\xff"}).Draw(t, "key")
			if rapid.Bool().Draw(t, "deleted") {
				g.put([]byte(key), nil)
				want[key] = "deleted"
				continue
			}
			row := fmt.Sprint("row", i)[:rapid.IntRange(0, 4).Draw(t, "length")]
			g.put([]byte(key), []byte(row))
			want[key] = "=" + row
		}
		b := p.NewBatch()
		if err := g.into(b); err != nil || len(g.room)+len(g.rows) > 0 {
			t.Fatalf("%v, %d rows are left", err, len(g.rows))
		}
		got := map[string]string{}
		var keys []string
		for r := b.Reader(); ; {
			kind, key, row, ok, err := r.Next()
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				break
			}
			keys = append(keys, string(key))
			got[string(key)] = "deleted"
			if kind == pebble.InternalKeyKindSet {
				got[string(key)] = "=" + string(row)
			}
		}
		if !slices.IsSortedFunc(keys, func(x, y string) int { return bytes.Compare([]byte(x), []byte(y)) }) || len(keys) != len(want) || !maps.Equal(got, want) {
			t.Fatalf("%q: %q, want %q", keys, got, want)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

package engine_test

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/engine"
)

// TestStoreWithSegmentsOfAnySizeOpensAgain: what was acknowledged is there, also where a size is below the smallest segment
// or no multiple of a page.
func TestStoreWithSegmentsOfAnySizeOpensAgain(t *testing.T) {
	for _, size := range []uint32{1, 4096, 64<<10 + 1} {
		o := engine.Options{FS: vfs.NewMem(), FirstSegmentBytes: size, SegmentBytes: size, MemTableBytes: 1 << 20, LowWaterBytes: 1}
		for n := range uint64(3) {
			db, err := engine.Open("store", o)
			if err != nil {
				t.Fatalf("size %d: %v", size, err)
			}
			for seen := range n {
				if _, err := db.Load(t.Context(), id(seen+1)); err != nil {
					t.Errorf("size %d: %v", size, err)
				}
			}
			run(t, db, spec{trace: id(n + 1)})
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

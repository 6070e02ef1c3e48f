package engine

import (
	"log/slog"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestBallastIsLaidAboveTheLowWaterMark: it takes nothing of the room that ending what is open needs.
// It is tried with as much room as it takes above the mark, and with one byte less.
func TestBallastIsLaidAboveTheLowWaterMark(t *testing.T) {
	const lowWater, bytes = 1000, 300
	for free, laid := range map[uint64]bool{lowWater + bytes: true, lowWater + bytes - 1: false, lowWater - bytes: false} {
		fs := vfs.NewMem()
		if err := fs.MkdirAll("store", 0o700); err != nil {
			t.Fatal(err)
		}
		s := &space{fs: &someFree{fs, free}, dir: "store", lowWater: lowWater}
		s.layBallast(slog.New(slog.DiscardHandler), bytes)
		_, err := fs.Stat("store/" + ballastName)
		if (err == nil) != laid || s.ballast.Load() != laid {
			t.Errorf("%d bytes are free: laid %v, said %v", free, err == nil, s.ballast.Load())
		}
	}
}

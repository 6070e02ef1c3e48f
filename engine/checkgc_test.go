package engine_test

import (
	"context"
	"os"
	"runtime/debug"
	"strconv"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/internal/serial"
)

// TestCheckUnderGCPressure was found by process kills whose checker died: the collector
// met bad pointers while a check ran. It runs checks beside each other with the collector
// at work all the time; TGAD_CHECKS says how many.
func TestCheckUnderGCPressure(t *testing.T) {
	serial.Test(t)
	checks, err := strconv.Atoi(os.Getenv("TGAD_CHECKS"))
	if err != nil {
		checks = 200
	}
	db := open(t, "store", options(vfs.NewMem()))
	for n := range uint64(8) {
		run(t, db, spec{trace: id(n + 1)})
	}
	defer debug.SetGCPercent(debug.SetGCPercent(1))
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for range checks {
				if report, err := db.Check(context.Background()); err != nil || len(report.Problems) > 0 {
					t.Errorf("%+v, %v", report, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

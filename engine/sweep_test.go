package engine_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestSweepKeepsABodyWhoseRowIsComing: between the sync of a record and its rows in the index, no row names the file of its
// body yet. A sweep at that moment leaves the file.
func TestSweepKeepsABodyWhoseRowIsComing(t *testing.T) {
	var hold atomic.Bool
	held, free := make(chan struct{}), make(chan struct{})
	o := options(vfs.NewMem())
	o.Synced = func(time.Duration) {
		if hold.Swap(false) {
			close(held)
			<-free
		}
	}
	db := open(t, "store", o)
	kept := item(id(50), 1, strings.Repeat("kept ", 300<<10))
	lease := acquire(t, db, id(50))
	hold.Store(true)
	appended, swept := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := db.Append(t.Context(), lease, kept)
		appended <- err
	}()
	<-held
	go func() {
		_, err := db.SealTraces(t.Context(), start)
		swept <- err
	}()
	until(t, "the sweep", func() bool { return db.Queued() > 0 }) // it waits for the commit that is held
	close(free)
	for what, ended := range map[string]chan error{"append": appended, "sweep": swept} {
		if err := <-ended; err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	db.Release(lease)
	wantBeside(t, db, kept, true)
}

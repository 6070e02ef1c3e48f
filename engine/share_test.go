package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/schemas/tga"
)

// Two traces that serve the same recorded effect change nothing about its key, so the
// second does not wait for the sync of the first: while it hangs, both are on their way.
func TestServedCopiesOfAKeyShareASync(t *testing.T) {
	fs := &faultFS{FS: vfs.NewMem(), log: true}
	db := open(t, "store", options(fs))
	run(t, db, spec{trace: id(1), key: "k"})

	release := make(chan struct{})
	fs.onSync(func(real func() error) error {
		<-release
		return real()
	})
	traces := []tga.ID{id(2), id(3)}
	done := make(chan error, len(traces))
	for _, trace := range traces {
		m := spec{trace: trace, key: "k", attempt: "none", replayed: id(1)}.make(t)
		lease := acquire(t, db, trace)
		go func() {
			_, err := db.Append(context.Background(), lease, m.batch(m.request, m.decision, m.call, m.effect))
			done <- err
		}()
	}
	for began := time.Now(); db.Underway() < len(traces); time.Sleep(time.Millisecond) {
		if time.Since(began) > 10*time.Second {
			t.Errorf("%d of %d served calls are on their way while a sync hangs", db.Underway(), len(traces))
			break
		}
	}
	close(release)
	for range traces {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

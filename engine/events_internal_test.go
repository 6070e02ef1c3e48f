package engine

import (
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2"
)

// TestWorkThatSucceedsForgivesWhatFailed: a store stops after so many failures of flushes and
// compactions in a row. One that succeeds begins the count anew, one that fails does not.
func TestWorkThatSucceedsForgivesWhatFailed(t *testing.T) {
	failed := errors.New("no space")
	for _, c := range []struct {
		what     string
		end      func(*pebble.EventListener)
		poisoned bool
	}{
		{"nothing else", func(*pebble.EventListener) {}, true},
		{"a flush", func(l *pebble.EventListener) { l.FlushEnd(pebble.FlushInfo{}) }, false},
		{"a flush that fails", func(l *pebble.EventListener) { l.FlushEnd(pebble.FlushInfo{Err: failed}) }, true},
		{"a compaction", func(l *pebble.EventListener) { l.CompactionEnd(pebble.CompactionInfo{}) }, false},
		{"a compaction that fails", func(l *pebble.EventListener) { l.CompactionEnd(pebble.CompactionInfo{Err: failed}) }, true},
	} {
		db := newStanding(Options{}.withDefaults())
		l := (&opening{standing: db}).listener().events()
		for range maxBackgroundErrors - 1 {
			l.BackgroundError(failed)
		}
		flushes, compactions := db.stats.flushes.Load(), db.stats.compactions.Load()
		c.end(l)
		done := make(chan struct{})
		go func() { // the one that poisons ends its goroutine
			defer close(done)
			l.BackgroundError(failed)
		}()
		<-done
		if is := db.health.sick() != nil; is != c.poisoned {
			t.Errorf("%s between: poisoned %v", c.what, is)
		}
		counted := db.stats.flushes.Load() + db.stats.compactions.Load() - flushes - compactions
		if (counted == 1) == c.poisoned {
			t.Errorf("%s: %d are counted", c.what, counted)
		}
	}
}

package search

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestIndexRestsAfterItsWork: the index rests three times as long as it worked, unless somebody waits for a
// list.
func TestIndexRestsAfterItsWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := &Index{poke: make(chan struct{}, 1)}
		for _, work := range []time.Duration{time.Millisecond, time.Second, time.Minute} {
			began := time.Now()
			time.Sleep(work)
			x.rest(t.Context(), began)
			if all := time.Since(began); all != share*work {
				t.Errorf("work of %v and its rest take %v", work, all)
			}
		}
		began := time.Now()
		time.Sleep(time.Hour)
		x.poke <- struct{}{}
		if x.rest(t.Context(), began); time.Since(began) != time.Hour {
			t.Error("it rests while somebody waits")
		}
	})
}

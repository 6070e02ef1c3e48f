package backup

import (
	"testing"
	"time"
)

// TestBackupKeepsToItsShare: a backup works for half of the time that it takes, and the next one waits
// until that is its share of the time since it began.
func TestBackupKeepsToItsShare(t *testing.T) {
	for _, x := range []struct {
		took, every time.Duration
		share       int
		want        time.Duration
	}{
		{time.Second, 10 * time.Second, 15, 10 * time.Second},
		{6 * time.Second, 10 * time.Second, 15, 20 * time.Second},
		{time.Minute, 10 * time.Second, 100, 30 * time.Second},
		{time.Minute, 10 * time.Second, 1, 50 * time.Minute},
		{0, time.Second, 15, time.Second},
	} {
		if got := rest(x.took, Settings{Every: x.every, Share: x.share}); got != x.want {
			t.Errorf("%+v: %s", x, got)
		}
	}
}

package backup

import (
	"testing"
	"time"
)

// TestBackupKeepsToItsShare: a backup works for half of the time that it takes. The next one waits until
// that is its share of the time since it began. One that failed is made again soon, and then after growing
// pauses, if that is earlier than `every`.
func TestBackupKeepsToItsShare(t *testing.T) {
	for _, x := range []struct {
		took, every   time.Duration
		share, failed int
		want          time.Duration
	}{
		{time.Second, 10 * time.Second, 15, 0, 10 * time.Second},
		{6 * time.Second, 10 * time.Second, 15, 0, 20 * time.Second},
		{time.Minute, 10 * time.Second, 100, 0, 30 * time.Second},
		{time.Minute, 10 * time.Second, 1, 0, 50 * time.Minute},
		{0, time.Second, 15, 0, time.Second},
		{0, 24 * time.Hour, 15, 0, 24 * time.Hour},
		{0, 24 * time.Hour, 15, 1, 10 * time.Second},
		{0, 24 * time.Hour, 15, 3, 40 * time.Second},
		{0, 24 * time.Hour, 15, 1000, 10 * time.Minute},
		{0, time.Second, 15, 1000, time.Second},
		{6 * time.Second, 24 * time.Hour, 15, 1, 20 * time.Second},
	} {
		if got := rest(x.took, Settings{Every: x.every, Share: x.share}, x.failed); got != x.want {
			t.Errorf("%+v: %s", x, got)
		}
	}
}

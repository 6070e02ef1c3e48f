package hostdir

import (
	"testing"
	"time"
)

// TestStampsAreTrustedOnlyAfterATick: a file that could have been changed again in the
// tick of the clock that its ctime is of is read again; at the limit and one past it.
func TestStampsAreTrustedOnlyAfterATick(t *testing.T) {
	fine, coarse := int64(1_700_000_000_000_000_001), int64(1_700_000_000_000_000_000)
	for _, c := range []struct {
		ctime int64
		later time.Duration
		want  bool
	}{
		{fine, 0, false},
		{fine, 50 * time.Millisecond, false},
		{fine, 50*time.Millisecond + 1, true},
		{coarse, 50*time.Millisecond + 1, false},
		{coarse, 2 * time.Second, false},
		{coarse, 2*time.Second + 1, true},
		{fine, -time.Hour, false}, // a clock that went back
	} {
		s := stamp{ctime: c.ctime, seen: c.ctime + int64(c.later)}
		if got := s.settled(); got != c.want {
			t.Errorf("ctime %d, looked at %v later: trusted %v, want %v", c.ctime, c.later, got, c.want)
		}
	}
}

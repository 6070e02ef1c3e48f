package postgres

import (
	"sync"
	"time"

	"github.com/tgad/tgad/schemas/tga"
)

// skew compares the clock of this process with that of the database server, which all processes of a store share. A process
// that began an attempt by a clock that is ahead would have another process send it again when the tool server has forgotten
// its key; so would one that decides by a clock that is behind. Two processes that pass are at most twice the limit apart.
type skew struct {
	clock func() time.Time
	most  time.Duration // negative: nothing is compared

	mu            sync.Mutex
	ours          time.Time     // by clock, when they were compared
	at            time.Time     // the same moment by the monotonic clock
	ahead, behind time.Duration // how far the clock was at least; negative where it was not
}

// compared takes what the server's clock said between before, by the clock of this process, and now.
func (x *skew) compared(before, theirs time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.at, x.ours = time.Now(), x.clock()
	x.ahead, x.behind = before.Sub(theirs), theirs.Sub(x.ours)
}

// err is STORE_UNAVAILABLE while the clock is further from the server's than the limit. A clock that was set since they were
// compared shows against the monotonic clock.
func (x *skew) err() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.most < 0 {
		return nil
	}
	jump := x.clock().Round(0).Sub(x.ours.Round(0)) - time.Since(x.at)
	by, is := x.ahead+jump, "ahead of"
	if x.behind-jump > by {
		by, is = x.behind-jump, "behind"
	}
	if by <= x.most {
		return nil
	}
	return tga.Errorf(tga.StoreUnavailable, "the clock of this process is %s %s that of the database server, and may be %s from it: no call is begun", by.Round(time.Second), is, x.most)
}

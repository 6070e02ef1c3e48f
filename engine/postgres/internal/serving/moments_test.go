package serving_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"time"
)

// toMoments are faults that come at a moment which chance seldom meets. No other fault comes meanwhile, so
// that the other replicas do what the fault gives them time for.
var toMoments = []blow{
	{"SIGSTOP between reservation and send, until a person has said that nothing was sent", 1, stopUntilDenied},
	{"end of waits for the standby, whose answers die with their server", 1, waitsEndThenPromotion},
}

// atMoments strikes the fleet at moments, each kind in its turn. The more faults a trial has, the
// seldomer.
func (x *trial) atMoments(wg *sync.WaitGroup) {
	rng := rand.New(rand.NewPCG(x.seed, 20))
	most := max(time.Second, time.Duration(x.faults)*10*time.Millisecond)
	wg.Go(func() {
		for i := 0; !x.over(); i++ {
			time.Sleep(between(rng, most/4, most))
			b, r := toMoments[i%len(toMoments)], x.servers.replicas[rng.IntN(len(x.servers.replicas))]
			x.calm.Lock()
			err := b.strike(x.t.Context(), x, r, rng)
			x.calm.Unlock()
			if !x.counted(b.name, err) {
				return
			}
		}
	})
}

// mostDenial is how long a person has to look at a call of a replica that stands still: until its lease is over,
// another has taken the call up, and the doubt is old enough to be looked at.
const mostDenial = 8 * struckLease

// stopUntilDenied stops a replica that has reserved keys and not yet sent their calls. The others take these up, a
// person looks at the tool, sees nothing and says so. Then the replica goes on.
func stopUntilDenied(_ context.Context, x *trial, r *struck, rng *rand.Rand) error {
	held := r.ways[x.servers.slot()].holdsAnswers()
	asked := x.askAlone(r, 2*lonely)
	select {
	case <-held:
		time.Sleep(between(rng, 50*time.Millisecond, 250*time.Millisecond)) // for more of them
	case <-time.After(2 * struckLease):
	}
	wakes := time.AfterFunc(50*time.Millisecond, r.heal) // the answers are the first thing that it finds
	defer wakes.Stop()
	before := x.tools.denials()
	r.standStill(func() {
		for end := time.Now().Add(mostDenial); x.tools.denials() < before+lonely && time.Now().Before(end); {
			time.Sleep(20 * time.Millisecond)
		}
	})
	asked.Wait()
	return nil
}

// lonely is how many keys are asked for, by one caller each, at the moment of a fault.
const lonely = 8

// askAlone has callers ask a replica for new keys, each for its own.
func (x *trial) askAlone(r *struck, keys int) *sync.WaitGroup {
	var wg sync.WaitGroup
	for range keys {
		key := x.loneKey()
		wg.Go(func() { x.askOnce(r, key, false, 4*patience) })
	}
	return &wg
}

// waitsEndThenPromotion ends commits of a replica that wait for a standby which is away: then they are visible,
// and nothing of them may be answered. The server is lost, and the standby, which has nothing of them, promoted.
// No key has a second caller meanwhile: that one would see what is visible.
func waitsEndThenPromotion(_ context.Context, x *trial, r *struck, rng *rand.Rand) error {
	x.quiet.Lock()
	defer x.quiet.Unlock()
	p, b := x.servers.now()
	b.Kill()
	asked := x.askAlone(r, lonely)
	var err error
	for range 20 {
		time.Sleep(50 * time.Millisecond)
		if err = p.Exec("SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"); err != nil {
			break
		}
	}
	forgets := rng.IntN(2) == 0
	if forgets {
		r.end(syscall.SIGKILL)
	}
	p.Kill()
	if err == nil {
		err = b.Start()
	}
	if err == nil {
		err = x.servers.promote()
	}
	asked.Wait()
	if err == nil && forgets {
		err = r.start(x.t.Context())
	}
	return err
}

// loneKey is a key that nobody asks for again before all is well.
func (x *trial) loneKey() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	key := fmt.Sprintf("opaque-lone-%d", len(x.lone))
	x.lone = append(x.lone, key)
	return key
}

// meetings bring the callers of a key together, so that they ask at the same moment.
type meetings struct {
	mu sync.Mutex
	at map[int]chan struct{}
}

// mostWait is how long a caller waits for the other one.
const mostWait = 300 * time.Millisecond

// meet waits for the other caller of key n, and reports whether it came.
func (m *meetings) meet(n int) bool {
	m.mu.Lock()
	c, second := m.at[n]
	if second {
		delete(m.at, n)
		close(c)
		m.mu.Unlock()
		return true
	}
	c = make(chan struct{})
	m.at[n] = c
	m.mu.Unlock()
	select {
	case <-c:
		return true
	case <-time.After(mostWait):
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.at[n] == c {
		delete(m.at, n)
		return false
	}
	return true
}

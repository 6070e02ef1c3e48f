package monitor_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/evidence/monitor"
)

// TestStoreThatKeepsDyingIsFollowed: whenever it is asked, a store dies before it has sent more than seven
// appends. A monitor asks for fewer and makes progress. It asks for more again once all of them arrive.
func TestStoreThatKeepsDyingIsFollowed(t *testing.T) {
	s := signing(t)
	for seed := uint64(2); seed <= 100; seed++ {
		s.append(seed, "")
	}
	s.covered()
	m := s.monitor(monitor.Options{State: filepath.Join(t.TempDir(), "state"), Page: 64})
	s.most = 7
	gone := 0
	for steps := 1; ; steps++ {
		more, err := m.Step(t.Context())
		if err != nil {
			gone++
		}
		if err == nil && !more {
			break
		}
		if steps == 200 {
			_, checked := m.Seen()
			t.Fatalf("after %d steps %d appends are checked", steps, checked)
		}
	}
	if size, checked := m.Seen(); checked != size || size < 100 || gone == 0 {
		t.Errorf("%d of %d are checked, %d times it was gone", checked, size, gone)
	}
	s.most = 0
	for seed := uint64(101); seed <= 300; seed++ {
		s.append(seed, "")
	}
	s.covered()
	if steps := follow(t, m); steps > 12 {
		t.Errorf("%d steps for 200 appends of a store that lives", steps)
	}
}

// TestRestartsAreNoAlarm crashes stores again and again under a monitor that asks them. A crash ends a
// segment of the log, and each open reads the ends of all segments. So that the time stays small, no store
// has more than mostRestarts.
func TestRestartsAreNoAlarm(t *testing.T) {
	const mostRestarts = 250
	restarts := 60
	if n := os.Getenv("TGAD_RESTARTS"); n != "" {
		var err error
		if restarts, err = strconv.Atoi(n); err != nil {
			t.Fatal(err)
		}
	}
	for done := 0; done < restarts; done += mostRestarts {
		t.Run("store "+strconv.Itoa(done/mostRestarts+1), func(t *testing.T) { restart(t, uint64(done), min(mostRestarts, restarts-done)) })
	}
}

func restart(t *testing.T, stream uint64, restarts int) {
	s := newStand(t)
	rng := rand.New(rand.NewPCG(1, 2+stream))
	state := filepath.Join(t.TempDir(), "state")
	seed, steps := uint64(0), 0
	for n := range restarts {
		s.open()
		m := s.monitor(monitor.Options{State: state, Page: 5})
		for range rng.IntN(4) {
			seed++
			s.append(seed, "")
			if rng.IntN(2) == 0 {
				time.Sleep(time.Duration(rng.IntN(3000)) * time.Microsecond)
			}
			if _, err := m.Step(t.Context()); err != nil {
				t.Fatalf("after %d crashes: %v", n, err)
			}
			steps++
		}
		s.crash(rng)
	}
	s.open()
	defer s.close()
	s.covered()
	m := s.monitor(monitor.Options{State: state})
	steps += follow(t, m)
	size, checked := m.Seen()
	t.Logf("%d crashes, %d appends, %d checked in %d steps", restarts, size, checked, steps)
	if checked != int64(s.db.Cursor()) || checked == 0 {
		t.Errorf("%d appends, %d were checked", s.db.Cursor(), checked)
	}
}

package adapter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// OpLoad asks for many calls at once. An adapter may leave it out; then the speed of its engine is not measured.
const OpLoad = "load"

// Bounds of a [Load].
const (
	MaxCallers = 1024
	MaxMillis  = 600_000
)

// Load asks for a number of callers at once. Each of them makes one call after the other, each call with a new
// key.
type Load struct {
	Callers int    `json:"callers"` // 1 to MaxCallers
	Millis  int64  `json:"ms"`      // 1 to MaxMillis; no call begins later
	Prefix  string `json:"prefix"`  // of the keys; no other load of the run has it
}

// Loaded is the result of a load.
type Loaded struct {
	Calls  int     `json:"calls"` // which completed
	Millis float64 `json:"ms"`    // until the last of them ended
	// Of one call, in microseconds.
	P50 float64 `json:"p50_us"`
	P99 float64 `json:"p99_us"`
}

// unendedTime is how long a call of a load may run. Nothing is killed in a load, so each call must end.
const unendedTime = 30 * time.Second

// run makes the calls of a load. It fails if a call does not complete.
func (l *Load) run(ctx context.Context, w Worker) (*Loaded, error) {
	if l == nil || l.Callers < 1 || l.Callers > MaxCallers || l.Millis < 1 || l.Millis > MaxMillis || l.Prefix == "" {
		return nil, fmt.Errorf("load wants 1 to %d callers, 1 to %d ms and a prefix", MaxCallers, MaxMillis)
	}
	took := make([][]time.Duration, l.Callers)
	errs := make([]error, l.Callers)
	began := time.Now()
	end := began.Add(time.Duration(l.Millis) * time.Millisecond)
	var callers sync.WaitGroup
	for i := range l.Callers {
		callers.Go(func() {
			for n := 0; time.Now().Before(end) && errs[i] == nil; n++ {
				called := time.Now()
				errs[i] = complete(ctx, w, fmt.Sprintf("%s-%d-%d", l.Prefix, i, n))
				took[i] = append(took[i], time.Since(called))
			}
		})
	}
	callers.Wait()
	whole := time.Since(began)
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	all := slices.Concat(took...)
	slices.Sort(all)
	at := func(share float64) float64 {
		return float64(all[int(share*float64(len(all)-1))].Nanoseconds()) / 1e3
	}
	return &Loaded{Calls: len(all), Millis: float64(whole.Nanoseconds()) / 1e6, P50: at(0.5), P99: at(0.99)}, nil
}

// complete makes a call, and repeats it while it is still running.
func complete(ctx context.Context, w Worker, key string) error {
	for until := time.Now().Add(unendedTime); ; {
		a, err := w.Call(ctx, key, 1)
		switch {
		case err != nil:
			return fmt.Errorf("call %s: %w", key, err)
		case a.Outcome == Completed:
			return nil
		case a.Outcome.Final() || time.Now().After(until):
			return fmt.Errorf("call %s is %s: %s", key, a.Outcome, a.Detail)
		}
	}
}

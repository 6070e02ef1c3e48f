package main

import (
	"context"
	"fmt"
	goruntime "runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tgad/tgad/bench/internal/load"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// lane is a way to a daemon's runtime: the runtime itself, or a client of its socket.
type lane interface {
	Call(context.Context, runtime.Request) (runtime.Result, error)
	Begin(context.Context, runtime.BeginRequest) (runtime.Begun, error)
	Finish(context.Context, tga.ID, runtime.Permit, runtime.Finished) (runtime.Result, error)
}

// trip is one exchange of a lane.
type trip struct {
	name string
	// prepare readies an exchange, untimed.
	prepare func(lane) (func() error, error)
}

// trips are the exchanges whose cost over the socket is measured: a whole call, which the
// daemon sends, and the two exchanges of a call that a remote executor sends.
func (s *served) trips() []trip {
	ctx := context.Background()
	m := load.New(s.size)
	beginning := func() runtime.BeginRequest {
		req := load.CallRequest(m, s.size)
		req.Server = "own"
		return runtime.BeginRequest{Request: req, BeginID: "begin " + req.Key}
	}
	done := runtime.Finished{Reply: runtime.Reply{Status: tga.StatusSuccess, Result: []byte(`{"paid":true}`)}}
	return []trip{
		{"call", func(l lane) (func() error, error) {
			req := load.CallRequest(m, s.size)
			return func() error {
				res, err := l.Call(ctx, req)
				if err == nil {
					err = res.Err()
				}
				return err
			}, nil
		}},
		{"begin", func(l lane) (func() error, error) {
			req := beginning()
			return func() error {
				b, err := l.Begin(ctx, req)
				if err == nil && b.Standing != runtime.BeginSend {
					err = fmt.Errorf("begin: %s", b.Standing)
				}
				return err
			}, nil
		}},
		{"finish", func(l lane) (func() error, error) {
			b, err := s.inside.Begin(ctx, beginning())
			return func() error {
				res, err := l.Finish(ctx, b.Result.TraceID, b.Permit, done)
				if err == nil {
					err = res.Err()
				}
				return err
			}, err
		}},
	}
}

// added measures what the socket adds: it makes each exchange in process and through the
// socket, in turns, on one store. A time is the difference of the two medians within a block,
// and then the median over the blocks, so that a slow machine slows both. The counts are
// from further exchanges, one lane after the other.
func (s *served) added(blocks, turns int) ([]string, error) {
	var facts []string
	for _, t := range s.trips() {
		lanes := [2]lane{s.inside, s.client}
		var inside, more []time.Duration
		for range blocks {
			var took [2][]time.Duration
			for range turns {
				for i, l := range lanes {
					run, err := t.prepare(l)
					if err != nil {
						return nil, err
					}
					start := time.Now()
					if err := run(); err != nil {
						return nil, fmt.Errorf("%s: %w", t.name, err)
					}
					took[i] = append(took[i], time.Since(start))
				}
			}
			a, b := median(took[0]), median(took[1])
			inside, more = append(inside, a), append(more, b-a)
		}
		var counts [2]counted
		for i, l := range lanes {
			var err error
			if counts[i], err = t.count(l, turns); err != nil {
				return nil, fmt.Errorf("%s: %w", t.name, err)
			}
		}
		a, d := median(inside), median(more)
		facts = append(facts, fmt.Sprintf("socket    %s of %d bytes: %d µs in process, + %d µs (%d to %d) through the socket, %.2f ×; %+.0f µs of CPU, %+.1f context switches, %+.1f allocations",
			t.name, s.size, a.Microseconds(), d.Microseconds(), slices.Min(more).Microseconds(), slices.Max(more).Microseconds(), float64(a+d)/float64(a),
			counts[1].cpu-counts[0].cpu, counts[1].switches-counts[0].switches, counts[1].allocs-counts[0].allocs))
	}
	return facts, nil
}

// counted is what an exchange costs the process; CPU is in µs.
type counted struct{ cpu, switches, allocs float64 }

func (t trip) count(l lane, n int) (counted, error) {
	runs := make([]func() error, n)
	for i := range runs {
		var err error
		if runs[i], err = t.prepare(l); err != nil {
			return counted{}, err
		}
	}
	var before, after goruntime.MemStats
	goruntime.GC()
	goruntime.ReadMemStats(&before)
	cpu, switched := cpuTime(), switches()
	for _, run := range runs {
		if err := run(); err != nil {
			return counted{}, err
		}
	}
	cpu, switched = cpuTime()-cpu, switches()-switched
	goruntime.ReadMemStats(&after)
	return counted{cpu / float64(n) * 1e6, switched / float64(n), float64(after.Mallocs-before.Mallocs) / float64(n)}, nil
}

// switches is how often a thread of this process has waited.
func switches() float64 {
	var ru unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &ru); err != nil {
		return 0
	}
	return float64(ru.Nvcsw)
}

func median(of []time.Duration) time.Duration {
	of = slices.Sorted(slices.Values(of))
	return of[len(of)/2]
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tgad/tgad/bench/internal/load"
	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

const (
	steadyCallers = 64
	steadyBytes   = 1 << 10 // of each artifact
	steadySample  = 4096    // calls that are made again at the end
)

// steadyLowWater is the free space at which the store stops. The default, 1 GiB, is half of the small
// file system that this soak is meant for.
const steadyLowWater = 128 << 20

// steady is one store in service for a long time: it gets bursts of calls at a steady rate, archives
// finished traces older than keep, and rewrites segments. It shows the figures that must stay flat over
// hours (the tail, the memory) and those that may only grow with the data that is kept.
type steady struct {
	rt    *runtime.Runtime
	db    *engine.DB
	pause time.Duration // between two bursts of one call of each caller
	keep  time.Duration // finished traces older than this are archived
	line  time.Duration // of one line

	sent atomic.Uint64 // calls that reached the tool

	mu     sync.Mutex
	took   []time.Duration // since the last line
	sample []runtime.Request
	failed error
	calls  uint64
	rng    *rand.Rand
}

// runSteady makes calls for a while and writes a line at intervals. In the end it checks the store,
// opens it again, and repeats a sample of the calls: none of them may reach the tool.
func runSteady(dir string, o options, out io.Writer) (err error) {
	s := &steady{pause: o.pause, keep: o.keep, line: o.line, rng: rand.New(rand.NewPCG(1, 2))}
	dir = filepath.Join(dir, "steady")
	if err := s.open(dir); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.db.Close()) }()
	if err := s.serve(o.steady, out); err != nil {
		return err
	}
	rep, err := s.db.Check(context.Background())
	if err != nil {
		return err
	}
	if len(rep.Problems) > 0 {
		return fmt.Errorf("after %d calls the store has %d problems, the first: %v", s.calls, len(rep.Problems), rep.Problems[0])
	}
	if err := s.db.Close(); err != nil {
		return err
	}
	start := time.Now()
	if err := s.open(dir); err != nil {
		return err
	}
	opened := time.Since(start)
	again, err := s.askAgain()
	fmt.Fprintf(out, "%d calls, %d sent; checked: %d traces, %d archived, 0 problems; opened again in %v; %d calls made again: %d sent\n",
		s.calls, s.sent.Load()-again, rep.Traces, rep.Archived, opened.Round(time.Millisecond), len(s.sample), again)
	if err == nil && (again > 0 || s.sent.Load() != s.calls) {
		err = errors.New("a call was sent twice, or not at all")
	}
	return err
}

func (s *steady) open(dir string) error {
	db, err := engine.Open(dir, engine.Options{LowWaterBytes: steadyLowWater})
	if err != nil {
		return err
	}
	s.db = db
	s.rt, err = runtime.New(db, runtime.DispatcherFunc(func(ctx context.Context, c runtime.Call) (runtime.Reply, error) {
		s.sent.Add(1)
		return load.Noop(ctx, c)
	}), runtime.AllowAll, runtime.Options{})
	if err != nil {
		err = errors.Join(err, db.Close())
	}
	return err
}

// serve lets every caller make a call, all at once, and again after a pause, until the time is
// over; it archives and writes lines meanwhile.
func (s *steady) serve(long time.Duration, out io.Writer) error {
	ctx, cancel := context.WithTimeout(context.Background(), long)
	defer cancel()
	var wg sync.WaitGroup
	start := time.Now()
	for range steadyCallers {
		m := load.New(steadyBytes)
		wg.Go(func() {
			if err := s.call(ctx, m, start); err != nil {
				s.fail(err)
				cancel()
			}
		})
	}
	wg.Go(func() {
		if err := s.archive(ctx); err != nil {
			s.fail(err)
			cancel()
		}
	})
	fmt.Fprintln(out, "  time     calls  p50 µs  p99 µs  max µs  resident MiB  heap MiB  log MiB  uncompressed  index MiB  used MiB  rewritten")
	tick := time.NewTicker(s.line)
	defer tick.Stop()
	free := s.db.Stats().FreeBytes
	for ctx.Err() == nil {
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
		s.print(out, time.Since(start), free)
	}
	wg.Wait()
	return s.failed
}

func (s *steady) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = errors.Join(s.failed, err)
}

// call is one caller. A call's time is from the moment of its burst, not from when this goroutine
// got to it: a stall counts against every call that it held up.
func (s *steady) call(ctx context.Context, m *load.Maker, start time.Time) error {
	for n := 1; ; n++ {
		at := start.Add(time.Duration(n) * s.pause)
		select {
		case <-time.After(time.Until(at)):
		case <-ctx.Done():
			return nil
		}
		req := load.CallRequest(m, steadyBytes)
		// What was begun is ended: the check at the end wants whole calls.
		res, err := s.rt.Call(context.WithoutCancel(ctx), req)
		if err == nil {
			err = res.Err()
		}
		if err != nil {
			return err
		}
		s.note(time.Since(at), req)
	}
}

func (s *steady) note(took time.Duration, req runtime.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.took = append(s.took, took)
	s.calls++
	// A sample in which every call is as likely as another.
	if len(s.sample) < steadySample {
		s.sample = append(s.sample, req)
	} else if i := s.rng.Uint64N(s.calls); i < steadySample {
		s.sample[i] = req
	}
}

func (s *steady) archive(ctx context.Context) error {
	tick := time.NewTicker(s.keep)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		if _, err := s.db.SealTraces(ctx, tga.MillisOf(time.Now().Add(-s.keep))); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

func (s *steady) print(out io.Writer, at time.Duration, free uint64) {
	s.mu.Lock()
	took, calls := s.took, s.calls
	s.took = nil
	s.mu.Unlock()
	if len(took) == 0 {
		return
	}
	slices.Sort(took)
	var mem goruntime.MemStats
	goruntime.ReadMemStats(&mem)
	const mib = 1 << 20
	st := s.db.Stats()
	fmt.Fprintf(out, "%6.0f  %8d  %6d  %6d  %6d  %12d  %8d  %7d  %12d  %9d  %8d  %9d\n", at.Seconds(), calls,
		took[len(took)/2].Microseconds(), took[len(took)*99/100].Microseconds(), took[len(took)-1].Microseconds(),
		resident()/mib, mem.HeapInuse/mib, st.LogBytes/mib, st.UncompressedBytes/mib, (st.DiskBytes-st.LogBytes)/mib,
		(free-min(free, st.FreeBytes))/mib, st.Rewritten)
}

// askAgain makes the calls of the sample once more and returns how many of them were sent.
func (s *steady) askAgain() (uint64, error) {
	before := s.sent.Load()
	for _, req := range s.sample {
		res, err := s.rt.Call(context.Background(), req)
		if err == nil {
			err = res.Err()
		}
		if err == nil && !res.Replayed {
			err = errors.New("an answer does not say that it is the recorded one")
		}
		if err != nil {
			return s.sent.Load() - before, err
		}
	}
	return s.sent.Load() - before, nil
}

// Package measure times operations of several subjects, interleaved, and says what each
// costs: time, syncs, bytes, allocations, CPU.
//
// A machine that also does other work is fast in one minute and slow in the next. So nothing
// is compared across runs. Each round measures every subject for a slice of time, and a
// ratio is computed within a round; the result is the median of these ratios.
package measure

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// LimitCase is the case that ratios of writes are taken to.
const LimitCase = "limit"

// ErrDrained ends a slice early: the subject has nothing left to work on.
var ErrDrained = errors.New("nothing left to work on")

// Subject is one case at one number of writers and one size.
type Subject struct {
	Case    string
	Writers int
	Bytes   int
	// Op makes one operation as writer w, and returns how long it took. What it does
	// outside that time is part of the throughput, of CPU and of allocations.
	Op func(w int) (time.Duration, error)
	// Each is how many operations one Op counts as; 0 means 1.
	Each int
	// Syncs counts syncs of the log; nil where nobody counts.
	Syncs func() uint64
	// Before readies the subject for a slice, untimed; nil is nothing.
	Before func() error
	// Against is the case of the same run that the ratios are taken to; "" is [LimitCase].
	Against string
	// Note tells the subject from others of the same case; tables show it.
	Note string

	rounds []round
}

// round is what one slice of a subject measured.
type round struct {
	latencies []time.Duration // sorted
	ops       int
	wall      time.Duration
	usage     usage
	syncs     uint64
}

// Line is one row of the outcome, and one line of JSON. Times are in microseconds, and
// what is not measured is 0.
type Line struct {
	Case            string  `json:"case"`
	Writers         int     `json:"writers"`
	Bytes           int     `json:"bytes"`
	P50             float64 `json:"p50_us"`
	P99             float64 `json:"p99_us"`
	P999            float64 `json:"p999_us"`
	PerSec          float64 `json:"per_sec"`
	Syncs           float64 `json:"fsyncs_per_op"`
	BytesWritten    float64 `json:"bytes_written_per_op"`
	Allocs          float64 `json:"allocs_per_op"`
	CPU             float64 `json:"cpu_us_per_op"`
	P50Ratio        float64 `json:"p50_ratio"`
	ThroughputRatio float64 `json:"throughput_ratio"`

	Note string `json:"-"`
}

// Run measures the subjects, each for a slice in each round, and returns a line for each
// in their order.
func Run(subjects []*Subject, rounds int, slice time.Duration, progress io.Writer) ([]Line, error) {
	for n := range rounds {
		for i := range subjects {
			s := subjects[i]
			if err := s.slice(slice); err != nil {
				return nil, fmt.Errorf("%s, %d writers, %d bytes: %w", s.Case, s.Writers, s.Bytes, err)
			}
		}
		fmt.Fprintf(progress, "round %d of %d\n", n+1, rounds)
	}
	var lines []Line
	for _, s := range subjects {
		lines = append(lines, s.line(LimitOf(subjects, s)))
	}
	return lines, nil
}

// LimitOf returns the limit that s is compared with: the limit with the same writers and
// size or, if the run has none, the nearest below, or else the first.
func LimitOf(subjects []*Subject, s *Subject) *Subject {
	var best *Subject
	against := cmp.Or(s.Against, LimitCase)
	for _, l := range subjects {
		if l.Case != against || l.Writers > s.Writers || l.Bytes > s.Bytes {
			continue
		}
		if best == nil || l.Writers > best.Writers || l.Writers == best.Writers && l.Bytes > best.Bytes {
			best = l
		}
	}
	if best != nil {
		return best
	}
	for _, l := range subjects {
		if l.Case == against {
			return l
		}
	}
	return nil
}

// slice measures s for d.
func (s *Subject) slice(d time.Duration) error {
	if s.Before != nil {
		if err := s.Before(); err != nil {
			return err
		}
	}
	settle()
	latencies := make([][]time.Duration, s.Writers)
	errs := make([]error, s.Writers)
	var stop atomic.Bool
	var wg sync.WaitGroup
	before, syncs := used(), s.syncs()
	start := time.Now()
	for w := range s.Writers {
		wg.Go(func() {
			for !stop.Load() {
				took, err := s.Op(w)
				if err != nil {
					errs[w] = err
					stop.Store(true)
					return
				}
				latencies[w] = append(latencies[w], took)
				if time.Since(start) >= d {
					stop.Store(true)
				}
			}
		})
	}
	wg.Wait()
	r := round{wall: time.Since(start), usage: used().minus(before), syncs: s.syncs() - syncs}
	for _, err := range errs {
		if err != nil && !errors.Is(err, ErrDrained) {
			return err
		}
	}
	r.latencies = slices.Concat(latencies...)
	if len(r.latencies) == 0 {
		return errors.New("not one operation ended")
	}
	slices.Sort(r.latencies)
	r.ops = len(r.latencies) * max(s.Each, 1)
	s.rounds = append(s.rounds, r)
	return nil
}

func (s *Subject) syncs() uint64 {
	if s.Syncs == nil {
		return 0
	}
	return s.Syncs()
}

// settle waits until the process is nearly idle, for 300 ms at most. So compactions that the
// subject before has left are not counted as this subject's cost.
func settle() {
	runtime.GC()
	const look = 10 * time.Millisecond
	for range 30 {
		before := used().cpu
		time.Sleep(look)
		if used().cpu-before < look/5 {
			return
		}
	}
}

// line sums up the rounds. Percentiles are over the latencies of all rounds together; other
// figures are medians over the rounds.
func (s *Subject) line(limit *Subject) Line {
	var all []time.Duration
	for _, r := range s.rounds {
		all = append(all, r.latencies...)
	}
	slices.Sort(all)
	per := func(f func(round) float64) float64 {
		var of []float64
		for _, r := range s.rounds {
			of = append(of, f(r)/float64(r.ops))
		}
		return median(of)
	}
	l := Line{
		Case: s.Case, Writers: s.Writers, Bytes: s.Bytes, Note: s.Note,
		P50: micros(at(all, 0.5)), P99: micros(at(all, 0.99)), P999: micros(at(all, 0.999)),
		Syncs:        per(func(r round) float64 { return float64(r.syncs) }),
		BytesWritten: per(func(r round) float64 { return float64(r.usage.written) }),
		Allocs:       per(func(r round) float64 { return float64(r.usage.allocs) }),
		CPU:          per(func(r round) float64 { return micros(r.usage.cpu) }),
	}
	var perSec, p50Ratio, rateRatio []float64
	for i, r := range s.rounds {
		perSec = append(perSec, r.perSec())
		if limit != nil {
			p50Ratio = append(p50Ratio, r.p50()/limit.rounds[i].p50())
			rateRatio = append(rateRatio, r.perSec()/limit.rounds[i].perSec())
		}
	}
	l.PerSec, l.P50Ratio, l.ThroughputRatio = median(perSec), median(p50Ratio), median(rateRatio)
	return l
}

func (r round) perSec() float64 { return float64(r.ops) / r.wall.Seconds() }
func (r round) p50() float64    { return micros(at(r.latencies, 0.5)) }

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

// at returns the quantile q of sorted durations.
func at(sorted []time.Duration, q float64) time.Duration {
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

func median(of []float64) float64 {
	if len(of) == 0 {
		return 0
	}
	of = slices.Sorted(slices.Values(of))
	n := len(of) / 2
	if len(of)%2 == 0 {
		return (of[n-1] + of[n]) / 2
	}
	return of[n]
}

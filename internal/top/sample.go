// Package top makes the frames of `tgad top`. A frame shows the present state of a daemon, from two scrapes of its
// metrics.
//
// # Invariants
//
//	reset     a restarted daemon counts from 0, and no rate is negative         [Sample.grown]     TestRatesSurviveARestart
//	quantile  a quantile lies in the bucket that has it                         [Sample.quantile]  TestQuantilesAreThoseOfTheBuckets
//	fits      no line is wider, no frame higher than the terminal               [Frame]            TestFrameFitsTheTerminal
//	harmless  no text of a call or of a file moves the cursor                   [Frame]            TestFrameIsHarmless
package top

import (
	"math"
	"time"

	"github.com/tgad/tgad/internal/promtext"
)

// Sample is one scrape of a daemon's metrics.
type Sample struct {
	at time.Time
	of promtext.Metrics
}

// Parse reads a scrape.
func Parse(at time.Time, text []byte) (*Sample, error) {
	m, err := promtext.Parse(text)
	return &Sample{at, m}, err
}

// sum returns the value of a metric, summed over all its labels; for a histogram the number of observed
// values. It returns NaN if there is no such metric.
func (s *Sample) sum(name string) float64 {
	if v, err := s.of.Value(name); err == nil {
		return v
	}
	if all := s.of.Buckets(name); len(all) > 0 {
		return all[len(all)-1].Count
	}
	return math.NaN()
}

// InDoubt reports whether there are calls in doubt, as far as the daemon could tell.
func (s *Sample) InDoubt() bool { return s.sum("tgad_in_doubt") > 0 }

// rate returns how much a counter grew per second since an earlier sample.
func (s *Sample) rate(before *Sample, name string) float64 {
	return s.grown(before, name) / max(s.at.Sub(before.at).Seconds(), 1e-3)
}

// grown returns how much a counter grew. A counter that is smaller now was reset by a restart.
func (s *Sample) grown(before *Sample, name string) float64 {
	now, was := s.sum(name), before.sum(name)
	if math.IsNaN(was) || now < was {
		return now
	}
	return now - was
}

// buckets returns the buckets of a histogram, only of the values observed since an earlier sample.
func (s *Sample) buckets(before *Sample, name string) []promtext.Bucket {
	all := s.of.Buckets(name)
	if s.sum(name) < before.sum(name) { // the daemon was restarted
		return all
	}
	was := map[float64]float64{}
	for _, b := range before.of.Buckets(name) {
		was[b.Most] = b.Count
	}
	for i := range all {
		all[i].Count -= was[all[i].Most]
	}
	return all
}

// quantile estimates the q-quantile of the values that a histogram observed since an earlier sample. It
// assumes that values are spread evenly within a bucket. NaN means that no value was observed.
func (s *Sample) quantile(before *Sample, name string, q float64) float64 {
	all := s.buckets(before, name)
	if len(all) == 0 || all[len(all)-1].Count <= 0 {
		return math.NaN()
	}
	rank, low := q*all[len(all)-1].Count, promtext.Bucket{}
	for _, b := range all {
		if b.Count >= rank && b.Count > low.Count {
			if math.IsInf(b.Most, 1) {
				return low.Most // the true value is larger, by an unknown amount
			}
			return low.Most + (b.Most-low.Most)*(rank-low.Count)/(b.Count-low.Count)
		}
		low = b
	}
	return math.NaN()
}

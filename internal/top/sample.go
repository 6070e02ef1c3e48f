// Package top makes the frames of `tgad top`: what a daemon's metrics say of now, from two scrapes of them.
//
// # Invariants
//
//	reset     a daemon that began anew counts from 0, and no rate is negative   [Sample.grown]     TestRatesSurviveARestart
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

// sum is the value of a name, of all its labels together, and of a histogram how many values it has
// seen; NaN where there is none.
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

// rate is how much a counter grew in a second since an earlier sample.
func (s *Sample) rate(before *Sample, name string) float64 {
	return s.grown(before, name) / max(s.at.Sub(before.at).Seconds(), 1e-3)
}

// grown is how much a counter grew. One that is smaller now began anew.
func (s *Sample) grown(before *Sample, name string) float64 {
	now, was := s.sum(name), before.sum(name)
	if math.IsNaN(was) || now < was {
		return now
	}
	return now - was
}

// buckets are those of a histogram, of what was seen since an earlier sample.
func (s *Sample) buckets(before *Sample, name string) []promtext.Bucket {
	all := s.of.Buckets(name)
	if s.sum(name) < before.sum(name) { // it began anew
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

// quantile is the value under which a share q of those lie that a histogram has seen since an earlier
// sample, as far as its buckets tell: within one, values are taken to lie evenly. NaN: it has seen none.
func (s *Sample) quantile(before *Sample, name string, q float64) float64 {
	all := s.buckets(before, name)
	if len(all) == 0 || all[len(all)-1].Count <= 0 {
		return math.NaN()
	}
	rank, low := q*all[len(all)-1].Count, promtext.Bucket{}
	for _, b := range all {
		if b.Count >= rank && b.Count > low.Count {
			if math.IsInf(b.Most, 1) {
				return low.Most // it is more, and nobody knows how much
			}
			return low.Most + (b.Most-low.Most)*(rank-low.Count)/(b.Count-low.Count)
		}
		low = b
	}
	return math.NaN()
}

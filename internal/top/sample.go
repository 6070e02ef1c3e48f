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
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Sample is one scrape of a daemon's metrics.
type Sample struct {
	at     time.Time
	values map[string]float64  // by name and labels, as the scrape has them
	labels map[string][]string // series of a name, in the order of the scrape
}

// Parse reads the text form of Prometheus. What it does not understand it passes over: a frame has a dash
// in its place.
func Parse(at time.Time, text []byte) *Sample {
	s := &Sample{at, map[string]float64{}, map[string][]string{}}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		name, rest, labelled := strings.Cut(line, "{")
		labels := ""
		if labelled {
			i := closing(rest)
			if i < 0 {
				continue
			}
			labels, rest = rest[:i], rest[i+1:]
		} else {
			name, rest, _ = strings.Cut(line, " ")
		}
		fields := strings.Fields(rest)
		if len(fields) == 0 {
			continue
		}
		v, err := strconv.ParseFloat(fields[0], 64)
		if err != nil {
			continue
		}
		s.values[name+"{"+labels] = v
		s.labels[name] = append(s.labels[name], labels)
	}
	return s
}

// closing is where the brace stands that ends labels, -1 where none does: one in quotes does not.
func closing(s string) int {
	quoted := false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case c == '}' && !quoted:
			return i
		}
	}
	return -1
}

// label is the value of a label.
func label(labels, name string) string {
	for rest := labels; rest != ""; {
		key, after, ok := strings.Cut(rest, `="`)
		if !ok {
			return ""
		}
		end := 0
		for end < len(after) && after[end] != '"' {
			if after[end] == '\\' {
				end++
			}
			end++
		}
		value := after[:min(end, len(after))]
		if key == name {
			return strings.NewReplacer(`\\`, `\`, `\"`, `"`, `\n`, "\n").Replace(value)
		}
		rest = strings.TrimPrefix(after[min(end+1, len(after)):], ",")
	}
	return ""
}

// sum is the value of a name, of all its labels together; NaN where there is none.
func (s *Sample) sum(name string) float64 {
	if s == nil || len(s.labels[name]) == 0 {
		return math.NaN()
	}
	sum := 0.0
	for _, labels := range s.labels[name] {
		sum += s.values[name+"{"+labels]
	}
	return sum
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

// bucket is how many values were at most so large.
type bucket struct{ most, count float64 }

// buckets are those of a histogram, of all its labels together, of what was seen since an earlier sample.
func (s *Sample) buckets(before *Sample, name string) []bucket {
	anew := s.sum(name+"_count") < before.sum(name+"_count")
	counts := map[float64]float64{}
	for _, labels := range s.labels[name+"_bucket"] {
		most, err := strconv.ParseFloat(label(labels, "le"), 64)
		if err != nil {
			continue
		}
		series := name + "_bucket{" + labels
		if counts[most] += s.values[series]; !anew {
			counts[most] -= before.values[series]
		}
	}
	all := make([]bucket, 0, len(counts))
	for _, most := range slices.Sorted(maps.Keys(counts)) {
		all = append(all, bucket{most, counts[most]})
	}
	return all
}

// quantile is the value under which a share q of those lie that a histogram has seen since an earlier
// sample, as far as its buckets tell: within one, values are taken to lie evenly. NaN: it has seen none.
func (s *Sample) quantile(before *Sample, name string, q float64) float64 {
	all := s.buckets(before, name)
	if len(all) == 0 || all[len(all)-1].count <= 0 {
		return math.NaN()
	}
	rank, low := q*all[len(all)-1].count, bucket{}
	for _, b := range all {
		if b.count >= rank && b.count > low.count {
			if math.IsInf(b.most, 1) {
				return low.most // it is more, and nobody knows how much
			}
			return low.most + (b.most-low.most)*(rank-low.count)/(b.count-low.count)
		}
		low = b
	}
	return math.NaN()
}

// Package promtext takes numbers out of what a daemon says to Prometheus, in its text form.
package promtext

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Text is an answer of /metrics.
type Text []byte

// Value returns the number of a metric without labels.
func (t Text) Value(name string) (float64, error) {
	for line := range strings.Lines(string(t)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	return 0, fmt.Errorf("the daemon has no metric %s", name)
}

// Within returns the bound of the bucket of a histogram without labels under which the share q of what it
// observed lies, +Inf where that is above the last one, and how many it observed. Nothing observed is 0, 0.
func (t Text) Within(name string, q float64) (bound float64, count float64, err error) {
	type bucket struct{ most, count float64 }
	var all []bucket
	for line := range strings.Lines(string(t)) {
		rest, ok := strings.CutPrefix(line, name+`_bucket{le="`)
		if !ok {
			continue
		}
		most, n, ok := strings.Cut(strings.TrimSpace(rest), `"} `)
		b := bucket{}
		if b.most, err = strconv.ParseFloat(most, 64); err == nil {
			b.count, err = strconv.ParseFloat(n, 64)
		}
		if !ok || err != nil {
			return 0, 0, fmt.Errorf("the daemon's metric %s: %q is no bucket", name, strings.TrimSpace(line))
		}
		all = append(all, b)
	}
	if len(all) == 0 {
		return 0, 0, fmt.Errorf("the daemon has no histogram %s", name)
	}
	if count = all[len(all)-1].count; count == 0 {
		return 0, 0, nil
	}
	i := slices.IndexFunc(all, func(b bucket) bool { return b.count >= q*count })
	if i < 0 {
		return math.Inf(1), count, nil
	}
	return all[i].most, count, nil
}

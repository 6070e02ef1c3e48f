// Package promtext takes numbers out of what a daemon says to Prometheus, in its text form.
package promtext

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Metrics is an answer of /metrics.
type Metrics struct {
	families map[string]*dto.MetricFamily
}

// Parse reads an answer of /metrics.
func Parse(raw []byte) (m Metrics, err error) {
	p := expfmt.NewTextParser(model.LegacyValidation)
	if m.families, err = p.TextToMetricFamilies(bytes.NewReader(raw)); err != nil {
		return Metrics{}, fmt.Errorf("the daemon's metrics cannot be read: %w", err)
	}
	return m, nil
}

// Value returns the number of a counter or a gauge, of all its series together.
func (m Metrics) Value(name string) (sum float64, err error) {
	series := m.families[name].GetMetric()
	if len(series) == 0 || series[0].Histogram != nil {
		return 0, fmt.Errorf("the daemon has no metric %s", name)
	}
	for _, s := range series {
		sum += number(s)
	}
	return sum, nil
}

// number is that of a series which is no histogram.
func number(s *dto.Metric) float64 {
	return cmp.Or(s.GetCounter().GetValue(), s.GetGauge().GetValue(), s.GetUntyped().GetValue())
}

// By returns the numbers of a metric's series by the value of a label.
func (m Metrics) By(name, label string) map[string]float64 {
	all := map[string]float64{}
	for _, s := range m.families[name].GetMetric() {
		for _, l := range s.Label {
			if l.GetName() == label {
				all[l.GetValue()] += number(s)
			}
		}
	}
	return all
}

// Bucket is how many values a histogram has seen that were at most so large.
type Bucket struct{ Most, Count float64 }

// Buckets returns those of a histogram, of all its series together, the largest last. It has none where
// there is no such histogram.
func (m Metrics) Buckets(name string) []Bucket {
	counts := map[float64]float64{}
	for _, s := range m.families[name].GetMetric() {
		for _, b := range s.GetHistogram().GetBucket() {
			counts[b.GetUpperBound()] += float64(b.GetCumulativeCount())
		}
	}
	all := make([]Bucket, 0, len(counts))
	for _, most := range slices.Sorted(maps.Keys(counts)) {
		all = append(all, Bucket{most, counts[most]})
	}
	return all
}

// Within returns the bound of the bucket of a histogram under which the share q of what it observed
// lies, +Inf where that is above the last one, and how many it observed. Nothing observed is 0, 0.
func (m Metrics) Within(name string, q float64) (bound float64, count float64, err error) {
	all := m.Buckets(name)
	if len(all) == 0 {
		return 0, 0, fmt.Errorf("the daemon has no histogram %s", name)
	}
	if count = all[len(all)-1].Count; count == 0 {
		return 0, 0, nil
	}
	i := slices.IndexFunc(all, func(b Bucket) bool { return b.Count >= q*count })
	if i < 0 {
		return math.Inf(1), count, nil
	}
	return all[i].Most, count, nil
}

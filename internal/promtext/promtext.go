// Package promtext reads numbers from a daemon's metrics in the Prometheus text format.
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

// Value returns the value of a counter or a gauge: the sum of all its series.
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

// number returns the value of a series of a counter, a gauge or an untyped metric.
func number(s *dto.Metric) float64 {
	return cmp.Or(s.GetCounter().GetValue(), s.GetGauge().GetValue(), s.GetUntyped().GetValue())
}

// By returns the values of a metric, summed by the value of a label.
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

// Bucket is how many values (Count) of a histogram were at most Most.
type Bucket struct{ Most, Count float64 }

// Buckets returns the buckets of a histogram, summed over all its series, the largest bound last. The
// list is empty if there is no such histogram.
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

// Within returns the bound of the first bucket that holds at least the share q of the observed values,
// or +Inf if that is above the last bucket, and the number of observed values. If nothing was observed,
// it returns 0, 0.
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

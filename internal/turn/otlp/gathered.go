package otlp

import (
	"encoding/hex"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// gathered are metrics of Prometheus for the bridge of OpenTelemetry. What could not be gathered is told, and the
// rest is sent.
type gathered struct {
	prometheus.Gatherer
	tell func(error) error
}

// Gather implements prometheus.Gatherer. A native histogram that has buckets as well goes with these: the bridge sends
// exemplars of no other.
func (g gathered) Gather() ([]*dto.MetricFamily, error) {
	all, err := g.Gatherer.Gather()
	for _, f := range all {
		for _, m := range f.GetMetric() {
			if h := m.GetHistogram(); len(h.GetBucket()) > 0 {
				h.ZeroThreshold, h.ZeroCount, h.PositiveSpan, h.NegativeSpan = nil, nil, nil, nil
			}
		}
	}
	if err != nil {
		err = g.tell(err)
	}
	return all, err
}

// inBytes makes the ids of exemplars what OTLP has them as. The bridge leaves them in the letters of a label.
func inBytes(rm *metricdata.ResourceMetrics) {
	for _, scope := range rm.ScopeMetrics {
		for _, m := range scope.Metrics {
			h, ok := m.Data.(metricdata.Histogram[float64])
			if !ok {
				continue
			}
			for i := range h.DataPoints {
				for j := range h.DataPoints[i].Exemplars {
					e := &h.DataPoints[i].Exemplars[j]
					e.TraceID, e.SpanID = raw(e.TraceID, 16), raw(e.SpanID, 8)
				}
			}
		}
	}
}

// raw is an id of size bytes, which may stand in hexadecimal.
func raw(id []byte, size int) []byte {
	if b, err := hex.DecodeString(string(id)); err == nil && len(b) == size {
		return b
	}
	return id
}

package otlp

import (
	"encoding/hex"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// gathered passes metrics of Prometheus to the bridge of OpenTelemetry. An error of gathering is
// reported, and the metrics that were gathered are sent.
type gathered struct {
	prometheus.Gatherer
	tell func(error) error
}

// Gather implements prometheus.Gatherer. A native histogram that also has classic buckets is sent
// with these, because the bridge sends exemplars for no other form.
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

// inBytes converts the ids of exemplars to bytes, as OTLP has them. The bridge leaves them as the
// text of a label.
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

// raw returns an id of size bytes, which may be given in hexadecimal.
func raw(id []byte, size int) []byte {
	if b, err := hex.DecodeString(string(id)); err == nil && len(b) == size {
		return b
	}
	return id
}

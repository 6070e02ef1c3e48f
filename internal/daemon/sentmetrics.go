package daemon

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// sentMetrics are the metrics that are sent to a collector. There are none before the daemon is built. At its end
// [sentMetrics.last] takes a copy: the last ones are sent after everything that they are read from is closed.
type sentMetrics struct {
	wanted bool // the environment names a collector
	of     atomic.Pointer[prometheus.Gatherer]
}

func (s *sentMetrics) begin() prometheus.Gatherer {
	s.wanted = true
	return s
}

func (s *sentMetrics) from(g prometheus.Gatherer) { s.of.Store(&g) }

// Gather implements prometheus.Gatherer.
func (s *sentMetrics) Gather() ([]*dto.MetricFamily, error) {
	of := s.of.Load()
	if of == nil {
		return nil, nil
	}
	return (*of).Gather()
}

func (s *sentMetrics) last() {
	if !s.wanted {
		return
	}
	all, err := s.Gather()
	s.from(prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) { return all, err }))
}

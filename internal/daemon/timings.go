package daemon

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tgad/tgad/internal/assemble"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/wal/chain"
)

// timings are histograms of what a call waits for. Each is a native histogram for a scraper that
// understands those, and has buckets for the others.
type timings struct {
	sync    prometheus.Histogram
	appends prometheus.Histogram
	sends   *prometheus.HistogramVec
	doubt   prometheus.Histogram
}

// durations makes the options of such a histogram; the buckets grow fourfold.
func durations(name, help string, from float64, buckets int) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{
		Name: "tgad_" + name, Help: help, Buckets: prometheus.ExponentialBuckets(from, 4, buckets),
		// Neighbours differ by a tenth; where that makes too many, Prometheus makes them coarser.
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160, NativeHistogramMinResetDuration: time.Hour,
	}
}

func newTimings() *timings {
	return &timings{
		sync:    prometheus.NewHistogram(durations("log_sync_seconds", "Time that one group of appends takes to be written to the log and synced.", 0.00001, 10)),
		appends: prometheus.NewHistogram(durations("append_seconds", "Time that an append of a call takes until it is durable.", 0.00001, 10)),
		sends:   prometheus.NewHistogramVec(durations("send_seconds", "Time from a send to a tool server's answer, or to its end without one.", 0.0001, 10), []string{"server"}),
		doubt:   prometheus.NewHistogram(durations("doubt_seconds", "Time that a call was in doubt, of those whose doubt is over.", 0.01, 14)),
	}
}

func (m *timings) all() []prometheus.Collector {
	return []prometheus.Collector{m.sync, m.appends, m.sends, m.doubt}
}

// synced is [engine.Options].Synced.
func (m *timings) synced(took time.Duration) { m.sync.Observe(took.Seconds()) }

// see counts a time; where the call under ctx is traced, with an exemplar that leads to its trace.
func see(o prometheus.Observer, ctx context.Context, took time.Duration) {
	traceID, _ := spanIDs(runtime.SpanContextOf(ctx).Traceparent)
	if with, ok := o.(prometheus.ExemplarObserver); ok && traceID != "" {
		with.ObserveWithExemplar(took.Seconds(), prometheus.Labels{"trace_id": traceID})
		return
	}
	o.Observe(took.Seconds())
}

// timedStore is the store as the runtime has it, with its appends timed.
type timedStore struct {
	runtime.Store
	m *timings
}

func (s timedStore) Append(ctx context.Context, lease chain.Lease, b chain.Batch) (chain.Appended, error) {
	began := time.Now()
	done, err := s.Store.Append(ctx, lease, b)
	if err == nil {
		see(s.m.appends, ctx, time.Since(began))
	}
	return done, err
}

// timedTools are the tool servers as the runtime has them, with their sends timed. A server of the
// configuration has times of its own: a caller can't make more.
type timedTools struct {
	*assemble.Live
	m *timings
}

func (t timedTools) Dispatch(ctx context.Context, call runtime.Call) (runtime.Reply, error) {
	began := time.Now()
	reply, err := t.Live.Dispatch(ctx, call)
	if server := call.Server; t.Config().HasServer(server) {
		see(t.m.sends.WithLabelValues(server), ctx, time.Since(began))
	}
	return reply, err
}

func (d *Daemon) timedTools() timedTools { return timedTools{d.tools, d.timings} }

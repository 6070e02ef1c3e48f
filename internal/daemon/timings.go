package daemon

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tgad/tgad/internal/assemble"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/wal/chain"
)

// timings are histograms of the times that a call waits. Each is a native histogram, for scrapers
// that understand those, and has classic buckets for the others.
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
		// The bounds of a bucket differ by a tenth. If that makes too many buckets, Prometheus merges them.
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

// see observes a duration. If the call of ctx has a recorded span, the exemplar names its OpenTelemetry trace.
func see(o prometheus.Observer, ctx context.Context, took time.Duration) {
	traceID, _ := spanIDs(runtime.SpanContextOf(ctx).Traceparent)
	if with, ok := o.(prometheus.ExemplarObserver); ok && traceID != "" {
		with.ObserveWithExemplar(took.Seconds(), prometheus.Labels{"trace_id": traceID})
		return
	}
	o.Observe(took.Seconds())
}

// timedStore is the store that the runtime gets. It measures the time of each append.
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

// timedTools are the tool servers that the runtime gets. They measure the time of each send, per server of
// the configuration. Other server names are not measured: a caller could invent any number of them.
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

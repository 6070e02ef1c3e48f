package daemon

import (
	"errors"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/runtime"
)

// metrics are the daemon's metrics, in a registry of its own. No label holds an id, a key or a
// namespace: the number of time series must not grow with the calls.
type metrics struct {
	registry *prometheus.Registry
	own      []prometheus.Collector // the collectors of the registry without those of Go and the process
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
}

func newMetrics(d *Daemon) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tgad_http_requests_total", Help: "Requests answered, by route and status (499: the client went away).",
		}, []string{"method", "route", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tgad_http_request_seconds", Help: "Time from a request's header to its answer.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 4, 10), // 100 µs to 26 s
		}, []string{"method", "route"}),
	}
	m.own = append(d.timings.all(), m.requests, m.seconds, d.events.counter, &statsCollector{d}, &labelledCollector{d})
	m.registry.MustRegister(m.own...)
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func (m *metrics) observe(rt *route, status int, took time.Duration) {
	m.requests.WithLabelValues(rt.method, rt.path, strconv.Itoa(status)).Inc()
	m.seconds.WithLabelValues(rt.method, rt.path).Observe(took.Seconds())
}

// statsCollector reads the engine's and the runtime's counters when it is asked.
type statsCollector struct{ d *Daemon }

func desc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("tgad_"+name, help, nil, nil)
}

// stat is one metric of statsCollector.
type stat struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	of    func(*reading) float64
	files bool // the metric is about the store's files; a store in a database does not have it
}

// ofFiles marks a metric that a store in a database does not have.
func ofFiles(s stat) stat {
	s.files = true
	return s
}

func counter(name, help string, of func(*reading) uint64) stat {
	return stat{desc(name, help), prometheus.CounterValue, func(r *reading) float64 { return float64(of(r)) }, false}
}

func gauge(name, help string, of func(*reading) float64) stat {
	return stat{desc(name, help), prometheus.GaugeValue, of, false}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

var stats = []stat{
	counter("appends_total", "Appends that committed.", func(r *reading) uint64 { return r.store.Appends }),
	counter("appends_replayed_total", "Appends that the log already had.", func(r *reading) uint64 { return r.store.Replayed }),
	counter("entries_total", "Entries appended.", func(r *reading) uint64 { return r.store.Entries }),
	counter("notes_total", "Notes appended.", func(r *reading) uint64 { return r.store.Notes }),
	counter("commits_total", "Synced batches.", func(r *reading) uint64 { return r.store.Commits }),
	ofFiles(counter("log_syncs_total", "Syncs of log files.", func(r *reading) uint64 { return r.store.LogSyncs })),
	ofFiles(counter("store_flushes_total", "Memtables of the index flushed.", func(r *reading) uint64 { return r.store.Flushes })),
	ofFiles(counter("store_compactions_total", "Compactions.", func(r *reading) uint64 { return r.store.Compactions })),
	ofFiles(counter("store_background_errors_total", "Background errors of the store.", func(r *reading) uint64 { return r.store.BackgroundErrors })),
	ofFiles(counter("store_corruptions_total", "Corruptions found by reads.", func(r *reading) uint64 { return r.store.Corruptions })),
	ofFiles(counter("store_slow_writes_total", "Writes that the disk took long for.", func(r *reading) uint64 { return r.store.SlowWrites })),
	ofFiles(counter("checkpoints_bad_total", "Checkpoints that were skipped.", func(r *reading) uint64 { return r.store.BadCheckpoints })),
	gauge("log_cursor", "Newest index of the durable order.", func(r *reading) float64 { return float64(r.store.Cursor) }),
	ofFiles(gauge("cached_traces", "Calls of which the log's part is kept in memory.", func(r *reading) float64 { return float64(r.store.CachedTraces) })),
	ofFiles(gauge("cached_bytes", "Bytes of those.", func(r *reading) float64 { return float64(r.store.CachedBytes) })),
	ofFiles(gauge("index_cached_bytes", "Bytes of the index that are kept in memory.", func(r *reading) float64 { return float64(r.store.IndexCached) })),
	ofFiles(counter("index_hits_total", "Blocks of the index that were read from memory.", func(r *reading) uint64 { return uint64(r.store.IndexHits) })),
	ofFiles(counter("index_misses_total", "Blocks of the index that were read from disk.", func(r *reading) uint64 { return uint64(r.store.IndexMisses) })),
	gauge("leases", "Leases held.", func(r *reading) float64 { return float64(r.store.Leases) }),
	gauge("leases_over_socket", "Leases held by peers.", func(r *reading) float64 { return float64(r.d.leases.count()) }),
	ofFiles(gauge("disk_bytes", "Bytes of tables and logs.", func(r *reading) float64 { return float64(r.store.DiskBytes) })),
	ofFiles(gauge("log_bytes", "Bytes of the log, what is prepared ahead and bodies in files included.", func(r *reading) float64 { return float64(r.store.LogBytes) })),
	ofFiles(gauge("log_uncompressed_segments", "Full segments of the log that are not compressed yet.", func(r *reading) float64 { return float64(r.store.UncompressedSegments) })),
	ofFiles(gauge("log_uncompressed_bytes", "Bytes of those.", func(r *reading) float64 { return float64(r.store.UncompressedBytes) })),
	ofFiles(counter("log_rewritten_segments_total", "Segments of the log that were made smaller.", func(r *reading) uint64 { return r.store.Rewritten })),
	ofFiles(counter("log_rewritten_from_bytes_total", "Bytes of those before.", func(r *reading) uint64 { return r.store.RewrittenFrom })),
	ofFiles(counter("log_rewritten_to_bytes_total", "Bytes of those after, which were written for it.", func(r *reading) uint64 { return r.store.RewrittenTo })),
	ofFiles(gauge("disk_free_bytes", "Free bytes of the file system, NaN where it does not say.", func(r *reading) float64 { return r.free() })),
	ofFiles(gauge("disk_low_water_bytes", "Free bytes under which no trace is begun.", func(r *reading) float64 { return float64(r.store.LowWater) })),
	gauge("store_frozen", "1 while nothing may be appended.", func(r *reading) float64 { return truth(r.store.Frozen != "") }),
	ofFiles(gauge("store_quarantined", "1 while acknowledged appends may be missing.", func(r *reading) float64 { return truth(r.store.Quarantine != nil) })),
	ofFiles(gauge("keyring_missing_keys", "Keys that the store has used and its key ring, an older copy, does not have.", func(r *reading) float64 { return float64(r.store.MissingKeys) })),
	ofFiles(gauge("signed_appends", "Appends that the newest signed checkpoint covers, NaN where none is signed.", (*reading).signed)),
	ofFiles(gauge("signed_timestamp_seconds", "When the newest signed checkpoint was made, NaN where the daemon has made none.", (*reading).signedAt)),
	gauge("lists_behind", "Appends that the index of lists does not have yet, 0 where there is none.", func(r *reading) float64 {
		if r.d.lists == nil {
			return 0
		}
		return float64(r.d.lists.Behind())
	}),
	ofFiles(counter("retention_erased_total", "Traces that the retention rules erased.", func(r *reading) uint64 { return r.d.retaining.erased.Load() })),
	ofFiles(gauge("retention_run_timestamp_seconds", "When the retention rules were last carried out, 0 where they were not yet.", func(r *reading) float64 { return float64(r.d.retaining.ended.Load()) / 1000 })),
	ofFiles(gauge("retention_run_success", "1 unless that failed.", func(r *reading) float64 { return truth(!r.d.retaining.failed.Load()) })),
	ofFiles(gauge("backup_every_seconds", "How often [backup] makes its backup, 0 where none is kept.", func(r *reading) float64 { return r.d.backedUp().Every.Seconds() })),
	ofFiles(gauge("backup_age_seconds", "How long ago that backup had all that the store had; where that is not known, how long the daemon runs, and 0 where none is kept.", func(r *reading) float64 { return r.d.backedUp().Age.Seconds() })),
	ofFiles(gauge("backup_took_seconds", "How long the newest one took to make.", func(r *reading) float64 { return r.d.backedUp().Took.Seconds() })),
	ofFiles(counter("backup_made_total", "How often it was made anew, with what was new.", func(r *reading) uint64 { return r.d.backedUp().Made })),
	ofFiles(counter("backup_failures_total", "How often that failed.", func(r *reading) uint64 { return r.d.backedUp().Failures })),
	gauge("ready", "1 once every open trace is classified.", func(r *reading) float64 { return truth(r.d.ready.Load()) }),

	counter("calls_sent_total", "Dispatches to tool servers.", func(r *reading) uint64 { return r.calls.Sent }),
	counter("calls_resent_total", "Licensed re-sends marked.", func(r *reading) uint64 { return r.calls.Resent }),
	counter("calls_reserved_total", "Keys reserved.", func(r *reading) uint64 { return r.calls.Reserved }),
	counter("calls_served_total", "Calls answered from a recorded effect.", func(r *reading) uint64 { return r.calls.Served }),
	counter("calls_refused_total", "Calls refused before a send.", func(r *reading) uint64 { return r.calls.Refused }),
	counter("calls_denied_total", "Requests denied.", func(r *reading) uint64 { return r.calls.Denied }),
	counter("calls_doubts_total", "Dispatches that ended without a certain answer.", func(r *reading) uint64 { return r.calls.Doubts }),
	counter("calls_waited_total", "Waits for another trace's effect.", func(r *reading) uint64 { return r.calls.Waited }),
	counter("probes_total", "Questions to tool servers about calls in doubt.", func(r *reading) uint64 { return r.calls.Probes }),
	counter("resolved_by_probe_total", "Calls in doubt whose effect a question found.", func(r *reading) uint64 { return r.calls.ResolvedByProbe }),
	counter("settled_by_people_total", "Calls resolved or abandoned, and records confirmed or rejected, by people.", func(r *reading) uint64 { return r.calls.ByPerson }),
	counter("confirmations_total", "Records looked at before they were served.", func(r *reading) uint64 { return r.calls.Confirmed }),
	counter("confirmation_mismatches_total", "Recorded changes that did not stand.", func(r *reading) uint64 { return r.calls.Mismatches }),
	counter("approvals_expired_total", "Approvals that came too late.", func(r *reading) uint64 { return r.calls.Expired }),
	counter("retries_total", "New attempts made after a retryable failure.", func(r *reading) uint64 { return r.calls.Retried }),
	counter("clock_jumps_total", "Jumps of the wall clock against the monotonic one since the daemon began.", func(r *reading) uint64 { n, _, _ := r.d.rt.ClockJumps(); return n }),
	gauge("clock_jump_seconds", "The newest of them; positive is forward.", func(r *reading) float64 { _, _, by := r.d.rt.ClockJumps(); return by.Seconds() }),
	gauge("in_doubt", "Calls that may have run, have no recorded effect and that no process is executing, NaN where they cannot be read.", (*reading).inDoubt),
	gauge("open_traces", "Calls without an end: waiting for people, under way or in doubt, NaN where they cannot be read.", (*reading).open),
	gauge("approvals_pending", "Traces that wait for people, NaN where they cannot be read.", (*reading).pending),
	gauge("calls_in_flight", "Calls under way, waiting ones too.", func(r *reading) float64 { return float64(r.d.inFlight.count()) }),
	counter("connections_refused_total", "Connections turned away: of a peer without any verb, or one too many.", func(r *reading) uint64 { return r.d.turnedAway.Load() }),
	gauge("body_bytes", "Bytes of request bodies in memory.", func(r *reading) float64 { return float64(r.d.bodies.inUse()) }),
	gauge("config_reload_success", "1 unless the newest reload of the configuration was refused.", func(r *reading) float64 { return truth(!r.d.reloads.refused.Load()) }),
	gauge("config_reload_success_timestamp_seconds", "When the configuration that holds was read, in seconds since 1970.", func(r *reading) float64 { return float64(r.d.reloads.read.Load()) / 1000 }),
	gauge("streams", "Follow streams open.", func(r *reading) float64 { return float64(r.d.followers.count()) }),
}

// Describe implements prometheus.Collector.
func (c *statsCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, s := range stats {
		ch <- s.desc
	}
}

// Collect implements prometheus.Collector.
func (c *statsCollector) Collect(ch chan<- prometheus.Metric) {
	r := &reading{d: c.d, store: c.d.db.Stats(), calls: c.d.rt.Stats()}
	for _, s := range stats {
		if s.files && c.d.can.archive == nil {
			continue
		}
		ch <- prometheus.MustNewConstMetric(s.desc, s.kind, s.of(r))
	}
}

// reading has the values of one collection.
type reading struct {
	d     *Daemon
	store engine.Stats
	calls runtime.Stats
}

// inDoubt counts the calls in doubt. It reads every open trace, as GET /v1/in-doubt does.
func (r *reading) inDoubt() float64 {
	return r.d.doubts.get(time.Now, func() float64 {
		all, err := r.d.rt.InDoubt(r.d.reads)
		if err != nil {
			return math.NaN()
		}
		return float64(len(all))
	})
}

// open counts the rows of the open index.
func (r *reading) open() float64 {
	return r.d.open.get(time.Now, func() float64 {
		n := 0
		for _, err := range r.d.db.OpenTraces(r.d.reads) {
			if err != nil {
				return math.NaN()
			}
			n++
		}
		return float64(n)
	})
}

func (r *reading) pending() float64 {
	return r.d.pending.get(time.Now, func() float64 {
		all, err := r.d.rt.Approvals(r.d.reads)
		var unread runtime.UnreadApprovals
		if !errors.As(err, &unread) && err != nil {
			return math.NaN()
		}
		return float64(len(all) + len(unread))
	})
}

func (r *reading) signed() float64 {
	if !r.d.keeper.Signs() {
		return math.NaN()
	}
	return float64(r.d.keeper.Signed())
}

func (r *reading) signedAt() float64 {
	if r.d.keeper == nil || r.d.keeper.SignedAt().IsZero() {
		return math.NaN()
	}
	return float64(r.d.keeper.SignedAt().UnixMilli()) / 1000
}

func (r *reading) free() float64 {
	if !r.store.FreeKnown {
		return math.NaN()
	}
	return float64(r.store.FreeBytes)
}

func (q *request) showMetrics() (any, error) {
	q.status = http.StatusOK
	promhttp.HandlerFor(q.d.metrics.registry, promhttp.HandlerOpts{DisableCompression: true, EnableOpenMetrics: true}).ServeHTTP(bounded{q.w}, q.r)
	return nil, nil
}

package daemon

import (
	"cmp"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tgad/tgad/internal/audit/deliver"
	"github.com/tgad/tgad/internal/notice"
	"github.com/tgad/tgad/schemas/tga"
)

// labelled is one metric with a label. The label's values are names of the configuration, so that no caller
// can add time series.
type labelled struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	each func(d *Daemon, put func(label string, value float64))
}

func labelledRow(kind prometheus.ValueType, name, label, help string, each func(*Daemon, func(string, float64))) labelled {
	return labelled{prometheus.NewDesc("tgad_"+name, help, []string{label}, nil), kind, each}
}

// ofAudits reads a number of each delivery of audit records.
func ofAudits(of func(deliver.Stats) uint64) func(*Daemon, func(string, float64)) {
	return func(d *Daemon, put func(string, float64)) {
		for _, a := range d.audits {
			s := a.Stats()
			put(s.ID, float64(of(s)))
		}
	}
}

// ofTold reads a number of each receiver of notices.
func ofTold(of func(notice.Stats) float64) func(*Daemon, func(string, float64)) {
	return func(d *Daemon, put func(string, float64)) {
		for _, s := range d.people.service.Load().Stats() {
			put(s.ID, of(s))
		}
	}
}

var labelledStats = []labelled{
	labelledRow(prometheus.GaugeValue, "audit_lag", "audit", "Appends that an audit receiver has not taken yet.", ofAudits(func(s deliver.Stats) uint64 { return s.Lag })),
	labelledRow(prometheus.CounterValue, "audit_records_total", "audit", "Audit records that a receiver took.", ofAudits(func(s deliver.Stats) uint64 { return s.Records })),
	labelledRow(prometheus.CounterValue, "audit_failures_total", "audit", "Batches of audit records that a receiver did not take, or that could not be made.", ofAudits(func(s deliver.Stats) uint64 { return s.Failures })),
	labelledRow(prometheus.CounterValue, "notify_taken_total", "notify", "Notices of what waits for people that a receiver took.", ofTold(func(s notice.Stats) float64 { return float64(s.Taken) })),
	labelledRow(prometheus.CounterValue, "notify_failures_total", "notify", "Tries to give a receiver a notice that failed.", ofTold(func(s notice.Stats) float64 { return float64(s.Failures) })),
	labelledRow(prometheus.GaugeValue, "notify_late_seconds", "notify", "How long a receiver has not taken the notice that it is to take, 0 where there is none.", ofTold(func(s notice.Stats) float64 { return s.Late })),
	labelledRow(prometheus.GaugeValue, "backup_failed", "code", "1 while the newest try of [backup] has failed, with the code of its error; the log has the error.", func(d *Daemon, put func(string, float64)) {
		if err := d.backedUp().Err; err != nil {
			put(cmp.Or(string(tga.CodeOf(err)), "ERROR"), 1)
		}
	}),
	labelledRow(prometheus.GaugeValue, "breakers_open", "server", "Namespaces whose breaker of a tool server is open or on trial.", func(d *Daemon, put func(string, float64)) {
		for server, n := range d.tools.Breakers() {
			put(server, float64(n))
		}
	}),
}

// labelledCollector reads the labelled metrics when they are collected.
type labelledCollector struct{ d *Daemon }

// Describe implements prometheus.Collector.
func (c *labelledCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, s := range labelledStats {
		ch <- s.desc
	}
}

// Collect implements prometheus.Collector.
func (c *labelledCollector) Collect(ch chan<- prometheus.Metric) {
	for _, s := range labelledStats {
		s.each(c.d, func(label string, value float64) { ch <- prometheus.MustNewConstMetric(s.desc, s.kind, value, label) })
	}
}

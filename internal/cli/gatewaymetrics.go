//go:build unix

package cli

import (
	"errors"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tgad/tgad/internal/listen"
	"github.com/tgad/tgad/internal/mcpfront"
	"github.com/tgad/tgad/internal/mcpfront/entry"
	"github.com/tgad/tgad/internal/mcpfront/gateway"
)

// gatewayMetrics count the requests that pass a gateway. Labels are names from the configuration
// and the methods that the gateway forwards, so no client can create a new label value. The daemon
// that has the log counts what becomes of the calls.
type gatewayMetrics struct {
	registry *prometheus.Registry
	own      []prometheus.Collector
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	refused  *prometheus.CounterVec
	observed *prometheus.CounterVec
	reloaded prometheus.Gauge
	read     prometheus.Gauge
}

func newGatewayMetrics() *gatewayMetrics {
	m := &gatewayMetrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tgad_gateway_requests_total", Help: "Requests led to a tool server, by how they ended for the client: result, error or given_up.",
		}, []string{"identity", "server", "method", "end"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tgad_gateway_request_seconds", Help: "Time from a request to its answer, the log and the tool server included.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 10), // 1 ms to 4 min
		}, []string{"server", "method"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tgad_gateway_refused_total", Help: "Requests led nowhere: quota, forbidden, unknown, invalid, or identity where nobody is known.",
		}, []string{"identity", "why"}),
	}
	m.observed = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tgad_gateway_observed_total", Help: "Calls that passed in observe mode, by what would have become of them.",
	}, []string{"identity", "server", "would"})
	m.reloaded = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "tgad_gateway_config_reload_success", Help: "1 unless the newest reload of the configuration was refused.",
	})
	m.read = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "tgad_gateway_config_reload_success_timestamp_seconds", Help: "When the configuration that holds was read, in seconds since 1970.",
	})
	m.took(true)
	m.own = []prometheus.Collector{m.requests, m.seconds, m.refused, m.observed, m.reloaded, m.read}
	m.registry.MustRegister(m.own...)
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// took records whether the newest configuration took effect.
func (m *gatewayMetrics) took(ok bool) {
	if !ok {
		m.reloaded.Set(0)
		return
	}
	m.read.SetToCurrentTime() // before reloaded: whoever reads 1 there also reads the new time
	m.reloaded.Set(1)
}

// watch returns the counters for one identity; "" stands for clients without one.
func (m *gatewayMetrics) watch(identity string) gateway.Watch {
	return gateway.Watch{
		Passed: func(server, method string, end gateway.End, took time.Duration) {
			m.requests.WithLabelValues(identity, server, method, string(end)).Inc()
			m.seconds.WithLabelValues(server, method).Observe(took.Seconds())
		},
		Refused: func(why gateway.Refusal) { m.refused.WithLabelValues(identity, string(why)).Inc() },
	}
}

// saw counts the observed calls of one identity and server.
func (m *gatewayMetrics) saw(identity, server string) func(mcpfront.Would) {
	return func(w mcpfront.Would) { m.observed.WithLabelValues(identity, server, string(w)).Inc() }
}

// handler answers GET /metrics. Over TCP it answers requests to this machine alone: the page of a
// stranger, whose name leads here, could read the metrics in a browser.
func (m *gatewayMetrics) handler(unix bool) http.Handler {
	text := promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{EnableOpenMetrics: true, MaxRequestsInFlight: 4})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		if !unix && !listen.Loopback(r.Host) {
			http.Error(w, "the metrics are for this machine", http.StatusForbidden)
			return
		}
		text.ServeHTTP(w, r)
	})
	return mux
}

// listen serves the metrics on an address of this machine until it is stopped.
func (m *gatewayMetrics) listen(address string) (stop func() error, err error) {
	l, err := entry.ListenOn(address)
	if err != nil {
		return nil, err
	}
	srv := &http.Server{Handler: m.handler(l.Addr().Network() == "unix"), ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10}
	over := make(chan error, 1)
	go func() { over <- listen.HTTP(srv, l) }()
	return func() error {
		err := srv.Close()
		if served := <-over; !errors.Is(served, http.ErrServerClosed) {
			err = errors.Join(err, served) // it had ended by itself
		}
		return err
	}, nil
}

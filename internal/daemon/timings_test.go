package daemon

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/tgad/tgad/internal/agent/otlptest"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// TestWaitsAreCounted: syncs, appends, sends by server and the end of a doubt, each as often as it
// happened; a server that the configuration does not have makes no times of its own.
func TestWaitsAreCounted(t *testing.T) {
	b := start(t, "")
	if _, err := b.client.Call(t.Context(), charge("k")); err != nil {
		t.Fatal(err)
	}
	strange := charge("k")
	strange.Server = "nobody"
	_, err := b.client.Call(t.Context(), strange)
	wantCode(t, err, tga.NotFound)
	for name, want := range map[string]float64{
		"tgad_append_seconds_count": 2, `tgad_send_seconds_count{server="pay"}`: 1, `tgad_send_seconds_count{server="nobody"}`: 0, "tgad_doubt_seconds_count": 0,
	} {
		if got := b.scrape(name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if syncs := b.scrape("tgad_log_sync_seconds_count"); syncs < 2 || syncs > b.scrape("tgad_commits_total") {
		t.Errorf("%v syncs are counted, of %v commits", syncs, b.scrape("tgad_commits_total"))
	}
	b.tool.respond(func(w http.ResponseWriter, _ *http.Request, _ []byte) { w.WriteHeader(http.StatusInternalServerError) })
	opaque := charge("o")
	opaque.Tool = "charge_opaque"
	res, err := b.client.Call(t.Context(), opaque)
	wantCode(t, err, tga.EffectInDoubt)
	if _, err := b.client.Resolve(t.Context(), res.TraceID, runtime.Resolution{Reply: runtime.Reply{Status: tga.StatusSuccess, Result: []byte(`{}`)}, Evidence: []byte(`{"seen":"by ann"}`)}); err != nil {
		t.Fatal(err)
	}
	if got := b.scrape("tgad_doubt_seconds_count"); got != 1 {
		t.Errorf("%v doubts have ended, want 1", got)
	}
}

// TestTracedCallLeavesExemplars: a scraper that asks for OpenMetrics is led to the trace, and the
// scrape in plain text has no id.
func TestTracedCallLeavesExemplars(t *testing.T) {
	c := otlptest.Start(false)
	defer c.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.URL)
	b := start(t, "")
	ctx := runtime.WithSpanContext(t.Context(), runtime.SpanContext{Traceparent: callersSpan})
	if _, err := b.client.Call(ctx, charge("k")); err != nil {
		t.Fatal(err)
	}
	_, h, text := b.raw("GET", "/metrics", "", "Accept", "application/openmetrics-text")
	for _, name := range []string{"tgad_send_seconds_bucket", "tgad_append_seconds_bucket"} {
		if !strings.Contains(grep(string(text), name), `# {trace_id="`+callersSpan[3:35]+`"}`) {
			t.Errorf("%s: no exemplar in %s", h.Get("Content-Type"), grep(string(text), name))
		}
	}
	if _, _, text := b.raw("GET", "/metrics", ""); strings.Contains(string(text), callersSpan[3:35]) {
		t.Error("the plain text has the id of a trace")
	}
	// Native histograms are in protobuf alone.
	_, h, raw := b.raw("GET", "/metrics", "", "Accept", "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited")
	if !strings.Contains(h.Get("Content-Type"), "protobuf") || !strings.Contains(string(raw), "tgad_log_sync_seconds") {
		t.Errorf("got %s", h.Get("Content-Type"))
	}
}

// TestHistogramsAreNative: each of the four, beside its buckets.
func TestHistogramsAreNative(t *testing.T) {
	m := newTimings()
	m.synced(time.Millisecond)
	m.appends.Observe(0.001)
	m.sends.WithLabelValues("pay").Observe(0.001)
	m.doubt.Observe(1)
	native := 0
	for _, c := range m.all() {
		for _, h := range written(t, c) {
			if h.Schema != nil && len(h.PositiveDelta) == 1 && len(h.Bucket) > 0 {
				native++
			}
		}
	}
	if native != 4 {
		t.Errorf("%d of 4 are native histograms with buckets", native)
	}
}

// written are the histograms of a collector.
func written(t *testing.T, c prometheus.Collector) (all []*dto.Histogram) {
	t.Helper()
	ch := make(chan prometheus.Metric, 10)
	c.Collect(ch)
	close(ch)
	for m := range ch {
		var out dto.Metric
		if err := m.Write(&out); err != nil {
			t.Fatal(err)
		}
		all = append(all, out.Histogram)
	}
	return all
}

// TestLogOfATracedCallHasItsIDs: what happens to it is found from its trace, and the other way.
func TestLogOfATracedCallHasItsIDs(t *testing.T) {
	var log strings.Builder
	d := &Daemon{events: newEvents(), timings: newTimings(), log: slog.New(slog.NewTextHandler(&log, nil))}
	d.observe(runtime.Event{Kind: runtime.EventDoubt, Server: "pay", Tool: "charge", Traceparent: callersSpan})
	if got := log.String(); !strings.Contains(got, "trace_id="+callersSpan[3:35]+" span_id="+callersSpan[36:52]) {
		t.Errorf("logged %s", got)
	}
	log.Reset()
	d.observe(runtime.Event{Kind: runtime.EventSettled, Server: "pay", Tool: "charge", After: time.Minute, Traceparent: callersSpan[:54] + "0"})
	if got := log.String(); strings.Contains(got, "span_id") || !strings.Contains(got, "after=1m0s") {
		t.Errorf("logged %s", got)
	}
}

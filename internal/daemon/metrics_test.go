package daemon

import (
	"strconv"
	"strings"
	"testing"
)

// scrape reads one metric, NaN-free, 0 where it is not there yet.
func (b *bench) scrape(name string) float64 {
	raw, err := b.client.Metrics(b.t.Context())
	if err != nil {
		b.t.Error(err)
		return 0
	}
	for line := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			if err != nil {
				b.t.Error(err)
			}
			return v
		}
	}
	return 0
}

// TestMetricsHoldNoIDs: what a call is called by does not become a label.
func TestMetricsHoldNoIDs(t *testing.T) {
	b := start(t, "")
	res, err := b.client.Call(t.Context(), charge("order-secret"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.client.Trace(t.Context(), res.TraceID); err != nil {
		t.Fatal(err)
	}
	b.raw("GET", "/v1/unknown-"+res.TraceID.String(), "")
	raw, err := b.client.Metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{res.TraceID.String(), "order-secret", "default"} {
		if strings.Contains(string(raw), secret) {
			t.Errorf("the metrics hold %q", secret)
		}
	}
	for name, want := range map[string]float64{
		"tgad_appends_total": 2, "tgad_calls_sent_total": 1, "tgad_calls_in_flight": 0, "tgad_ready": 1,
		`tgad_http_requests_total{method="POST",route="/v1/tool-calls",status="200"}`: 1,
	} {
		if got := b.scrape(name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
}

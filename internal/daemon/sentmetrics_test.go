package daemon

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/agent/otlptest"
	"github.com/tgad/tgad/runtime"
)

// TestMetricsReachTheCollector: those of /metrics, with exemplars, while the daemon runs and once more when it has
// ended, where the environment names a collector.
func TestMetricsReachTheCollector(t *testing.T) {
	c := otlptest.Start(false)
	defer c.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.URL)
	t.Setenv("OTEL_METRIC_EXPORT_INTERVAL", "20")
	b := start(t, "")
	newest := func(name string) (p otlptest.Point) {
		if all := c.Points(name); len(all) > 0 {
			p = all[len(all)-1]
		}
		return p
	}
	for end := time.Now().Add(20 * time.Second); newest("tgad_ready").Value != 1; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the collector was not told that the daemon is ready: %v", c.Bad())
		}
	}
	t.Setenv("OTEL_METRIC_EXPORT_INTERVAL", "3600000")
	b.stop()
	cut := len(c.Bad()) // its end may interrupt a report that was under way
	b.start()           // and is not asked before its end
	ctx := runtime.WithSpanContext(context.Background(), runtime.SpanContext{Traceparent: callersSpan})
	if _, err := b.client.Call(ctx, charge("k")); err != nil {
		t.Fatal(err)
	}
	before := len(c.Points("tgad_calls_sent_total"))
	b.stop()
	if n := len(c.Points("tgad_calls_sent_total")) - before; n != 1 || len(c.Bad()) != cut {
		t.Fatalf("the end told the collector %d times, unreadable %v", n, c.Bad()[cut:])
	}
	sends := newest("tgad_send_seconds")
	if newest("tgad_calls_sent_total").Value != 1 || sends.Count != 1 || sends.Attr["server"] != "pay" || !slices.Contains(sends.Spans, callersSpan[3:35]) {
		t.Errorf("%v sends, timed %+v", newest("tgad_calls_sent_total").Value, sends)
	}
	if n := newest("tgad_in_doubt").Value; n != 0 { // NaN where the store is closed already
		t.Errorf("%v calls are in doubt", n)
	}
	if sends.Resource["service.name"] != "tgad" {
		t.Errorf("of %v", sends.Resource)
	}
}

package daemon

import (
	"context"
	"encoding/hex"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/tgad/tgad/internal/agent/otlptest"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

const callersSpan = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// heard is what a tool server was told of the callers' traces, a line for each call.
type heard struct {
	mu  sync.Mutex
	all []string
}

func (h *heard) listen(w *tool) {
	w.respond(func(rw http.ResponseWriter, r *http.Request, _ []byte) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.all = append(h.all, r.Header.Get("traceparent")+" "+r.Header.Get("baggage"))
		_, _ = rw.Write([]byte(`{}`))
	})
}

// TestCallIsTracedToTheCollector: by the standard environment alone. The caller's trace goes on to the
// tool server with the span of the send, and a repeat, after a restart too, links to the first call.
func TestCallIsTracedToTheCollector(t *testing.T) {
	c := otlptest.Start(false)
	defer c.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.URL)
	b := start(t, "")
	var h heard
	h.listen(b.tool)
	ctx := runtime.WithSpanContext(context.Background(), runtime.SpanContext{Traceparent: callersSpan, Baggage: "tenant=7"})
	res, err := b.client.Call(ctx, charge("k"))
	if err != nil {
		t.Fatal(err)
	}
	b.stop()
	b.start()
	if again, err := b.client.Call(context.Background(), charge("k")); err != nil || !again.Replayed {
		t.Fatalf("replayed %v, %v", again.Replayed, err)
	}
	b.stop()
	calls, sends := c.Spans("tgad.call"), c.Spans("send")
	if len(calls) != 2 || len(sends) != 1 || len(c.Bad()) != 0 {
		t.Fatalf("%d calls, %d sends, unreadable %v", len(calls), len(sends), c.Bad())
	}
	first, repeat, send := calls[0], calls[1], sends[0]
	if id := hex.EncodeToString(first.ParentSpanId); id != callersSpan[36:52] || hex.EncodeToString(first.TraceId) != callersSpan[3:35] {
		t.Errorf("the call is below %s in trace %x, want the caller's", id, first.TraceId)
	}
	for _, name := range []string{"decide", "reserve", "send", "settle"} {
		if s := c.Spans(name)[0]; string(s.ParentSpanId) != string(first.SpanId) {
			t.Errorf("%s is below %x, want %x", name, s.ParentSpanId, first.SpanId)
		}
	}
	if want := "00-" + callersSpan[3:35] + "-" + hex.EncodeToString(send.SpanId) + "-01 tenant=7"; strings.Join(h.all, "\n") != want {
		t.Errorf("the tool server was told %q, want %q", h.all, want)
	}
	if first.Attr["tgad.trace_id"] != res.TraceID.String() || first.Attr["tgad.state"] != tga.Completed.String() || first.Resource["service.name"] != "tgad" {
		t.Errorf("the call has %v of %v", first.Attr, first.Resource)
	}
	if len(repeat.ParentSpanId) != 0 || len(repeat.Links) != 1 || string(repeat.Links[0].SpanId) != string(first.SpanId) || repeat.Attr["tgad.replayed"] == "" {
		t.Errorf("the repeat is below %x, links %v, has %v", repeat.ParentSpanId, repeat.Links, repeat.Attr)
	}
}

// TestWithoutACollectorNothingIsPassedOn: what a caller says of its trace goes nowhere.
func TestWithoutACollectorNothingIsPassedOn(t *testing.T) {
	b := start(t, "")
	var h heard
	h.listen(b.tool)
	ctx := runtime.WithSpanContext(context.Background(), runtime.SpanContext{Traceparent: callersSpan, Baggage: "tenant=7"})
	res, err := b.client.Call(ctx, charge("k"))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Join(h.all, "\n") != " " {
		t.Errorf("the tool server was told %q", h.all)
	}
	if _, _, text := b.raw("GET", "/v1/traces/"+res.TraceID.String(), ""); !strings.Contains(string(text), tga.MetaNonce) || strings.Contains(string(text), tga.MetaSpanContext) {
		t.Errorf("the log has %s", text)
	}
}

// TestTwoParentsAreNone: a request whose traceparent stands there twice begins a trace of its own.
func TestTwoParentsAreNone(t *testing.T) {
	q := &request{d: &Daemon{traces: true}, r: &http.Request{Header: http.Header{"Traceparent": {callersSpan, callersSpan}, "Baggage": {"a=1", "b=2"}}}}
	if got := runtime.SpanContextOf(q.underCaller(context.Background())); got != (runtime.SpanContext{Baggage: "a=1,b=2"}) {
		t.Errorf("got %+v", got)
	}
}

package spans

import (
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

const callers = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// maxBaggage is the number of baggage bytes that W3C asks everybody to pass on.
const maxBaggage = 8192

func provider(opts ...sdktrace.TracerProviderOption) (*sdktrace.TracerProvider, *tracetest.InMemoryExporter) {
	kept := tracetest.NewInMemoryExporter()
	return sdktrace.NewTracerProvider(append(opts, sdktrace.WithSyncer(kept))...), kept
}

func id(n byte) tga.ID { return tga.ID{6: 0x70, 8: 0x80, 15: n} }

func text(list []attribute.KeyValue) string {
	var all []string
	for _, kv := range list {
		all = append(all, string(kv.Key)+"="+kv.Value.String())
	}
	return strings.Join(all, " ")
}

// TestSpansAreATree: the span of a request is below the caller's span, which belongs to another process. The
// span of a step is below that of the request, which belongs to this process.
func TestSpansAreATree(t *testing.T) {
	p, kept := provider()
	tr := New(p, Options{})
	call, endCall := tr.Start(runtime.SpanContext{Traceparent: callers, Tracestate: "a=b", Baggage: "tenant=7"}, runtime.Span{Name: "tgad.call"})
	step, endStep := tr.Start(call, runtime.Span{Name: "decide"})
	endStep(runtime.Span{Name: "decide"})
	endCall(runtime.Span{Name: "tgad.call"})
	all := kept.GetSpans()
	if len(all) != 2 {
		t.Fatalf("%d spans", len(all))
	}
	decide, asked := all[0], all[1]
	if asked.Parent.SpanID().String() != "b7ad6b7169203331" || !asked.Parent.IsRemote() || asked.SpanContext.TraceID().String() != callers[3:35] {
		t.Errorf("asked: parent %+v, %+v", asked.Parent, asked.SpanContext)
	}
	if decide.Parent.SpanID() != asked.SpanContext.SpanID() || decide.Parent.IsRemote() {
		t.Errorf("step: parent %+v, want %s of this process", decide.Parent, asked.SpanContext.SpanID())
	}
	if want := "00-" + callers[3:35] + "-" + decide.SpanContext.SpanID().String() + "-01"; step != (runtime.SpanContext{Traceparent: want, Tracestate: "a=b", Baggage: "tenant=7"}) {
		t.Errorf("what goes on is %+v", step)
	}
}

// TestAttributes: attributes follow the conventions for GenAI and MCP; the others are tgad's own.
func TestAttributes(t *testing.T) {
	p, kept := provider()
	tr := New(p, Options{MCP: func(server string) bool { return server == "files" }})
	for _, c := range []struct {
		at, end runtime.Span
		kind    trace.SpanKind
		want    string
	}{
		{runtime.Span{Name: "tgad.call", Server: "payments", Tool: "charge"},
			runtime.Span{TraceID: id(1), ToolCallID: id(2), Server: "payments", Tool: "charge", State: tga.Completed, Replayed: true}, trace.SpanKindInternal,
			"gen_ai.tool.name=charge tgad.tool_server=payments gen_ai.operation.name=execute_tool tgad.trace_id=" + id(1).String() +
				" gen_ai.tool.call.id=" + id(2).String() + " tgad.state=COMPLETED tgad.replayed=true"},
		{runtime.Span{Name: "send", Server: "files", Tool: "write", Attempt: 2}, runtime.Span{}, trace.SpanKindClient,
			"gen_ai.tool.name=write tgad.tool_server=files tgad.attempt=2 mcp.method.name=tools/call gen_ai.operation.name=execute_tool"},
		{runtime.Span{Name: "send", Server: "payments", Tool: "charge"}, runtime.Span{}, trace.SpanKindClient,
			"gen_ai.tool.name=charge tgad.tool_server=payments gen_ai.operation.name=execute_tool"},
		{runtime.Span{Name: MCP, Server: "files", Tool: "write"}, runtime.Span{}, trace.SpanKindServer,
			"gen_ai.tool.name=write tgad.tool_server=files mcp.method.name=tools/call gen_ai.operation.name=execute_tool"},
		{runtime.Span{Name: "settle"}, runtime.Span{State: tga.Failed}, trace.SpanKindInternal, "tgad.state=FAILED"},
	} {
		kept.Reset()
		_, end := tr.Start(runtime.SpanContext{}, c.at)
		end(c.end)
		got := kept.GetSpans()[0]
		if text(got.Attributes) != c.want || got.SpanKind != c.kind || got.Name != c.at.Name {
			t.Errorf("%s, %v: %s\nwant %v: %s", got.Name, got.SpanKind, text(got.Attributes), c.kind, c.want)
		}
	}
}

// TestSpanHasNoWordsOfATool: of an error the span has only the code.
func TestSpanHasNoWordsOfATool(t *testing.T) {
	for code, err := range map[string]error{"TOOL_ERROR": tga.Errorf(tga.ToolError, "the card 4111"), "_OTHER": errPlain{}} {
		p, kept := provider()
		_, end := New(p, Options{}).Start(runtime.SpanContext{}, runtime.Span{Name: "send"})
		end(runtime.Span{Err: err})
		got := kept.GetSpans()[0]
		if got.Status.Code != codes.Error || got.Status.Description != code || !strings.Contains(text(got.Attributes), "error.type="+code) || strings.Contains(text(got.Attributes), "4111") {
			t.Errorf("status %+v, %s", got.Status, text(got.Attributes))
		}
	}
}

type errPlain struct{}

func (errPlain) Error() string { return "the card 4111" }

// TestLink: the link leads to the run that first made the call.
func TestLink(t *testing.T) {
	p, kept := provider()
	tr := New(p, Options{})
	_, end := tr.Start(runtime.SpanContext{}, runtime.Span{Name: "tgad.recover"})
	end(runtime.Span{First: callers})
	if l := kept.GetSpans()[0].Links; len(l) != 1 || l[0].SpanContext.SpanID().String() != "b7ad6b7169203331" {
		t.Errorf("links %+v", l)
	}
}

// TestCallersContextIsChecked: an invalid span context gives a span without a parent. Baggage that is
// invalid, too long or not wanted is dropped.
func TestCallersContextIsChecked(t *testing.T) {
	member := func(n int) string { return "k=" + strings.Repeat("v", n-2) }
	for _, c := range []struct {
		traceparent, baggage string
		opts                 Options
		parent               bool
		passed               string
	}{
		{callers, "a=b", Options{}, true, "a=b"},
		{callers, "a=b", Options{NoBaggage: true}, true, ""},
		{callers, member(4000), Options{}, true, member(4000)},
		{callers, member(4000) + "," + "l" + member(4000), Options{}, true, member(4000) + "," + "l" + member(4000)},
		{callers, member(maxBaggage + 1), Options{}, true, ""},
		{callers, "no baggage", Options{}, true, ""},
		{"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01", "", Options{}, false, ""},
		{strings.ToUpper(callers), "", Options{}, false, ""},
		{"x", "", Options{}, false, ""},
		{"", "", Options{}, false, ""},
	} {
		p, kept := provider()
		own, end := New(p, c.opts).Start(runtime.SpanContext{Traceparent: c.traceparent, Baggage: c.baggage}, runtime.Span{Name: "tgad.call"})
		end(runtime.Span{})
		if got := kept.GetSpans()[0]; got.Parent.IsValid() != c.parent || own.Baggage != c.passed || own.Traceparent == "" {
			t.Errorf("%.60q %.20q: parent %v, passed on %.60q of %d bytes", c.traceparent, c.baggage, got.Parent.IsValid(), own.Baggage, len(own.Baggage))
		}
	}
}

// TestSpanThatIsNotSampled: it has a place in the trace, and its end is not exported.
func TestSpanThatIsNotSampled(t *testing.T) {
	p, _ := provider(sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.AlwaysSample())))
	own, end := New(p, Options{}).Start(runtime.SpanContext{Traceparent: strings.TrimSuffix(callers, "1") + "0"}, runtime.Span{Name: "tgad.call"})
	if end != nil || !strings.HasSuffix(own.Traceparent, "-00") {
		t.Errorf("own %+v, recorded %v", own, end != nil)
	}
}

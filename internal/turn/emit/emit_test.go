package emit_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/internal/turn/emit"
	"github.com/tgad/tgad/schemas/tga"
)

// TestSpansAreATree: the invocation is the caller's child, the turn the invocation's, the
// parts the turn's, with the times that were recorded; a handoff is a root with a link.
func TestSpansAreATree(t *testing.T) {
	for name, change := range map[string]func(*emit.Options){
		"own ids": nil,
		"ids of the provider": func(o *emit.Options) { // a provider that does not use IDs
			o.Tracer = nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := everything(t, nil)
			if change != nil {
				stock := o.spans
				o = everything(t, func(opts *emit.Options) { opts.Tracer = sdktrace.NewTracerProvider(sdktrace.WithSyncer(stock)) })
				o.spans = stock
			}
			o.emit(t, full())
			o.close(t)
			invoke, whole := o.span(t, "ossa.agent.invoke", 0), o.span(t, "ossa.agent.turn", 0)
			if got := invoke.Parent; got.SpanID().String() != "b7ad6b7169203331" || !got.IsRemote() || got.TraceState().Get("vendor") != "1" {
				t.Errorf("the invocation's parent is %v", got)
			}
			if whole.Parent.SpanID() != invoke.SpanContext.SpanID() {
				t.Error("the turn is no child of the invocation")
			}
			if !whole.StartTime.Equal(at(0)) || !whole.EndTime.Equal(at(900)) || !invoke.EndTime.Equal(at(900)) {
				t.Errorf("the turn is from %v to %v", whole.StartTime, whole.EndTime)
			}
			for _, part := range []struct {
				name     string
				n        int
				from, to int
				code     codes.Code
			}{
				{"gen_ai.chat", 0, 10, 200, codes.Error},
				{"gen_ai.chat", 1, 210, 500, codes.Ok},
				{"ossa.tool.call", 0, 510, 600, codes.Ok},
				{"ossa.tool.call", 1, 600, 800, codes.Error},
				{"ossa.state.load", 0, 1, 2, codes.Ok},
				{"ossa.state.save", 0, 880, 890, codes.Ok},
			} {
				s := o.span(t, part.name, part.n)
				if s.Parent.SpanID() != whole.SpanContext.SpanID() || !s.StartTime.Equal(at(part.from)) || !s.EndTime.Equal(at(part.to)) || s.Status.Code != part.code {
					t.Errorf("%s %d: parent %v, %v to %v, %v", part.name, part.n, s.Parent.SpanID(), s.StartTime, s.EndTime, s.Status.Code)
				}
			}
			handoff := o.span(t, "ossa.delegation.handoff", 0)
			links := 1
			if change == nil { // and to the delegate's invocation
				links = 2
			}
			if handoff.Parent.IsValid() || len(handoff.Links) != links || handoff.Links[0].SpanContext.SpanID() != whole.SpanContext.SpanID() {
				t.Errorf("the handoff has parent %v and links %v", handoff.Parent, handoff.Links)
			}
			for _, want := range []attribute.KeyValue{
				attribute.String("ossa.link.type", "delegation"), attribute.String("ossa.link.source_agent", "refund-desk"), attribute.String("ossa.link.target_agent", "support"),
			} {
				if !has(handoff.Links[0].Attributes, want) {
					t.Errorf("the link has not %v", want)
				}
			}
		})
	}
}

func has(list []attribute.KeyValue, want attribute.KeyValue) bool {
	for _, kv := range list {
		if kv == want {
			return true
		}
	}
	return false
}

// TestSpansHaveTheirAttributes: every span has the required attributes, each kind its own.
func TestSpansHaveTheirAttributes(t *testing.T) {
	o := everything(t, nil)
	e := full()
	e.Parent = &turn.Parent{AgentID: "boss", InteractionID: id(9)}
	o.emit(t, e)
	o.close(t)
	required := map[string]string{
		"gen_ai.system": "ossa", "ossa.agent.id": "refund-desk", "ossa.agent.name": "refund-desk", "ossa.agent.version": "2.4.1",
		"ossa.instance.id": "instance-1", "ossa.session.id": "session-1", "ossa.interaction.id": id(2).String(), "ossa.turn.number": "3",
		"ossa.parent.agent.id": "boss", "ossa.parent.interaction.id": id(9).String(), "ossa.tenant.id": "acme",
	}
	spans := o.spans.GetSpans()
	if len(spans) != 9 {
		t.Errorf("%d spans", len(spans))
	}
	check := func(name string, got, want map[string]string) {
		t.Helper()
		for k, v := range want {
			if got[k] != v {
				t.Errorf("%s: %s is %q, want %q", name, k, got[k], v)
			}
		}
	}
	for _, s := range spans {
		check(s.Name, attrs(s), required)
		if _, ok := attrs(s)["color"]; ok {
			t.Errorf("%s carries baggage that is nobody's", s.Name)
		}
		if s.InstrumentationScope.SchemaURL != emit.SchemaURL {
			t.Errorf("%s has the schema %q", s.Name, s.InstrumentationScope.SchemaURL)
		}
	}
	check("chat", attrs(o.span(t, "gen_ai.chat", 1)), map[string]string{
		"gen_ai.request.model": "claude-b", "gen_ai.request.max_tokens": "64", "gen_ai.request.temperature": "0.5", "gen_ai.request.top_p": "0.9",
		"gen_ai.response.id": "msg_1", "gen_ai.response.model": "claude-b-2", "gen_ai.response.finish_reason": "tool_use",
		"gen_ai.usage.input_tokens": "100", "gen_ai.usage.output_tokens": "20", "gen_ai.usage.total_tokens": "120",
		"tgad.trace_id": id(11).String(), "tgad.retries": "1",
	})
	check("failed chat", attrs(o.span(t, "gen_ai.chat", 0)), map[string]string{"error.type": "LLM_TIMEOUT"})
	check("tool", attrs(o.span(t, "ossa.tool.call", 0)), map[string]string{
		"ossa.tool.name": "lookup", "ossa.tool.type": "mcp", "ossa.tool.source": "mcp://orders/find", "ossa.capability.name": "find", "tgad.trace_id": id(12).String(),
	})
	check("failed tool", attrs(o.span(t, "ossa.tool.call", 1)), map[string]string{
		"ossa.tool.source": "manifest", "ossa.capability.name": "refund", "error.type": "TOOL_TIMEOUT", "tgad.retries": "2",
	})
	check("state", attrs(o.span(t, "ossa.state.save", 0)), map[string]string{
		"ossa.state.mode": "session", "ossa.state.storage_type": "kv", "ossa.state.ttl_seconds": "3600",
	})
	check("handoff", attrs(o.span(t, "ossa.delegation.handoff", 0)), map[string]string{
		"ossa.delegation.target": "support", "ossa.delegation.type": "handoff",
	})
	// A delegate has a trace of its own, with a link to the agent that asked.
	invoke := o.span(t, "ossa.agent.invoke", 0)
	if invoke.Parent.IsValid() || len(invoke.Links) != 1 || invoke.Links[0].SpanContext.SpanID().String() != "b7ad6b7169203331" {
		t.Errorf("a delegated invocation has parent %v and links %v", invoke.Parent, invoke.Links)
	}
}

// TestHandoffLinksBothAgents: the handoff's second link is to the invocation that the delegate
// makes of it, in another process.
func TestHandoffLinksBothAgents(t *testing.T) {
	from, to := everything(t, nil), everything(t, nil)
	from.emit(t, full())
	e := full()
	e.InvocationID, e.InteractionID, e.Delegations = id(14), id(14), nil
	e.Parent = &turn.Parent{AgentID: "refund-desk", InteractionID: id(2)}
	to.emit(t, e)
	link, invoke := from.span(t, "ossa.delegation.handoff", 0).Links[1].SpanContext, to.span(t, "ossa.agent.invoke", 0).SpanContext
	if link.TraceID() != invoke.TraceID() || link.SpanID() != invoke.SpanID() {
		t.Errorf("the link is to %v, the other's invocation is %v", link, invoke)
	}
	from.close(t)
	to.close(t)
}

// TestTurnsOfAnInvocationShareItsSpan: two turns have one ossa.agent.invoke span, from the begin
// of the first to the end of the second.
func TestTurnsOfAnInvocationShareItsSpan(t *testing.T) {
	o := everything(t, nil)
	one, two := chain()
	o.emit(t, one)
	if n := count(o, "ossa.agent.invoke"); n != 0 {
		t.Errorf("%d invocations ended with their first turn", n)
	}
	o.emit(t, two)
	invoke := o.span(t, "ossa.agent.invoke", 0)
	if count(o, "ossa.agent.invoke") != 1 || !invoke.StartTime.Equal(at(0)) || !invoke.EndTime.Equal(at(2000)) || invoke.Status.Code != codes.Error {
		t.Errorf("the invocation: %d, %v to %v, %v", count(o, "ossa.agent.invoke"), invoke.StartTime, invoke.EndTime, invoke.Status)
	}
	for n := range 2 {
		if s := o.span(t, "ossa.agent.turn", n); s.Parent.SpanID() != invoke.SpanContext.SpanID() || s.SpanContext.TraceID() != invoke.SpanContext.TraceID() {
			t.Errorf("turn %d has parent %v", n, s.Parent)
		}
	}
	if got := o.span(t, "ossa.agent.turn", 1); attrs(got)["error.type"] != "TOOL_ERROR" || got.Status.Description != "TOOL_ERROR" {
		t.Errorf("the failed turn: %v", got.Status)
	}
	o.close(t)
}

// chain is an invocation of two turns; the second fails.
func chain() (one, two *turn.Emission) {
	one, two = full(), full()
	one.Last = false
	two.First, two.InteractionID, two.TurnNumber = false, id(3), 4
	two.Started, two.Ended = at(1000), at(2000)
	two.Failure = &turn.Failure{Code: tga.ToolError, Message: secret}
	for i := range two.Inferences {
		later(&two.Inferences[i].Started, &two.Inferences[i].Ended)
	}
	for i := range two.Tools {
		later(&two.Tools[i].Started, &two.Tools[i].Ended)
	}
	return one, two
}

func later(list ...*time.Time) {
	for _, t := range list {
		*t = t.Add(time.Second)
	}
}

func count(o *outputs, name string) (n int) {
	for _, s := range o.spans.GetSpans() {
		if s.Name == name {
			n++
		}
	}
	return n
}

// TestCrashInAnInvocationKeepsItsTree: a second process reports the second turn. Both turns have
// the same parent, which the second process sends with the time at which the invocation began.
func TestCrashInAnInvocationKeepsItsTree(t *testing.T) {
	one, two := chain()
	one.SpanContext.Traceparent, two.SpanContext.Traceparent = "", ""
	before, after := everything(t, nil), everything(t, nil)
	before.emit(t, one) // and dies
	after.emit(t, two)
	invoke := after.span(t, "ossa.agent.invoke", 0)
	for _, s := range []trace.SpanContext{before.span(t, "ossa.agent.turn", 0).Parent, after.span(t, "ossa.agent.turn", 0).Parent} {
		if s.SpanID() != invoke.SpanContext.SpanID() || s.TraceID() != invoke.SpanContext.TraceID() {
			t.Errorf("a turn's parent is %v, the invocation %v", s, invoke.SpanContext)
		}
	}
	if invoke.SpanContext.TraceID().String() != strings.ReplaceAll(id(1).String(), "-", "") || !invoke.StartTime.Equal(at(0)) {
		t.Errorf("the invocation is %v from %v", invoke.SpanContext.TraceID(), invoke.StartTime)
	}
	before.close(t)
	after.close(t)
}

// TestMetricsHaveThreeLabels: checks the values, and that there are only the three labels.
func TestMetricsHaveThreeLabels(t *testing.T) {
	o := everything(t, nil)
	one, two := chain()
	o.emit(t, one, two)
	o.close(t)
	got := o.metrics(t)
	for name, want := range map[string]int64{
		"ossa.agent.invocations": 1, "ossa.agent.turns": 2, "ossa.agent.errors": 1,
		"ossa.tokens.input": 200, "ossa.tokens.output": 40, "ossa.tool.calls": 4, "ossa.tool.errors": 2,
	} {
		sum, ok := got[name].Data.(metricdata.Sum[int64])
		if !ok || !sum.IsMonotonic || got[name].Unit != "1" {
			t.Fatalf("%s is %T, unit %q", name, got[name].Data, got[name].Unit)
		}
		var total int64
		for _, p := range sum.DataPoints {
			total += p.Value
			labels(t, name, p.Attributes)
		}
		if total != want {
			t.Errorf("%s is %d, want %d", name, total, want)
		}
	}
	h, ok := got["ossa.agent.latency"].Data.(metricdata.Histogram[float64])
	if !ok || got["ossa.agent.latency"].Unit != "ms" || len(h.DataPoints) != 1 || h.DataPoints[0].Count != 2 || h.DataPoints[0].Sum != 1900 {
		t.Errorf("latency is %+v", got["ossa.agent.latency"])
	}
	labels(t, "latency", h.DataPoints[0].Attributes)
	if len(got) != 8 {
		t.Errorf("%d metrics", len(got))
	}
}

func labels(t *testing.T, name string, set attribute.Set) {
	t.Helper()
	allowed := map[attribute.Key]bool{"ossa.agent.id": true, "ossa.agent.version": true, "gen_ai.request.model": true}
	for _, kv := range set.ToSlice() {
		if !allowed[kv.Key] {
			t.Errorf("%s has the label %s", name, kv.Key)
		}
	}
	if set.Len() != 3 {
		t.Errorf("%s has %d labels", name, set.Len())
	}
}

// TestRecordsNameTheirSpan: each record has its own trace and span.
func TestRecordsNameTheirSpan(t *testing.T) {
	o := everything(t, nil)
	one, two := chain()
	o.emit(t, one, two)
	o.close(t)
	got := o.records(t)
	if len(got) != 6 {
		t.Fatalf("%d records", len(got))
	}
	for i, want := range []struct {
		level, text string
		span        trace.SpanContext
	}{
		{"WARN", "model failed", o.span(t, "gen_ai.chat", 0).SpanContext},
		{"WARN", "tool failed", o.span(t, "ossa.tool.call", 1).SpanContext},
		{"INFO", "turn completed", o.span(t, "ossa.agent.turn", 0).SpanContext},
	} {
		if got[i]["level"] != want.level || got[i]["msg"] != want.text || got[i]["trace_id"] != want.span.TraceID().String() || got[i]["span_id"] != want.span.SpanID().String() {
			t.Errorf("record %d is %v, want %v", i, got[i], want)
		}
	}
	if last := got[5]; last["level"] != "ERROR" || last["msg"] != "turn failed" || last["code"] != "TOOL_ERROR" {
		t.Errorf("the last record is %v", last)
	}
}

// TestContentStaysInside: no words of users, models and tools are sent, unless the messages of
// failures are requested.
func TestContentStaysInside(t *testing.T) {
	for _, with := range []bool{false, true} {
		o := everything(t, func(opts *emit.Options) { opts.WithMessages = with })
		one, two := chain()
		o.emit(t, one, two)
		o.close(t)
		spans, err := json.Marshal(o.spans.GetSpans())
		if err != nil {
			t.Fatal(err)
		}
		var events strings.Builder
		for _, e := range o.sink.events {
			events.Write(e.JSON)
		}
		for what, text := range map[string]string{"spans": string(spans), "records": o.log.String(), "events": events.String()} {
			if strings.Contains(text, secret) != with {
				t.Errorf("with messages %t: %s say %.300s", with, what, text)
			}
		}
	}
}

// TestAgentDecidesWhatComesIn: an agent may refuse incoming trace context or baggage.
func TestAgentDecidesWhatComesIn(t *testing.T) {
	o := everything(t, nil)
	e := full()
	e.Agent.Identity = turn.Identity{NoTraceContext: true, NoBaggage: true}
	o.emit(t, e)
	o.close(t)
	s := o.span(t, "ossa.agent.invoke", 0)
	if _, ok := attrs(s)["ossa.tenant.id"]; ok || s.Parent.IsValid() {
		t.Errorf("parent %v, attributes %v", s.Parent, attrs(s))
	}
}

// TestDefaultsOfAnEmission: fields that an emission lacks are left out or get their default.
func TestDefaultsOfAnEmission(t *testing.T) {
	o := everything(t, nil)
	o.emit(t, &turn.Emission{Agent: &turn.Agent{Name: "a"}, InvocationID: id(1), InteractionID: id(2), Started: at(0), Ended: at(1), Last: true})
	o.close(t)
	if n := len(o.spans.GetSpans()); n != 2 {
		t.Errorf("%d spans", n)
	}
	if got := attrs(o.span(t, "ossa.agent.turn", 0)); got["ossa.agent.version"] != "0.0.0" || got["ossa.agent.id"] != "a" {
		t.Errorf("attributes %v", got)
	}
	if len(o.sink.events) != 2 {
		t.Errorf("%d events", len(o.sink.events))
	}
	for _, bad := range []*turn.Emission{nil, {}} {
		if err := o.emitter.Emit(t.Context(), bad); tga.CodeOf(err) != tga.ValidationError {
			t.Errorf("emission %v: %v", bad, err)
		}
	}
	if _, err := emit.New(emit.Options{Wait: -time.Second}); tga.CodeOf(err) != tga.ValidationError {
		t.Errorf("a negative wait: %v", err)
	}
}

package emit_test

import (
	"strings"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/internal/turn/emit"
)

// before returns the part of an emission that is known when the turn asks a model or a tool.
func before(e *turn.Emission) *turn.Emission {
	b := *e
	b.Inferences, b.Tools, b.Delegations, b.Phases, b.Last = nil, nil, nil, nil, false
	return &b
}

// TestPartsAreWhereTheyWereSaidToBe: the context that a model or a tool gets is that of the span
// which is made when the turn has ended, by this process or, after a crash, by another.
func TestPartsAreWhereTheyWereSaidToBe(t *testing.T) {
	for name, change := range map[string]func(*turn.Emission){
		"below the caller": func(*turn.Emission) {},
		"by itself":        func(e *turn.Emission) { e.SpanContext = turn.SpanContext{} },
		"delegated":        func(e *turn.Emission) { e.Parent = &turn.Parent{AgentID: "boss", InteractionID: id(9)} },
	} {
		t.Run(name, func(t *testing.T) {
			e := full()
			change(e)
			asks, tells := everything(t, nil), everything(t, nil)
			said := map[string][]string{}
			for _, i := range e.Inferences {
				said["gen_ai.chat"] = append(said["gen_ai.chat"], asks.emitter.Place(before(e), turn.Part{Question: i.TraceID}).Traceparent)
			}
			for _, x := range e.Tools {
				said["ossa.tool.call"] = append(said["ossa.tool.call"], asks.emitter.Place(before(e), turn.Part{ToolCall: x.CallID}).Traceparent)
			}
			asks.emit(t, e)
			tells.emit(t, e)
			for _, o := range []*outputs{asks, tells} {
				for part, places := range said {
					for n, place := range places {
						s := o.span(t, part, n).SpanContext
						if want := "00-" + s.TraceID().String() + "-" + s.SpanID().String() + "-01"; place != want {
							t.Errorf("%s %d: said %s, is %s", part, n, place, want)
						}
					}
				}
				if n := count(o, "ossa.agent.invoke"); n != 1 {
					t.Errorf("%d spans of the invocation", n)
				}
			}
			asks.close(t)
			tells.close(t)
		})
	}
}

// TestPlaceOfWhoMakesNoSpan: the context is also correct if the provider makes its own ids, if
// nothing is sampled, and if no spans are made.
func TestPlaceOfWhoMakesNoSpan(t *testing.T) {
	part := turn.Part{ToolCall: "call_1"}
	own := everything(t, nil)
	place := own.emitter.Place(before(full()), part)
	if place.Tracestate != "vendor=1" || !strings.Contains(place.Baggage, "color=blue") {
		t.Errorf("what came in besides is %+v", place)
	}
	deaf := full()
	deaf.InvocationID = id(5)
	deaf.Agent.Identity.NoTraceContext, deaf.Agent.Identity.NoBaggage = true, true
	if p := own.emitter.Place(before(deaf), part); p.Traceparent == "" || p.Baggage != "" || p.Tracestate != "" {
		t.Errorf("an agent that takes nothing over says %+v", p)
	}
	own.close(t)

	others := everything(t, nil)
	exporter := others.spans
	others = everything(t, func(o *emit.Options) { o.Tracer = sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter)) })
	others.spans = exporter
	e := full()
	place = others.emitter.Place(before(e), part)
	others.emit(t, e)
	if s := others.span(t, "ossa.agent.invoke", 0).SpanContext; place.Traceparent != "00-"+s.TraceID().String()+"-"+s.SpanID().String()+"-01" {
		t.Errorf("with ids of the provider it says %s, the invocation is %v", place.Traceparent, s)
	}
	others.close(t)

	never := everything(t, func(o *emit.Options) {
		o.Tracer = sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample()), sdktrace.WithIDGenerator(emit.IDs{}))
	})
	if p := never.emitter.Place(before(full()), part).Traceparent; !strings.HasPrefix(p, "00-0af7651916cd43dd8448eb211c80319c-") || !strings.HasSuffix(p, "-00") {
		t.Errorf("where nothing is sampled it says %s", p)
	}
	never.close(t)
	if p := never.emitter.Place(before(full()), part); p != (turn.SpanContext{}) {
		t.Errorf("closed, it says %+v", p)
	}

	none := everything(t, func(o *emit.Options) { o.Tracer = nil })
	if p := none.emitter.Place(before(full()), part); p != (turn.SpanContext{}) {
		t.Errorf("without spans it says %+v", p)
	}
	none.close(t)
}

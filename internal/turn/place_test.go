package turn_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/runtime"
)

// places is an emitter that returns the span context of parts.
type places struct {
	mu   sync.Mutex
	said []turn.Part
	say  func(of turn.Part) turn.SpanContext
}

func (p *places) Emit(context.Context, *turn.Emission) error { return nil }

func (p *places) Place(e *turn.Emission, of turn.Part) turn.SpanContext {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.Agent.Name != "helper" || e.InteractionID.IsZero() || e.InvocationID.IsZero() || e.InvocationStarted.IsZero() {
		panic("whose turn is it?")
	}
	p.said = append(p.said, of)
	return p.say(of)
}

// TestModelsAndToolsAreToldTheirPlace: a question and a call carry the context of their span, or
// the caller's context if nobody makes spans, or nothing.
func TestModelsAndToolsAreToldTheirPlace(t *testing.T) {
	came := turn.SpanContext{Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", Baggage: "a=b"}
	asTheyAre := func(of turn.Part) turn.SpanContext {
		return turn.SpanContext{Traceparent: "00-" + of.ToolCall + of.Question.String()}
	}
	for _, c := range []struct {
		name string
		by   *places
		came turn.SpanContext
		want func(traceparent, part string) bool
	}{
		{"spans", &places{say: asTheyAre}, came, func(got, part string) bool { return strings.HasPrefix(got, "00-") && got != came.Traceparent }},
		{"no spans", &places{say: func(turn.Part) turn.SpanContext { return turn.SpanContext{} }}, came, func(got, _ string) bool { return got == came.Traceparent }},
		{"nobody", nil, came, func(got, _ string) bool { return got == came.Traceparent }},
		{"nobody and nothing", nil, turn.SpanContext{}, func(got, _ string) bool { return got == "" }},
		{"a panic", &places{say: func(turn.Part) turn.SpanContext { panic("no") }}, came, func(got, _ string) bool { return got == came.Traceparent }},
	} {
		t.Run(c.name, func(t *testing.T) {
			var mu sync.Mutex
			got := map[string][]string{}
			keep := func(ctx context.Context, part string) {
				mu.Lock()
				defer mu.Unlock()
				got[part] = append(got[part], runtime.SpanContextOf(ctx).Traceparent)
			}
			w := newWorld(t, func(w *world) {
				w.tool("look", func(ctx context.Context, _ string) (string, error) {
					keep(ctx, "tool")
					return "seen", nil
				})
				w.options = func(o *turn.Options) {
					if c.by != nil {
						o.Emitters = append(o.Emitters, c.by)
					}
					for name, m := range o.Models {
						o.Models[name] = told{m, keep}
					}
				}
			})
			res, err := w.r.Run(t.Context(), turn.Request{Agent: "helper", Message: []byte("call look {}"), SpanContext: c.came})
			if err != nil || res.Failure != nil {
				t.Fatalf("%+v, %v", res, err)
			}
			if len(got["model"]) != 2 || len(got["tool"]) != 1 {
				t.Fatalf("asked %v", got)
			}
			for part, all := range got {
				for _, place := range all {
					if !c.want(place, part) {
						t.Errorf("the %s got %q", part, place)
					}
				}
			}
			if got["model"][0] == got["model"][1] && c.name == "spans" {
				t.Errorf("two questions have one place: %v", got["model"])
			}
		})
	}
}

// told is a model that records what it is asked.
type told struct {
	turn.Model
	keep func(ctx context.Context, part string)
}

func (m told) Generate(ctx context.Context, q turn.Question) (turn.Answer, error) {
	m.keep(ctx, "model")
	return m.Model.Generate(ctx, q)
}

package runtime

import (
	"context"
	"log/slog"
	"strings"

	"github.com/tgad/tgad/schemas/tga"
)

// SpanContext identifies a span of an OpenTelemetry trace, with the state that travels with it. The
// fields are the values of the headers of W3C Trace Context and Baggage, "" if there is none.
type SpanContext struct {
	Traceparent string `json:"traceparent,omitempty"`
	Tracestate  string `json:"tracestate,omitempty"`
	Baggage     string `json:"baggage,omitempty"`
}

type spanKey struct{}

// WithSpanContext returns a copy of ctx with the span context under which a call is made. The span
// context goes with the call to its tool server. No digest covers it, and each send may have a
// different one.
func WithSpanContext(ctx context.Context, sc SpanContext) context.Context {
	return context.WithValue(ctx, spanKey{}, sc)
}

// SpanContextOf returns the span context of ctx; empty if there is none.
func SpanContextOf(ctx context.Context) SpanContext {
	sc, _ := ctx.Value(spanKey{}).(SpanContext)
	return sc
}

// Tracer makes spans of calls and of their steps: [Options].Tracer. This package imports no
// OpenTelemetry library: the API alone would more than double the code that a program links.
type Tracer interface {
	// Start begins a span. It returns the span's own context, and the function that ends the span
	// with what is known by then; nil if the span is not recorded. Start is called from any goroutine
	// and must not block.
	Start(parent SpanContext, s Span) (own SpanContext, end func(Span))
}

// Span is what is known of a call or of a step of it. At the start only the name, the trace, the
// tool and the attempt are known.
type Span struct {
	// Name is "tgad." and what was asked of the runtime (call, recover, begin, finish, not_sent,
	// decide, resolve, abandon, compensate, timer), or a step: decide, reserve, license, send, settle.
	Name       string
	TraceID    tga.ID
	ToolCallID tga.ID
	Server     string
	Tool       string
	Attempt    uint32 // of a send
	State      tga.State
	Replayed   bool   // the answer is a recorded one
	First      string // traceparent of the run that first made the call, if that is another run
	Err        error
}

// spans reports calls and their steps to a Tracer; without one it does nothing and costs nothing.
type spans struct {
	tracer Tracer
	store  Store
}

// asked is the span of a method call of a Runtime.
type asked struct {
	of   spans
	ctx  context.Context
	own  SpanContext
	done func(Span)
	span Span
}

// begin begins the span of a method call, under the span of ctx. It returns a context with the new span.
func (sp spans) begin(ctx context.Context, name string, trace tga.ID, server, tool string) (context.Context, asked) {
	if sp.tracer == nil {
		return ctx, asked{}
	}
	a := asked{of: sp, span: Span{Name: name, TraceID: trace, Server: server, Tool: tool}}
	a.own, a.done = sp.tracer.Start(SpanContextOf(ctx), a.span)
	ctx = WithSpanContext(ctx, a.own)
	a.ctx = context.WithoutCancel(ctx)
	return ctx, a
}

// end ends the span with the state of the call. The tool, and which run was the first, come from the log.
func (a *asked) end(res *Result, err *error) {
	if a.done == nil {
		return
	}
	s := a.span
	s.State, s.Replayed, s.ToolCallID, s.Err = res.State, res.Replayed, res.ToolCallID, *err
	if s.Err == nil && res.State.Terminal() {
		s.Err = res.Err()
	}
	if !res.TraceID.IsZero() {
		s.TraceID = res.TraceID
	}
	// What can't be read is left out: a span is no reason to fail.
	if t, lerr := a.of.store.Load(a.ctx, s.TraceID); lerr == nil && t.Request != nil {
		p := t.Request.Request.Proposal
		s.Server, s.Tool = p.ToolServer, p.ToolName
		if !res.ServedFrom.IsZero() {
			t, lerr = a.of.store.Load(a.ctx, res.ServedFrom)
		}
		if lerr == nil && t.Request != nil {
			if first := t.Request.Meta.String(tga.MetaSpanContext); first != a.own.Traceparent {
				s.First = first
			}
		}
	}
	a.done(s)
}

// leave adds the span context of this run to a request that is about to be minted, so that a later
// run can link to it.
func (sp spans) leave(ctx context.Context, l *loop, req *Request) {
	if sp.tracer == nil {
		return
	}
	l.span = SpanContextOf(ctx).Traceparent
	// The last digit is odd if the span is recorded. A link to an unrecorded span would lead nowhere.
	if at := l.span; at != "" && strings.IndexByte("13579bdf", at[len(at)-1]) >= 0 {
		req.own = mergeMeta(req.own, tga.Meta{tga.MetaSpanContext: at})
	}
}

// step begins the span of the next step of [Runtime.run], and returns the context for it. A step
// that only hands the call to somebody else has no span.
func (sp spans) step(ctx context.Context, l *loop) (context.Context, step) {
	if sp.tracer == nil {
		return ctx, step{}
	}
	name := l.nextStep()
	if name == "" {
		return ctx, step{}
	}
	p := l.request.Request.Proposal
	s := step{span: Span{Name: name, TraceID: l.lease.TraceID, Server: p.ToolServer, Tool: p.ToolName}}
	if name == "send" {
		s.span.Attempt, s.span.ToolCallID = l.attempt, l.call.ID
	}
	own, done := sp.tracer.Start(SpanContextOf(ctx), s.span)
	s.done, l.span = done, own.Traceparent
	return WithSpanContext(ctx, own), s
}

func (l *loop) nextStep() string {
	switch {
	case l.state == tga.Pending:
		return "decide"
	case l.state == tga.Authorized && !l.awaitsExecutor():
		return "reserve"
	case l.state == tga.Executing && l.attempt == 0:
		return "license"
	case l.state == tga.Executing && l.remote == nil:
		return "send"
	case l.state.Terminal() && len(l.staged) > 0:
		return "settle"
	}
	return ""
}

// step is the span of a step.
type step struct {
	done func(Span)
	span Span
}

// end ends the span; err is why the run stops after this step. After a send that ended in doubt
// the run goes on, and the span has the cause of the doubt as its error.
func (s *step) end(l *loop, err error) {
	if s.done == nil {
		return
	}
	if err == nil && s.span.Name == "send" && l.state == tga.Executing {
		err = l.doubt
	}
	s.span.State, s.span.Err = l.state, err
	s.done(s.span)
}

// guardedTracer is a Tracer whose panics are logged and end no call.
type guardedTracer struct {
	next Tracer
	log  *slog.Logger
}

func (g guardedTracer) Start(parent SpanContext, s Span) (own SpanContext, end func(Span)) {
	contain(g.log, "Tracer.Start", func() { own, end = g.next.Start(parent, s) })
	if end == nil {
		return own, nil
	}
	next := end
	return own, func(s Span) { contain(g.log, "Tracer's end of a span", func() { next(s) }) }
}

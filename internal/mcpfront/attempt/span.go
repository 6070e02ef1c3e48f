package attempt

import (
	"context"

	"github.com/tgad/tgad/internal/onwire"
	"github.com/tgad/tgad/internal/spans"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// traced begins the span of an attempt, under the span that its client names in `_meta`. Requests to the
// log under the returned context are children of the new span.
func (a *Attempt) traced(ctx context.Context) (_ context.Context, end func()) {
	t := a.s.o.Tracer
	if t == nil {
		return ctx, func() {}
	}
	s := runtime.Span{Name: spans.MCP, Server: a.s.o.Server, Tool: a.q.Params.Tool}
	own, done := t.Start(onwire.SpanOf(a.q.Params.MetaText), s)
	return runtime.WithSpanContext(ctx, own), func() {
		if done == nil {
			return
		}
		s.TraceID, s.Replayed = a.Trace(), a.Out.Value != nil && a.Out.Frame == nil
		if !a.Out.Own.IsZero() {
			s.TraceID = a.Out.Own
		}
		if a.Out.Code != "" {
			s.Err = tga.Errorf(a.Out.Code, "")
		} else if a.Out.Fault {
			s.Err = tga.Errorf(tga.ToolError, "")
		}
		done(s)
	}
}

// sendSpan is the span of one send. It lasts until the tool server has answered or nobody waits for it.
type sendSpan struct {
	own  runtime.SpanContext
	done func(runtime.Span)
	span runtime.Span
}

func (a *Attempt) sendSpan(ctx context.Context, b runtime.Begun) *sendSpan {
	t := a.s.o.Tracer
	if t == nil {
		return &sendSpan{}
	}
	s := &sendSpan{span: runtime.Span{
		Name: "send", TraceID: b.Result.TraceID, ToolCallID: b.Result.ToolCallID, Server: a.s.o.Server, Tool: a.q.Params.Tool, Attempt: b.Attempt,
	}}
	s.own, s.done = t.Start(runtime.SpanContextOf(ctx), s.span)
	return s
}

// end ends the span, once; err says why there is no answer.
func (s *sendSpan) end(err error) {
	if s.done != nil {
		s.span.Err = err
		s.done(s.span)
		s.done = nil
	}
}

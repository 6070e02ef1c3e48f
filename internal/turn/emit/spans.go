package emit

import (
	"context"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/schemas/tga"
)

// mostOpen bounds the invocations whose span is open: the span of an invocation that stays parked
// must not be held for ever.
const mostOpen = 1024

// contexts are the span contexts of a turn's parts, for logs and events.
type contexts struct {
	turn        trace.SpanContext
	tools       []trace.SpanContext
	inferences  []trace.SpanContext
	delegations []trace.SpanContext
}

// incoming returns a context with the caller's span context and baggage, as far as the agent's
// identity settings accept them.
func incoming(ctx context.Context, e *turn.Emission) context.Context {
	carrier := propagation.MapCarrier{}
	if !e.Agent.Identity.NoTraceContext {
		carrier["traceparent"], carrier["tracestate"] = e.SpanContext.Traceparent, e.SpanContext.Tracestate
	}
	if !e.Agent.Identity.NoBaggage {
		carrier["baggage"] = e.SpanContext.Baggage
	}
	ctx = propagation.TraceContext{}.Extract(trace.ContextWithSpanContext(ctx, trace.SpanContext{}), carrier)
	return propagation.Baggage{}.Extract(baggage.ContextWithoutBaggage(ctx), carrier)
}

// invocation is an open ossa.agent.invoke span.
type invocation struct {
	id   tga.ID
	ctx  context.Context
	span trace.Span
	last time.Time
}

// invoke returns the invocation's open span, and the attributes that all spans of e have. A
// process that did not see the invocation begin opens the span again, with the time at which the
// invocation began.
func (m *Emitter) invoke(ctx context.Context, e *turn.Emission) (_ *invocation, common []attribute.KeyValue) {
	common = identity(e)
	for _, key := range baggageKeys {
		if v := baggage.FromContext(ctx).Member(key).Value(); v != "" {
			common = append(common, attribute.String(key, v))
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, i := range m.open {
		if i.id == e.InvocationID {
			i.last = e.Ended
			return i, common
		}
	}
	started := e.InvocationStarted
	if started.IsZero() {
		started = e.Started
	}
	opts := []trace.SpanStartOption{trace.WithTimestamp(started), trace.WithAttributes(common...)}
	remote := trace.SpanContextFromContext(ctx)
	if e.Parent != nil {
		// A delegate has a trace of its own, with a link to its caller.
		opts = append(opts, trace.WithNewRoot())
		if remote.IsValid() {
			opts = append(opts, trace.WithLinks(link(remote, e.Parent.AgentID, agentID(e.Agent))))
		}
	}
	i := &invocation{id: e.InvocationID, last: e.Ended}
	i.ctx, i.span = m.tracer.Start(withIDs(ctx, derive(e.InvocationID, spanInvoke, 0)), spanInvoke, opts...)
	m.open = append(m.open, i)
	return i, common
}

// Place implements [turn.Placer]. If the provider makes its own ids, Place returns the context of
// the invocation, whose span is open.
func (m *Emitter) Place(e *turn.Emission, of turn.Part) turn.SpanContext {
	if m.tracer == nil || m.closed.Load() {
		return turn.SpanContext{}
	}
	ctx := incoming(context.Background(), e)
	inv, _ := m.invoke(ctx, e)
	m.endInvocations(m.surplus(mostOpen))
	sc := inv.span.SpanContext()
	if sc.SpanID() == derive(e.InvocationID, spanInvoke, 0).span {
		sc = sc.WithSpanID(partIDs(e, of).span)
	}
	carrier := propagation.MapCarrier{}
	ctx = trace.ContextWithSpanContext(ctx, sc)
	propagation.TraceContext{}.Inject(ctx, carrier)
	propagation.Baggage{}.Inject(ctx, carrier)
	return turn.SpanContext{Traceparent: carrier["traceparent"], Tracestate: carrier["tracestate"], Baggage: carrier["baggage"]}
}

// take removes and returns an open invocation, nil if there is none.
func (m *Emitter) take(id tga.ID) *invocation {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := slices.IndexFunc(m.open, func(i *invocation) bool { return i.id == id })
	if n < 0 {
		return nil
	}
	i := m.open[n]
	m.open = slices.Delete(m.open, n, n+1)
	return i
}

// surplus removes and returns the oldest open invocations, so that at most keep are left.
func (m *Emitter) surplus(keep int) []*invocation {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := max(len(m.open)-keep, 0)
	old := slices.Clone(m.open[:n])
	m.open = slices.Delete(m.open, 0, n)
	return old
}

// endInvocations ends spans. Do not hold the lock: an exporter may block.
func (m *Emitter) endInvocations(list []*invocation) {
	for _, i := range list {
		i.span.End(trace.WithTimestamp(i.last))
	}
}

func link(to trace.SpanContext, source, target string) trace.Link {
	return trace.Link{SpanContext: to, Attributes: []attribute.KeyValue{
		attribute.String(attrLinkType, "delegation"),
		attribute.String(attrLinkSource, source),
		attribute.String(attrLinkTarget, target),
	}}
}

// spans makes the turn's spans, with the times that were recorded.
func (m *Emitter) spans(ctx context.Context, e *turn.Emission) contexts {
	if m.tracer == nil {
		return contexts{}
	}
	inv, common := m.invoke(incoming(ctx, e), e)
	s := spanner{m: m, e: e, common: common}
	ctx, span := s.start(inv.ctx, spanTurn, derive(e.InteractionID, spanTurn, 0), e.Started, turnAttributes(e))
	out := contexts{turn: span.SpanContext()}
	for _, i := range e.Inferences {
		out.inferences = append(out.inferences, s.made(ctx, spanChat, partIDs(e, turn.Part{Question: i.TraceID}), i.Started, i.Ended, i.Failure, chatAttributes(i), trace.WithSpanKind(trace.SpanKindClient)))
	}
	for _, t := range e.Tools {
		out.tools = append(out.tools, s.made(ctx, spanTool, partIDs(e, turn.Part{ToolCall: t.CallID}), t.Started, t.Ended, t.Failure, toolAttributes(t), trace.WithSpanKind(trace.SpanKindClient)))
	}
	for n, d := range e.Delegations {
		out.delegations = append(out.delegations, s.done(ctx, spanHandoff, n, d.Started, d.Ended, d.Failure, []attribute.KeyValue{
			attribute.String(attrDelegationTarget, d.Target),
			attribute.String(attrDelegationType, string(d.Type)),
		}, trace.WithNewRoot(), trace.WithLinks(s.links(out.turn, d)...)))
	}
	state := m.stateAttributes(e)
	if !e.State.LoadStarted.IsZero() {
		s.done(ctx, spanStateLoad, 0, e.State.LoadStarted, e.State.LoadEnded, nil, state)
	}
	if !e.State.SaveStarted.IsZero() {
		s.done(ctx, spanStateSave, 0, e.State.SaveStarted, e.State.SaveEnded, nil, state)
	}
	m.outcome(span, e.Failure)
	span.End(trace.WithTimestamp(e.Ended))
	if e.Last {
		if inv := m.take(e.InvocationID); inv != nil {
			m.outcome(inv.span, e.Failure)
			m.endInvocations([]*invocation{inv})
		}
	}
	m.endInvocations(m.surplus(mostOpen))
	return out
}

// spanner makes spans of one turn.
type spanner struct {
	m      *Emitter
	e      *turn.Emission
	common []attribute.KeyValue
}

func (s spanner) start(ctx context.Context, name string, as ids, at time.Time, attrs []attribute.KeyValue, opts ...trace.SpanStartOption) (context.Context, trace.Span) {
	opts = append(opts, trace.WithTimestamp(at), trace.WithAttributes(s.common...), trace.WithAttributes(attrs...))
	return s.m.tracer.Start(withIDs(ctx, as), name, opts...)
}

func (s spanner) done(ctx context.Context, name string, n int, from, to time.Time, f *turn.Failure, attrs []attribute.KeyValue, opts ...trace.SpanStartOption) trace.SpanContext {
	return s.made(ctx, name, derive(s.e.InteractionID, name, n), from, to, f, attrs, opts...)
}

func (s spanner) made(ctx context.Context, name string, as ids, from, to time.Time, f *turn.Failure, attrs []attribute.KeyValue, opts ...trace.SpanStartOption) trace.SpanContext {
	_, span := s.start(ctx, name, as, from, attrs, opts...)
	s.m.outcome(span, f)
	span.End(trace.WithTimestamp(to))
	return span.SpanContext()
}

// links returns the links of a delegation's span: to the turn that delegates, and to the
// delegate's invocation if its ids can be derived.
func (s spanner) links(from trace.SpanContext, d turn.DelegationTiming) []trace.Link {
	source := agentID(s.e.Agent)
	list := []trace.Link{link(from, source, d.Target)}
	if from.SpanID() != derive(s.e.InteractionID, spanTurn, 0).span || d.InteractionID.IsZero() {
		return list // the provider makes its own ids
	}
	to := derive(d.InteractionID, spanInvoke, 0)
	return append(list, link(trace.NewSpanContext(trace.SpanContextConfig{TraceID: to.trace, SpanID: to.span, Remote: true}), source, d.Target))
}

// outcome sets a span's status.
func (m *Emitter) outcome(span trace.Span, f *turn.Failure) {
	if f == nil {
		span.SetStatus(codes.Ok, "")
		return
	}
	span.SetStatus(codes.Error, m.message(f))
	span.SetAttributes(attribute.String(attrErrorType, string(f.Code)))
}

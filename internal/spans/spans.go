// Package spans makes the spans of governed calls with the API of OpenTelemetry. Package runtime says
// when a span begins and ends. The package links no SDK: the caller passes the provider.
//
// # Invariants
//
//	tree     a step is a child of its request's span, which is one of the caller's   [Tracer.Start]  TestSpansAreATree
//	names    attributes are those of the GenAI and MCP conventions, and tgad.*       [Tracer.Start]  TestAttributes
//	private  no argument, answer or message of an error is in a span                 [Tracer.Start]  TestSpanHasNoWordsOfATool
//	bounded  trace context and baggage from a caller are checked                     [Tracer.Start]  TestCallersContextIsChecked
package spans

import (
	"cmp"
	"context"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// Scope is the instrumentation scope of the spans.
const Scope = "github.com/tgad/tgad/runtime"

// Attributes. The first five are of the OpenTelemetry conventions for GenAI, MCP and errors.
const (
	attrOperation = "gen_ai.operation.name"
	attrTool      = "gen_ai.tool.name"
	attrToolCall  = "gen_ai.tool.call.id"
	attrMethod    = "mcp.method.name"
	attrError     = "error.type"

	attrTrace    = "tgad.trace_id"
	attrServer   = "tgad.tool_server"
	attrAttempt  = "tgad.attempt"
	attrState    = "tgad.state"
	attrReplayed = "tgad.replayed"
)

// MCP is the name of the span of a call that a client of MCP makes through tgad mcp.
const MCP = "tgad.mcp"

// Options of a [Tracer].
type Options struct {
	// NoBaggage drops the callers' baggage.
	NoBaggage bool
	// MCP says whether a tool server speaks MCP; nil says that none does.
	MCP func(server string) bool
}

// Tracer is a [runtime.Tracer].
type Tracer struct {
	opts   Options
	tracer trace.Tracer
}

var _ runtime.Tracer = (*Tracer)(nil)

// New makes a tracer with a provider.
func New(by trace.TracerProvider, o Options) *Tracer {
	if o.MCP == nil {
		o.MCP = func(string) bool { return false }
	}
	return &Tracer{o, by.Tracer(Scope)}
}

// Start implements [runtime.Tracer].
func (t *Tracer) Start(parent runtime.SpanContext, s runtime.Span) (own runtime.SpanContext, end func(runtime.Span)) {
	ctx := at(parent.Traceparent, parent.Tracestate)
	asked := strings.HasPrefix(s.Name, "tgad.")
	if !asked {
		// The parent is a span of this process. It was passed as text, so Extract marked it as remote.
		ctx = trace.ContextWithSpanContext(ctx, trace.SpanContextFromContext(ctx).WithRemote(false))
	}
	kind, list := trace.SpanKindInternal, attributes(s)
	switch {
	case s.Name == MCP:
		kind = trace.SpanKindServer
		list = append(list, attribute.String(attrMethod, "tools/call"))
	case s.Name == "send":
		kind = trace.SpanKindClient
		if t.opts.MCP(s.Server) {
			list = append(list, attribute.String(attrMethod, "tools/call"))
		}
	}
	if asked || s.Name == "send" {
		list = append(list, attribute.String(attrOperation, "execute_tool"))
	}
	ctx, span := t.tracer.Start(ctx, s.Name, trace.WithSpanKind(kind), trace.WithAttributes(list...))
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	own = runtime.SpanContext{Traceparent: carrier["traceparent"], Tracestate: carrier["tracestate"]}
	if b := parent.Baggage; b != "" && !t.opts.NoBaggage {
		// Drop baggage that is invalid or has over 8192 bytes.
		if _, err := baggage.Parse(b); err == nil {
			own.Baggage = b
		}
	}
	if !span.IsRecording() {
		return own, nil
	}
	return own, func(s runtime.Span) { finish(span, s) }
}

// at is a context with the span context of a caller; without one if the values are invalid.
func at(traceparent, tracestate string) context.Context {
	return propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": traceparent, "tracestate": tracestate})
}

// attributes are those that say what a span is about.
func attributes(s runtime.Span) []attribute.KeyValue {
	list := make([]attribute.KeyValue, 0, 8)
	if s.Tool != "" {
		list = append(list, attribute.String(attrTool, s.Tool), attribute.String(attrServer, s.Server))
	}
	if !s.TraceID.IsZero() {
		list = append(list, attribute.String(attrTrace, s.TraceID.String()))
	}
	if !s.ToolCallID.IsZero() {
		list = append(list, attribute.String(attrToolCall, s.ToolCallID.String()))
	}
	if s.Attempt != 0 {
		list = append(list, attribute.Int64(attrAttempt, int64(s.Attempt)))
	}
	return list
}

// finish ends a span, with the values that are known at the end. Of an error it has only the code,
// because the message may quote a tool's answer.
func finish(span trace.Span, s runtime.Span) {
	list := attributes(s)
	if s.State != tga.None {
		list = append(list, attribute.String(attrState, s.State.String()))
	}
	if s.Replayed {
		list = append(list, attribute.Bool(attrReplayed, true))
	}
	if s.First != "" {
		span.AddLink(trace.Link{SpanContext: trace.SpanContextFromContext(at(s.First, ""))})
	}
	if s.Err != nil {
		code := cmp.Or(string(tga.CodeOf(s.Err)), "_OTHER")
		list = append(list, attribute.String(attrError, code))
		span.SetStatus(codes.Error, code)
	}
	span.SetAttributes(list...)
	span.End()
}

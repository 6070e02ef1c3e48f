package mcpfront

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/tgad/tgad/internal/mcpfront/fronttest"
	"github.com/tgad/tgad/internal/spans"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// tracer keeps the ended spans by name, each with its parent.
type tracer struct {
	mu    sync.Mutex
	n     int
	ended []tracedSpan
}

type tracedSpan struct {
	runtime.Span
	parent, own runtime.SpanContext
}

func (r *tracer) Start(parent runtime.SpanContext, s runtime.Span) (runtime.SpanContext, func(runtime.Span)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.n++
	own := runtime.SpanContext{Traceparent: fmt.Sprintf("span-%d", r.n), Baggage: parent.Baggage}
	return own, func(s runtime.Span) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.ended = append(r.ended, tracedSpan{s, parent, own})
	}
}

func (r *tracer) named(name string) (all []tracedSpan) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.ended {
		if s.Name == name {
			all = append(all, s)
		}
	}
	return all
}

// overheard is a log that notes the span of each request.
type overheard struct {
	fronttest.Local
	mu            sync.Mutex
	begun, finish []runtime.SpanContext
}

func (o *overheard) Begin(ctx context.Context, req runtime.BeginRequest) (runtime.Begun, error) {
	o.mu.Lock()
	o.begun = append(o.begun, runtime.SpanContextOf(ctx))
	o.mu.Unlock()
	return o.Local.Begin(ctx, req)
}

func (o *overheard) Finish(ctx context.Context, trace tga.ID, permit runtime.Permit, f runtime.Finished) (runtime.Result, error) {
	o.mu.Lock()
	o.finish = append(o.finish, runtime.SpanContextOf(ctx))
	o.mu.Unlock()
	return o.Local.Finish(ctx, trace, permit, f)
}

// TestCallOfAClientIsTraced: the span of a call is a child of the span that `_meta` names. The tool server
// gets the span of the send, and requests to the log are below the call's span. A repeat that is served
// has no send.
func TestCallOfAClientIsTraced(t *testing.T) {
	w, r := newWorld(t), &tracer{}
	o := &overheard{Local: w.Local()}
	w.opts.Tracer, w.log = r, o
	h := w.start()
	h.Handshake()
	const meta = `{"traceparent":"theirs","baggage":"tenant=7","dev.tgad/idempotencyKey":"k"}`
	for _, id := range []string{"1", "2"} {
		fronttest.Has(t, h.Call(id, "charge", `{"amount":1}`, meta), `"ok"`)
	}
	if err := h.Stop(); err != nil {
		t.Error(err)
	}
	calls, sends := r.named(spans.MCP), r.named("send")
	if len(calls) != 2 || len(sends) != 1 {
		t.Fatalf("calls %+v, sends %+v", calls, sends)
	}
	theirs := runtime.SpanContext{Traceparent: "theirs", Baggage: "tenant=7"}
	call, send := calls[0], sends[0]
	if call.parent != theirs || call.Tool != "charge" || call.TraceID.IsZero() || call.Replayed || call.Err != nil || !calls[1].Replayed {
		t.Errorf("calls %+v", calls)
	}
	if send.parent != call.own || send.Attempt != 1 || send.Err != nil || send.TraceID != call.TraceID {
		t.Errorf("send %+v below %+v", send, call.own)
	}
	e := w.Effects()
	if len(e) != 1 {
		t.Fatalf("effects %+v", e)
	}
	fronttest.Has(t, e[0].Line, `"traceparent":"`+send.own.Traceparent+`","baggage":"tenant=7"`)
	if len(o.begun) != 2 || o.begun[0] != call.own || len(o.finish) != 1 || o.finish[0] != call.own {
		t.Errorf("the log was asked under %v and %v, want %v", o.begun, o.finish, call.own)
	}
}

package runtime_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// recorder is a Tracer that keeps the spans that ended.
type recorder struct {
	mu    sync.Mutex
	n     int
	ended []recorded
}

type recorded struct {
	runtime.Span
	parent, own string // traceparents
}

func (r *recorder) Start(parent runtime.SpanContext, s runtime.Span) (runtime.SpanContext, func(runtime.Span)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.n++
	own := runtime.SpanContext{Traceparent: fmt.Sprintf("00-%032x-%016x-01", 1, r.n), Tracestate: parent.Tracestate, Baggage: parent.Baggage}
	return own, func(s runtime.Span) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.ended = append(r.ended, recorded{s, parent.Traceparent, own.Traceparent})
	}
}

// named returns the one span of a name.
func (r *recorder) named(t *testing.T, name string) recorded {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []recorded
	for _, s := range r.ended {
		if s.Name == name {
			found = append(found, s)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d spans %s, want 1, of %+v", len(found), name, r.ended)
	}
	return found[0]
}

func (r *recorder) names() (all []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.ended {
		all = append(all, s.Name)
	}
	return all
}

func (r *recorder) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = nil
}

// traced is a bench with a recorder, and the span contexts that reached its tool.
func traced(t *testing.T, policy runtime.Policy) (*bench, *recorder, *[]runtime.SpanContext) {
	r, sent := &recorder{}, &[]runtime.SpanContext{}
	b := setup(t, policy, func(b *bench) {
		b.opts.Tracer = r
		b.tools = runtime.DispatcherFunc(func(ctx context.Context, c runtime.Call) (runtime.Reply, error) {
			*sent = append(*sent, runtime.SpanContextOf(ctx))
			return b.tool.Dispatch(ctx, c)
		})
	})
	return b, r, sent
}

const callers = "00-000000000000000000000000000000ff-00000000000000ff-01"

// TestCallHasASpanForEachStep: the call's span is a child of the caller's, and the steps are its
// children. The tool server gets the span of the send, and the caller's baggage.
func TestCallHasASpanForEachStep(t *testing.T) {
	b, r, sent := traced(t, park)
	ctx := runtime.WithSpanContext(context.Background(), runtime.SpanContext{Traceparent: callers, Tracestate: "a=b", Baggage: "tenant=7"})
	// A send that goes on without its caller has another context, with the same span.
	res, err := b.rt.Call(runtime.WithLife(ctx, context.Background()), charge("k"))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(r.names(), " "); got != "decide reserve send settle tgad.call" {
		t.Errorf("spans %s", got)
	}
	call := r.named(t, "tgad.call")
	if call.parent != callers || call.TraceID != res.TraceID || call.ToolCallID != res.ToolCallID || call.State != tga.Completed ||
		call.Server != "payments" || call.Tool != "charge" || call.Replayed || call.First != "" || call.Err != nil {
		t.Errorf("call %+v", call)
	}
	for name, state := range map[string]tga.State{"decide": tga.Authorized, "reserve": tga.Executing, "send": tga.Completed, "settle": tga.Completed} {
		s := r.named(t, name)
		if s.parent != call.own || s.TraceID != res.TraceID || s.State != state || s.Err != nil {
			t.Errorf("%s: %+v", name, s)
		}
	}
	send := r.named(t, "send")
	if want := (runtime.SpanContext{Traceparent: send.own, Tracestate: "a=b", Baggage: "tenant=7"}); !slices.Equal(*sent, []runtime.SpanContext{want}) {
		t.Errorf("the tool server got %+v, want %+v", *sent, want)
	}
	if send.Attempt != 1 || send.ToolCallID != res.ToolCallID {
		t.Errorf("send %+v", send)
	}
}

// TestReplayedAndRecoveredCallsLinkToTheFirst: they use the traceparent in the log, also in another process.
func TestReplayedAndRecoveredCallsLinkToTheFirst(t *testing.T) {
	b, r, sent := traced(t, runtime.Policy{Licence: licence(ledger.DedupeKey).Licence, LicenceSet: true, Resends: -1})
	b.tool.answer = func(n int, c runtime.Call) (runtime.Reply, error) {
		if n == 1 {
			return unknown(n, c)
		}
		return ok(`{}`), nil
	}
	res, err := b.call(charge("k"))
	wantCode(t, err, tga.EffectInDoubt)
	first := r.named(t, "tgad.call")
	wantCode(t, first.Err, tga.EffectInDoubt)
	if s := r.named(t, "send"); s.Err == nil || s.State != tga.Executing {
		t.Errorf("a send in doubt: %+v", s)
	}
	r.forget()
	b.reopen()
	if _, err := b.rt.Recover(context.Background(), res.TraceID); err != nil {
		t.Fatal(err)
	}
	if got := r.named(t, "tgad.recover"); got.First != first.own || got.Tool != "charge" || got.State != tga.Completed {
		t.Errorf("recovered: %+v, the first was %s", got, first.own)
	}
	if s := r.named(t, "send"); s.Attempt != 2 || s.Err != nil || len(*sent) != 2 || (*sent)[0] == (*sent)[1] {
		t.Errorf("the attempt after it: %+v, sent %+v", s, *sent)
	}
	r.forget()
	b.mustCall(charge("k"))
	if got := r.named(t, "tgad.call"); got.First != first.own || !got.Replayed {
		t.Errorf("replayed: %+v, the first was %s", got, first.own)
	}
	if got := strings.Join(r.names(), " "); got != "decide reserve tgad.call" {
		t.Errorf("a replayed call has spans %s", got)
	}
}

// TestBegunCallHasItsSpans: each half of a remote executor's call is under the span of its caller.
func TestBegunCallHasItsSpans(t *testing.T) {
	b, r, _ := traced(t, park)
	ctx := runtime.WithSpanContext(context.Background(), runtime.SpanContext{Traceparent: callers})
	begun, err := b.rt.Begin(ctx, runtime.BeginRequest{Request: charge("k"), BeginID: "b"})
	if err != nil || begun.Standing != runtime.BeginSend {
		t.Fatal(begun.Standing, err)
	}
	if _, err := b.rt.Finish(ctx, begun.Result.TraceID, begun.Permit, runtime.Finished{Reply: ok(`{}`)}); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(r.names(), " "); got != "decide reserve tgad.begin settle tgad.finish" {
		t.Errorf("spans %s", got)
	}
	begin, finish := r.named(t, "tgad.begin"), r.named(t, "tgad.finish")
	if begin.parent != callers || finish.parent != callers || finish.First != begin.own || finish.Tool != "charge" {
		t.Errorf("begin %+v, finish %+v", begin, finish)
	}
}

// TestTracingChangesOneMemberOfTheLog: with a Tracer, the request's meta has the span context of the run
// that made the request. Nothing else in the store differs, and no caller can set this member.
func TestTracingChangesOneMemberOfTheLog(t *testing.T) {
	var metas []tga.Meta
	var calls [][]byte
	for _, tracer := range []runtime.Tracer{nil, &recorder{}} {
		b := setup(t, park, func(b *bench) { b.opts.Tracer = tracer })
		ctx := runtime.WithSpanContext(context.Background(), runtime.SpanContext{Traceparent: callers})
		res, err := b.rt.Call(ctx, charge("k"))
		if err != nil {
			t.Fatal(err)
		}
		trace, err := b.db.Load(context.Background(), res.TraceID)
		if err != nil {
			t.Fatal(err)
		}
		metas, calls = append(metas, trace.Request.Meta), append(calls, trace.Call.Call.Call.Args)
		for _, a := range []*tga.Artifact{trace.Decision, trace.Call, trace.Effect} {
			if _, there := a.Meta[tga.MetaSpanContext]; there {
				t.Errorf("a %s has it too", a.Type)
			}
		}
		wrong := charge("other")
		wrong.Meta = tga.Meta{tga.MetaSpanContext: callers}
		_, err = b.call(wrong)
		wantCode(t, err, tga.ValidationError)
	}
	names := func(m tga.Meta) []string { return slices.Sorted(maps.Keys(m)) }
	if got := names(metas[1]); !slices.Contains(got, tga.MetaSpanContext) || len(got) != len(names(metas[0]))+1 || slices.Contains(names(metas[0]), tga.MetaSpanContext) {
		t.Errorf("the meta has %q, and without a Tracer %q", got, names(metas[0]))
	}
	if string(calls[0]) != string(calls[1]) {
		t.Errorf("the arguments are %s and %s", calls[0], calls[1])
	}
}

// panics is a Tracer that only panics: see TestEveryHookMayPanic.
type panics struct{ atEnd bool }

func (p panics) Start(parent runtime.SpanContext, s runtime.Span) (runtime.SpanContext, func(runtime.Span)) {
	if !p.atEnd {
		panic("at the start")
	}
	return parent, func(runtime.Span) { panic("at the end") }
}

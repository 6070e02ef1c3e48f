package emit_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/internal/turn/emit"
	"github.com/tgad/tgad/internal/turn/state"
	"github.com/tgad/tgad/schemas/tga"
)

// secret is in all texts of users, models and tools.
const secret = "hunter2"

var start = time.Date(2026, 1, 15, 18, 0, 0, 0, time.UTC)

func at(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }

func id(n byte) tga.ID {
	return tga.ID{0x01, 0x9b, 0, 0, 0, n, 0x70, 0, 0x80, 0, 0, 0, 0, 0, 0, n}
}

func ptr[T any](v T) *T { return &v }

// full is an emission with every part, of the first turn of its invocation.
func full() *turn.Emission {
	return &turn.Emission{
		Agent: &turn.Agent{
			Name: "refund-desk", Version: "2.4.1", Role: secret,
			Model: turn.ModelSpec{Provider: "anthropic", Model: "claude-a"},
		},
		InvocationID: id(1), InteractionID: id(2), SessionID: "session-1", InstanceID: "instance-1", TurnNumber: 3,
		SpanContext: turn.SpanContext{
			Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
			Tracestate:  "vendor=1",
			Baggage:     "ossa.tenant.id=acme,ossa.session.id=other,color=blue",
		},
		InvocationStarted: at(0), Started: at(0), Ended: at(900),
		Phases: []turn.PhaseTiming{{Phase: turn.Init, Started: at(0), Ended: at(1)}, {Phase: turn.Infer, Started: at(1), Ended: at(500)}},
		Inferences: []turn.Inference{
			{TraceID: id(10), Attempt: 1, Model: "claude-a", Started: at(10), Ended: at(200), Failure: &turn.Failure{Code: tga.LLMTimeout, Message: secret}},
			{
				TraceID: id(11), Attempt: 2, Model: "claude-b", Answered: "claude-b-2", ResponseID: "msg_1",
				Parameters: turn.Parameters{MaxTokens: ptr(int64(64)), Temperature: ptr(0.5), TopP: ptr(0.9)},
				Finish:     turn.FinishToolUse, Usage: turn.Usage{Input: 100, Output: 20, Total: 120}, Started: at(210), Ended: at(500),
			},
		},
		Tools: []turn.ToolExecution{
			{CallID: "call_1", Name: "lookup", Server: "orders", Remote: "find", Source: turn.FromMCP, Transport: turn.OverMCP, TraceID: id(12), Input: secret, Status: turn.ToolSucceeded, Output: secret, Started: at(510), Ended: at(600)},
			{CallID: "call_2", Name: "refund", Source: turn.FromManifest, Transport: turn.OverFunction, TraceID: id(13), Input: secret, Status: turn.ToolTimedOut, Failure: &turn.Failure{Code: tga.ToolTimeout, Message: secret}, Retries: 2, Started: at(600), Ended: at(800)},
		},
		Delegations: []turn.DelegationTiming{{Type: turn.Handoff, Target: "support", InteractionID: id(14), Started: at(810), Ended: at(850)}},
		State: turn.StateTiming{
			Mode: state.Session, Isolation: state.Serializable, TTL: time.Hour, Transaction: "tx-1", Changes: 2,
			LoadStarted: at(1), LoadEnded: at(2), SaveStarted: at(880), SaveEnded: at(890),
		},
		Usage: turn.Usage{Input: 100, Output: 20, Total: 120},
		First: true, Last: true,
	}
}

// memory is a sink that keeps its events.
type memory struct {
	mu     sync.Mutex
	events []emit.Event
	closed bool
}

func (m *memory) Write(_ context.Context, e emit.Event) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.events = append(m.events, e)
	return nil
}

func (m *memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	return nil
}

// outputs are all outputs of an emitter.
type outputs struct {
	emitter *emit.Emitter
	spans   *tracetest.InMemoryExporter
	reader  *sdkmetric.ManualReader
	log     *bytes.Buffer
	sink    *memory
}

func everything(t *testing.T, change func(*emit.Options)) *outputs {
	t.Helper()
	o := &outputs{spans: tracetest.NewInMemoryExporter(), reader: sdkmetric.NewManualReader(), log: &bytes.Buffer{}, sink: &memory{}}
	opts := emit.Options{
		Tracer: sdktrace.NewTracerProvider(sdktrace.WithSyncer(o.spans), sdktrace.WithIDGenerator(emit.IDs{})),
		Meter:  sdkmetric.NewMeterProvider(sdkmetric.WithReader(o.reader)),
		Logger: slog.New(slog.NewJSONHandler(o.log, nil)),
		Sinks:  []emit.Sink{o.sink},
	}
	if change != nil {
		change(&opts)
	}
	var err error
	if o.emitter, err = emit.New(opts); err != nil {
		t.Fatal(err)
	}
	return o
}

func (o *outputs) emit(t *testing.T, list ...*turn.Emission) {
	t.Helper()
	for _, e := range list {
		if err := o.emitter.Emit(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
}

func (o *outputs) close(t *testing.T) {
	t.Helper()
	if err := o.emitter.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// span returns the nth span of a name, by start.
func (o *outputs) span(t *testing.T, name string, n int) tracetest.SpanStub {
	t.Helper()
	var found []tracetest.SpanStub
	for _, s := range o.spans.GetSpans() {
		if s.Name == name {
			found = append(found, s)
		}
	}
	slices.SortFunc(found, func(a, b tracetest.SpanStub) int { return a.StartTime.Compare(b.StartTime) })
	if n >= len(found) {
		t.Fatalf("there are %d spans %s, want more than %d", len(found), name, n)
	}
	return found[n]
}

func attrs(s tracetest.SpanStub) map[string]string {
	m := map[string]string{}
	for _, kv := range s.Attributes {
		m[string(kv.Key)] = kv.Value.String()
	}
	return m
}

// records returns the lines of the log.
func (o *outputs) records(t *testing.T) []map[string]any {
	t.Helper()
	var all []map[string]any
	for dec := json.NewDecoder(bytes.NewReader(o.log.Bytes())); dec.More(); {
		m := map[string]any{}
		if err := dec.Decode(&m); err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	return all
}

// metrics returns the points of the metrics by name.
func (o *outputs) metrics(t *testing.T) map[string]metricdata.Metrics {
	t.Helper()
	var rm metricdata.ResourceMetrics
	if err := o.reader.Collect(t.Context(), &rm); err != nil {
		t.Fatal(err)
	}
	m := map[string]metricdata.Metrics{}
	for _, s := range rm.ScopeMetrics {
		for _, x := range s.Metrics {
			m[x.Name] = x
		}
	}
	return m
}

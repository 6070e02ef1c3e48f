package emit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/schemas/tga"
)

// Options say where telemetry is sent. The zero Options send nothing.
type Options struct {
	Tracer trace.TracerProvider // nil: no spans. See [IDs].
	Meter  metric.MeterProvider // nil: no metrics
	Logger *slog.Logger         // nil: no records, and failures of this package are not logged
	// Sinks get the events, each through a queue of its own. The emitter closes them.
	Sinks []Sink
	// Source is the source of events, a URI reference; "" = "/agents/" and the agent's id.
	Source string
	// Storage is the value of ossa.state.storage_type; "" = "kv".
	Storage string
	// Wait bounds how long Emit waits for spans, metrics and records: 0 = 1 s.
	Wait time.Duration
	// WithMessages sends the messages of failures, not only their codes. Messages may quote what
	// a tool, a model or a user said.
	WithMessages bool
}

// DefaultWait is how long Emit waits unless told otherwise.
const DefaultWait = time.Second

// mostStuck bounds the emissions that wait for an exporter which does not answer.
const mostStuck = 4

// Errors of Emit. They do not affect the turn.
var (
	ErrClosed = errors.New("emit: the emitter is closed")
	ErrStuck  = errors.New("emit: an exporter does not answer")
)

// Counts are totals since New.
type Counts struct {
	Emissions uint64 // turns reported
	Stuck     uint64 // emissions whose exporters did not answer in time
	Panics    uint64 // recovered panics of outputs
	Sinks     []SinkCounts
}

// SinkCounts are a sink's totals, in events.
type SinkCounts struct{ Sent, Failed, Dropped uint64 }

// Emitter is a [turn.Emitter]. It is safe for concurrent use.
type Emitter struct {
	opts        Options
	tracer      trace.Tracer // nil: no spans
	instruments *instruments // nil: no metrics
	queues      []*queue
	slots       chan struct{} // one slot for each emission that the exporters handle now
	closed      atomic.Bool

	emissions, stuck, panics atomic.Uint64

	mu   sync.Mutex
	open []*invocation // oldest first
}

var _ turn.Emitter = (*Emitter)(nil)

// New makes an emitter. Close ends it.
func New(o Options) (*Emitter, error) {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.Storage = cmp.Or(o.Storage, "kv")
	o.Wait = cmp.Or(o.Wait, DefaultWait)
	if o.Wait < 0 {
		return nil, tga.Errorf(tga.ValidationError, "emit: wait %v is negative", o.Wait)
	}
	m := &Emitter{opts: o, slots: make(chan struct{}, mostStuck)}
	if o.Tracer != nil {
		m.tracer = o.Tracer.Tracer(Scope, trace.WithSchemaURL(SchemaURL))
	}
	if o.Meter != nil {
		var err error
		if m.instruments, err = newInstruments(o.Meter); err != nil {
			return nil, fmt.Errorf("emit: %w", err)
		}
	}
	for _, s := range o.Sinks {
		m.queues = append(m.queues, newQueue(s, o.Logger))
	}
	return m, nil
}

// Emit reports a turn. It returns when the exporters have the spans, metrics and records, or
// after Options.Wait, or when ctx ends. By then the events are in the queues of the sinks. It
// keeps e, which may not be changed afterwards.
func (m *Emitter) Emit(ctx context.Context, e *turn.Emission) error {
	if e == nil || e.Agent == nil {
		return tga.Errorf(tga.ValidationError, "emit: an emission without an agent")
	}
	if m.closed.Load() {
		return ErrClosed
	}
	m.emissions.Add(1)
	c, stuck := m.observe(ctx, e)
	list, err := m.guardEvents(e, c)
	for _, q := range m.queues {
		for _, ev := range list {
			q.put(ev)
		}
	}
	return errors.Join(stuck, err)
}

// observe makes spans, metrics and records in a goroutine of its own, and waits for them within
// the bound: an exporter may block for any time.
func (m *Emitter) observe(ctx context.Context, e *turn.Emission) (contexts, error) {
	select {
	case m.slots <- struct{}{}:
	default:
		m.stuck.Add(1)
		return contexts{}, ErrStuck
	}
	ctx, cancel := context.WithTimeout(ctx, m.opts.Wait)
	defer cancel()
	// Exporters get a context that outlives the wait: they need not drop what they have because
	// this function gives up.
	away := context.WithoutCancel(ctx)
	spans := make(chan contexts, 1)
	done := make(chan error, 1)
	go func() {
		defer func() { <-m.slots }()
		var c contexts
		err := m.guard("spans", func() { c = m.spans(away, e) })
		spans <- c
		if m.instruments != nil {
			err = errors.Join(err, m.guard("metrics", func() { m.instruments.record(away, e) }))
		}
		done <- errors.Join(err, m.guard("records", func() { m.logs(away, e, c) }))
	}()
	var c contexts
	for {
		select {
		case c = <-spans:
			spans = nil
		case err := <-done:
			if spans != nil {
				c = <-spans // sent before done
			}
			return c, err
		case <-ctx.Done():
			m.stuck.Add(1)
			return c, fmt.Errorf("%w: %w", ErrStuck, context.Cause(ctx))
		}
	}
}

func (m *Emitter) guardEvents(e *turn.Emission, c contexts) (list []Event, err error) {
	if len(m.queues) == 0 {
		return nil, nil
	}
	if p := m.guard("events", func() { list, err = m.events(e, c) }); p != nil {
		return nil, p
	}
	return list, err
}

// guard turns a panic of an output into an error.
func (m *Emitter) guard(what string, f func()) (err error) {
	defer func() {
		if p := recover(); p != nil {
			m.panics.Add(1)
			err = fmt.Errorf("emit: %s: panic: %v", what, p)
		}
	}()
	f()
	return nil
}

// Counts returns the totals so far.
func (m *Emitter) Counts() Counts {
	c := Counts{Emissions: m.emissions.Load(), Stuck: m.stuck.Load(), Panics: m.panics.Load()}
	for _, q := range m.queues {
		c.Sinks = append(c.Sinks, q.counts())
	}
	return c
}

// Close ends the spans of open invocations, sends queued events until ctx ends, and closes the
// sinks. Events that are left in a queue then are dropped and counted.
func (m *Emitter) Close(ctx context.Context) error {
	if m.closed.Swap(true) {
		return nil
	}
	spans := make(chan error, 1)
	go func() {
		spans <- m.guard("spans", func() { m.endInvocations(m.surplus(0)) })
	}()
	var all []error
	for _, q := range m.queues {
		q.end()
	}
	for _, q := range m.queues {
		all = append(all, q.wait(ctx))
	}
	select {
	case err := <-spans:
		all = append(all, err)
	case <-ctx.Done():
		all = append(all, fmt.Errorf("%w: %w", ErrStuck, context.Cause(ctx)))
	}
	return errors.Join(all...)
}

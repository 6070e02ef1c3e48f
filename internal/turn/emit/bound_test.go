package emit_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/tgad/tgad/internal/turn/emit"
)

// stuck is a span processor that blocks until it is released. (The SDK's own processors hold a
// mutex while they export, which synctest counts as running.)
type stuck struct{ let chan struct{} }

func (s stuck) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (s stuck) OnEnd(sdktrace.ReadOnlySpan)                     { <-s.let }
func (s stuck) Shutdown(context.Context) error                  { return nil }
func (s stuck) ForceFlush(context.Context) error                { return nil }

func stuckTracer(let chan struct{}) func(*emit.Options) {
	return func(o *emit.Options) {
		o.Tracer = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(stuck{let}))
	}
}

// TestStuckExporterDelaysNoLongerThanWait: Emit waits at most Options.Wait for an exporter that
// does not answer, and sends the events nevertheless. If too many emissions wait, it does not
// wait at all.
func TestStuckExporterDelaysNoLongerThanWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		let := make(chan struct{})
		o := everything(t, func(opts *emit.Options) {
			stuckTracer(let)(opts)
			opts.Wait = 3 * time.Second
			opts.Logger = nil
		})
		for i := range 6 {
			begin := time.Now()
			err := o.emitter.Emit(t.Context(), full())
			took := time.Since(begin)
			if !errors.Is(err, emit.ErrStuck) {
				t.Fatalf("emission %d: %v", i, err)
			}
			want := 3 * time.Second
			if i >= 4 {
				want = 0
			}
			if took != want {
				t.Errorf("emission %d took %v, want %v", i, took, want)
			}
		}
		synctest.Wait()
		if len(o.sink.events) != 6*9 {
			t.Errorf("%d events went out", len(o.sink.events))
		}
		if c := o.emitter.Counts(); c.Stuck != 6 || c.Emissions != 6 {
			t.Errorf("counts %+v", c)
		}
		close(let)
		synctest.Wait()
		if err := o.emitter.Emit(t.Context(), full()); err != nil {
			t.Errorf("after the exporter went on: %v", err)
		}
		o.close(t)
	})
}

// TestEndOfContextEndsTheWait: a caller without time left does not wait.
func TestEndOfContextEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		let := make(chan struct{})
		o := everything(t, stuckTracer(let))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		begin := time.Now()
		if err := o.emitter.Emit(ctx, full()); !errors.Is(err, emit.ErrStuck) || time.Since(begin) != 10*time.Millisecond {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
		close(let)
		o.close(t)
	})
}

// TestCloseEndsInTime: with a stuck exporter and a stuck sink Close gives up when its context
// ends, and returns an error.
func TestCloseEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		let := make(chan struct{})
		slow := &slowSink{let: let}
		o := everything(t, func(opts *emit.Options) {
			stuckTracer(let)(opts)
			opts.Sinks = append(opts.Sinks, slow)
		})
		one, _ := chain()
		if err := o.emitter.Emit(t.Context(), one); !errors.Is(err, emit.ErrStuck) {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		err := o.emitter.Close(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != time.Second {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
		if !o.sink.closed {
			t.Error("the sink that was not stuck is open")
		}
		if err := o.emitter.Emit(t.Context(), one); !errors.Is(err, emit.ErrClosed) {
			t.Errorf("emitting after Close: %v", err)
		}
		close(let)
		synctest.Wait()
	})
}

// slowSink blocks each Write until let is closed, and ignores its context.
type slowSink struct {
	let    chan struct{}
	writes atomic.Int64
}

func (s *slowSink) Write(context.Context, emit.Event) error {
	<-s.let
	s.writes.Add(1)
	return nil
}
func (s *slowSink) Close() error { return nil }

// TestSlowSinkDropsAndCounts: a sink that takes no event delays nobody. Its queue fills, further
// events are dropped and counted, and another sink gets every event.
func TestSlowSinkDropsAndCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &slowSink{let: make(chan struct{})}
		o := everything(t, func(opts *emit.Options) { opts.Sinks = append(opts.Sinks, slow) })
		begin := time.Now()
		const turns = 120 // of 9 events
		for range turns {
			o.emit(t, full())
			synctest.Wait() // the other sink has all events
		}
		if took := time.Since(begin); took != 0 {
			t.Errorf("%d emissions took %v", turns, took)
		}
		// The sink has one event, and a full queue waits.
		c := o.emitter.Counts()
		if want := uint64(turns*9 - emit.QueueLength - 1); c.Sinks[1].Dropped != want {
			t.Errorf("dropped %d, want %d", c.Sinks[1].Dropped, want)
		}
		if c.Sinks[0].Sent != turns*9 || c.Sinks[0].Dropped != 0 {
			t.Errorf("the other sink: %+v", c.Sinks[0])
		}
		close(slow.let)
		o.close(t)
		if c := o.emitter.Counts().Sinks[1]; c.Sent != emit.QueueLength+1 || slow.writes.Load() != emit.QueueLength+1 {
			t.Errorf("after it went on: %+v, %d writes", c, slow.writes.Load())
		}
	})
}

// heeding is a sink that blocks until its context ends.
type heeding struct{ memory }

func (*heeding) Write(ctx context.Context, _ emit.Event) error { <-ctx.Done(); return ctx.Err() }

// TestCloseGivesUpWhatIsQueued: events that are still queued when Close's context ends are
// counted as dropped.
func TestCloseGivesUpWhatIsQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &heeding{}
		m, err := emit.New(emit.Options{Sinks: []emit.Sink{sink}})
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Emit(t.Context(), full()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := m.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		synctest.Wait()
		if c := m.Counts().Sinks[0]; c.Failed != 1 || c.Dropped != 8 {
			t.Errorf("counts %+v", c)
		}
	})
}

type panicking struct{}

func (panicking) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error { panic("exporter") }
func (panicking) Shutdown(context.Context) error                             { return nil }
func (panicking) Write(context.Context, emit.Event) error                    { panic("sink") }
func (panicking) Close() error                                               { return nil }
func (panicking) Enabled(context.Context, slog.Level) bool                   { panic("handler") }
func (panicking) Handle(context.Context, slog.Record) error                  { panic("handler") }
func (p panicking) WithAttrs([]slog.Attr) slog.Handler                       { return p }
func (p panicking) WithGroup(string) slog.Handler                            { return p }

// TestPanicsAreContained: an output that panics is an error of Emit, and does not stop the other
// outputs.
func TestPanicsAreContained(t *testing.T) {
	o := everything(t, func(opts *emit.Options) {
		opts.Tracer = sdktrace.NewTracerProvider(sdktrace.WithSyncer(panicking{}))
		opts.Sinks = append(opts.Sinks, panicking{})
	})
	err := o.emitter.Emit(t.Context(), full())
	if err == nil || !strings.Contains(err.Error(), "spans: panic: exporter") {
		t.Errorf("error %v", err)
	}
	// The invocation's span, which was not reached, ends with the emitter.
	if err := o.emitter.Close(t.Context()); err == nil || !strings.Contains(err.Error(), "spans: panic: exporter") {
		t.Errorf("close: %v", err)
	}
	if c := o.emitter.Counts(); c.Panics != 2 || c.Sinks[1].Failed != 9 || c.Sinks[0].Sent != 9 {
		t.Errorf("counts %+v", c)
	}
	if len(o.metrics(t)) != 7 { // all metrics but the errors
		t.Error("metrics are missing")
	}
	if got := o.log.String(); strings.Count(got, "event not sent") != 1 {
		t.Errorf("a failing sink is logged %d times", strings.Count(got, "event not sent"))
	}
	handler := everything(t, func(opts *emit.Options) { opts.Logger = slog.New(panicking{}) })
	if err := handler.emitter.Emit(t.Context(), full()); err == nil || !strings.Contains(err.Error(), "records: panic: handler") {
		t.Errorf("error %v", err)
	}
	handler.close(t)
	if len(handler.sink.events) != 9 || len(handler.spans.GetSpans()) == 0 {
		t.Error("a panicking handler stops others")
	}
}

// failing is a sink that fails each Write until it is repaired.
type failing struct {
	memory
	mended atomic.Bool
}

func (f *failing) Write(ctx context.Context, e emit.Event) error {
	if !f.mended.Load() {
		return io.ErrClosedPipe
	}
	return f.memory.Write(ctx, e)
}

// TestFailingSinkIsLoggedOnceInARow, and again when it works.
func TestFailingSinkIsLoggedOnceInARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &failing{}
		o := everything(t, func(opts *emit.Options) { opts.Sinks = []emit.Sink{sink} })
		o.emit(t, full())
		synctest.Wait()
		sink.mended.Store(true)
		o.emit(t, full())
		o.close(t)
		log := o.log.String()
		if strings.Count(log, "event not sent") != 1 || strings.Count(log, "events are sent again") != 1 {
			t.Errorf("the log says %s", log)
		}
		if c := o.emitter.Counts().Sinks[0]; c.Failed != 9 || c.Sent != 9 {
			t.Errorf("counts %+v", c)
		}
	})
}

// TestOpenInvocationsAreBounded: the oldest of the invocations that never end are dropped.
func TestOpenInvocationsAreBounded(t *testing.T) {
	o := everything(t, func(opts *emit.Options) { opts.Logger, opts.Sinks = nil, nil })
	const most = 1024
	for i := range most + 1 {
		e := full()
		e.Last = false
		e.InvocationID[3], e.InvocationID[4] = byte(i>>8), byte(i)
		if n := count(o, "ossa.agent.invoke"); n != 0 {
			t.Fatalf("after %d invocations %d are ended", i, n)
		}
		o.emit(t, e)
		o.spans.Reset()
		if i == most {
			break
		}
	}
	o.close(t)
	if n := count(o, "ossa.agent.invoke"); n != most {
		t.Errorf("Close ended %d invocations, want %d", n, most)
	}
}

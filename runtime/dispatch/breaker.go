package dispatch

import (
	"context"
	"errors"
	"time"

	"github.com/failsafe-go/failsafe-go/circuitbreaker"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal"
)

// BreakerOptions configure the breaker of one server. Zero fields mean the defaults.
type BreakerOptions struct {
	Failures int           // in a row that open it; 5
	Open     time.Duration // for how long it refuses; 60 s
	Trials   int           // successes in a row, after that, that close it; 3
	// OnChange, where it is set, is told of each change: "open", "half-open" or
	// "closed". It must not block.
	OnChange func(state string)
}

func (o BreakerOptions) withDefaults() BreakerOptions {
	if o.Failures <= 0 {
		o.Failures = 5
	}
	if o.Open <= 0 {
		o.Open = time.Minute
	}
	if o.Trials <= 0 {
		o.Trials = 3
	}
	if o.OnChange == nil {
		o.OnChange = func(string) {}
	}
	return o
}

// Breaker refuses calls to a server that keeps failing: CIRCUIT_OPEN, not sent. It
// counts dispatches that ended without an answer, in doubt or certainly not sent. An
// answer counts as success whatever it says, for a tool that reports an error is a
// server that works. A call that its caller took back counts as neither, but for a
// trial: nothing was learnt, so the breaker opens again.
func Breaker(next runtime.Dispatcher, o BreakerOptions) runtime.Dispatcher {
	o = o.withDefaults()
	cb := circuitbreaker.NewBuilder[any]().
		WithFailureThreshold(uint(o.Failures)).
		WithSuccessThreshold(uint(o.Trials)).
		WithDelay(o.Open).
		OnStateChanged(func(e circuitbreaker.StateChangedEvent) { o.OnChange(e.NewState.String()) }).
		Build()
	return &breaker{next, cb}
}

type breaker struct {
	next runtime.Dispatcher
	cb   circuitbreaker.CircuitBreaker[any]
}

func (b *breaker) Dispatch(ctx context.Context, call runtime.Call) (runtime.Reply, error) {
	if !b.cb.TryAcquirePermit() {
		return runtime.Reply{}, b.refusal(call)
	}
	// A half-open breaker hands out few permits and gets one back only with a result:
	// a panic must not keep it.
	err := errors.New("panicked")
	defer func() { b.record(ctx, err) }()
	var reply runtime.Reply
	reply, err = b.next.Dispatch(ctx, call)
	return reply, err
}

func (b *breaker) record(ctx context.Context, err error) {
	switch {
	case err == nil:
		b.cb.RecordSuccess()
	case errors.Is(ctx.Err(), context.Canceled) && b.cb.IsClosed():
		// Taken back: a closed breaker holds no permit that would have to be returned.
	default:
		b.cb.RecordFailure()
	}
}

func (b *breaker) refusal(call runtime.Call) error {
	return notSent(tga.CircuitOpen, call, nil, "the server failed too often; tried again in %v", b.cb.RemainingDelay().Round(time.Millisecond))
}

// Prepare refuses a call while the breaker is open, before an attempt is marked: nothing
// of a call that is not tried is to be in the ledger. It takes no trial of a half-open one.
func (b *breaker) Prepare(ctx context.Context, call runtime.Call) ([]wal.Attachment, error) {
	if b.cb.IsOpen() && b.cb.RemainingDelay() > 0 {
		return nil, b.refusal(call)
	}
	return prepare(ctx, b.next, call)
}

package dispatch

import (
	"context"
	"errors"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/retrypolicy"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// RetryOptions bound transport retry inside one attempt. Zero fields mean the
// defaults.
type RetryOptions struct {
	Tries    int           // transport tries in all, the first included; 3
	Delay    time.Duration // before the second try, doubled for each further one, ± a quarter; 100 ms
	MaxDelay time.Duration // 2 s
}

func (o RetryOptions) withDefaults() RetryOptions {
	if o.Tries <= 0 {
		o.Tries = 3
	}
	if o.Delay <= 0 {
		o.Delay = 100 * time.Millisecond
	}
	if o.MaxDelay < o.Delay {
		o.MaxDelay = max(2*time.Second, o.Delay)
	}
	return o
}

// Retry repeats a dispatch that certainly did not reach the server, until it does, the
// tries are used up or the context ends. The outcome of a dispatch that may have reached
// the server, a tool's own failure included, is returned as it is: only the ledger
// decides whether to repeat it.
func Retry(next runtime.Dispatcher, o RetryOptions) runtime.Dispatcher {
	o = o.withDefaults()
	b := retrypolicy.NewBuilder[any]().
		HandleIf(func(_ any, err error) bool { return worthRetrying(err) }).
		WithMaxAttempts(o.Tries).
		WithJitterFactor(0.25).
		ReturnLastFailure()
	if o.MaxDelay > o.Delay {
		b = b.WithBackoff(o.Delay, o.MaxDelay)
	} else {
		b = b.WithDelay(o.Delay)
	}
	return &retry{next, b.Build()}
}

type retry struct {
	next   runtime.Dispatcher
	policy retrypolicy.RetryPolicy[any]
}

func (r *retry) Dispatch(ctx context.Context, call runtime.Call) (runtime.Reply, error) {
	var reply runtime.Reply
	err := notSent(tga.ToolTimeout, call, ctx.Err(), "no time was left")
	if ctx.Err() != nil {
		return reply, err
	}
	// The policy decides only whether to try again. Its return value is not used: if
	// the context ends during a try, it is the context's error instead of the answer,
	// and a lost answer would mean an effect in doubt.
	_ = failsafe.With[any](r.policy).WithContext(ctx).Run(func() error {
		reply, err = r.next.Dispatch(ctx, call)
		return err
	})
	return reply, err
}

func (r *retry) Check(ctx context.Context, call runtime.Call) error {
	return runtime.Check(ctx, r.next, call)
}

func (r *retry) Prepare(ctx context.Context, call runtime.Call) ([]chain.Attachment, error) {
	return prepare(ctx, r.next, call)
}

// worthRetrying reports whether a try that was not sent may succeed in a moment. It may
// not if the breaker is open, the server is full or unknown, the call is invalid, or the
// server gave a Retry-After.
func worthRetrying(err error) bool {
	return errors.Is(err, runtime.ErrNotSent) && tga.RetryAfterOf(err) == 0 &&
		!errors.Is(err, tga.CircuitOpen) && !errors.Is(err, tga.RateLimited) &&
		!errors.Is(err, tga.NotFound) && !errors.Is(err, tga.ValidationError)
}

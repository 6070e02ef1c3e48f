package dispatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/failsafe-go/failsafe-go/circuitbreaker"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// BreakerOptions configure the breaker of one server. Zero fields mean the defaults.
type BreakerOptions struct {
	Failures int           // failures in a row that open it; 5
	Open     time.Duration // how long it refuses calls; 60 s
	Trials   int           // successes in a row, after that time, that close it; 3
	// OnChange, if it is set, is called at each change of a namespace's breaker, with the new
	// state: "open", "half-open" or "closed". It must not block. A panic of it goes to slog's
	// default logger, and no further.
	OnChange func(namespace, state string)
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
	if f := o.OnChange; f == nil {
		o.OnChange = func(string, string) {}
	} else {
		o.OnChange = func(namespace, state string) {
			// The breaker calls it between two holds of its lock. A panic that passed there would end the process.
			defer func() {
				if p := recover(); p != nil {
					slog.Error("panic", "in", "BreakerOptions.OnChange", "value", fmt.Sprint(p), "stack", string(debug.Stack()))
				}
			}()
			f(namespace, state)
		}
	}
	return o
}

// Breaker refuses calls to a server that keeps failing: CIRCUIT_OPEN, not sent. Each
// namespace has a breaker of its own, so that one tenant's failures open the breaker for
// that tenant alone.
//
// It counts dispatches that ended without an answer, in doubt or certainly not sent, as
// failures. An answer counts as success whatever it says, because a server that reports an
// error works. Failures that the caller caused count as neither: a call that the dispatcher
// can't send, and a call that its caller cancelled or gave less time than the tool has.
func Breaker(next runtime.Dispatcher, o BreakerOptions) runtime.Dispatcher {
	return &breaker{next: next, opts: o.withDefaults(), open: map[string]*circuit{}}
}

type breaker struct {
	next runtime.Dispatcher
	opts BreakerOptions

	mu   sync.Mutex
	open map[string]*circuit // by namespace: those in use, and those that count failures
}

// circuit is the breaker of one namespace.
type circuit struct {
	circuitbreaker.CircuitBreaker[any]
	users int // dispatches under way
}

// enter returns the circuit of a namespace.
func (b *breaker) enter(namespace string) *circuit {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.open[namespace]
	if c == nil {
		b.makeRoom()
		c = &circuit{CircuitBreaker: circuitbreaker.NewBuilder[any]().
			WithFailureThreshold(uint(b.opts.Failures)).
			WithSuccessThreshold(uint(b.opts.Trials)).
			WithDelay(b.opts.Open).
			OnStateChanged(func(e circuitbreaker.StateChangedEvent) { b.opts.OnChange(namespace, e.NewState.String()) }).
			Build()}
		b.open[namespace] = c
	}
	c.users++
	return c
}

// mostCircuits bounds the circuits that no call uses.
const mostCircuits = 1024

// makeRoom forgets a circuit that no call uses if there are too many: a closed one, or else an
// open one, whose namespace then has to fail again before its calls are refused.
func (b *breaker) makeRoom() {
	if len(b.open) < mostCircuits {
		return
	}
	for _, closed := range []bool{true, false} {
		for namespace, c := range b.open {
			if c.users == 0 && c.IsClosed() == closed {
				delete(b.open, namespace)
				if !closed {
					b.opts.OnChange(namespace, circuitbreaker.ClosedState.String())
				}
				return
			}
		}
	}
}

// leave forgets a circuit that nobody uses and that counts no failures: callers choose the
// names of their namespaces, so there may be any number of them.
func (b *breaker) leave(namespace string, c *circuit) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.users--; c.users == 0 && c.IsClosed() && c.Metrics().Failures() == 0 {
		delete(b.open, namespace)
	}
}

func (b *breaker) Dispatch(ctx context.Context, call runtime.Call) (runtime.Reply, error) {
	// Check first, so that a call which can't be sent takes no trial of a half-open breaker.
	if err := b.Check(ctx, call); err != nil {
		return runtime.Reply{}, errors.Join(runtime.ErrNotSent, err)
	}
	c := b.enter(call.Namespace)
	defer b.leave(call.Namespace, c)
	if !c.TryAcquirePermit() {
		return runtime.Reply{}, c.refusal(call)
	}
	// A half-open breaker gives out few permits, and gets a permit back only with a result.
	// So record one even if Dispatch panics.
	err := errors.New("panicked")
	defer func() { c.record(ctx, err) }()
	var reply runtime.Reply
	reply, err = b.next.Dispatch(ctx, call)
	return reply, err
}

func (c *circuit) record(ctx context.Context, err error) {
	switch {
	case err == nil:
		c.RecordSuccess()
	case !callers(ctx, err):
		c.RecordFailure()
	case c.IsHalfOpen():
		// There is no result, and only a change of state gives the trial's permit back.
		c.Open()
		c.HalfOpen()
	}
}

// callers reports whether the caller caused the failure of a dispatch.
func callers(ctx context.Context, err error) bool {
	if errors.Is(err, runtime.ErrNotSent) && (errors.Is(err, tga.ValidationError) || errors.Is(err, tga.NotFound)) {
		return true
	}
	return ctx.Err() != nil && context.Cause(ctx) != runtime.ErrSendTimeout
}

func (b *breaker) Check(ctx context.Context, call runtime.Call) error {
	return runtime.Check(ctx, b.next, call)
}

func (c *circuit) refusal(call runtime.Call) error {
	return notSent(tga.CircuitOpen, call, nil, "the server failed too often; tried again in %v", c.RemainingDelay().Round(time.Millisecond))
}

// Prepare refuses a call while the breaker is open, before an attempt is marked, so that the
// ledger has nothing of a call that is not tried. It takes no trial of a half-open breaker.
func (b *breaker) Prepare(ctx context.Context, call runtime.Call) ([]chain.Attachment, error) {
	c := b.enter(call.Namespace)
	defer b.leave(call.Namespace, c)
	if c.IsOpen() && c.RemainingDelay() > 0 {
		return nil, c.refusal(call)
	}
	return prepare(ctx, b.next, call)
}

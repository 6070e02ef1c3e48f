package verify

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/retrypolicy"

	"github.com/tgad/tgad/schemas/tga"
)

// Patience says how often to ask a system that is slow, busy or behind. Zero fields mean
// the defaults.
type Patience struct {
	Timeout  time.Duration `toml:"timeout"`   // of one try; 10s
	Tries    int           `toml:"tries"`     // of one question that got no answer, the first included; 3
	Delay    time.Duration `toml:"delay"`     // before the second try, doubled for each further one, ± a quarter; 200ms
	MaxDelay time.Duration `toml:"max_delay"` // 5s
	// Settle is how long the system may lag behind what it acknowledged. The answers gone,
	// changed and "did not run" are believed only if they are still given after that time.
	// Zero attests that the system never lags.
	Settle      time.Duration `toml:"settle"`
	SettleEvery time.Duration `toml:"settle_every"` // between two questions; a quarter of settle, at most 5s
}

// Limits of [Patience].
const (
	MaxTimeout = 10 * time.Minute
	MaxTries   = 20
	MaxSettle  = 24 * time.Hour
	MaxAsks    = 1000 // settle / settle_every
)

// Complete returns p with its defaults filled in, VALIDATION_ERROR where a field is out
// of its limits.
func (p Patience) Complete() (Patience, error) {
	if p.Timeout == 0 {
		p.Timeout = 10 * time.Second
	}
	if p.Tries == 0 {
		p.Tries = 3
	}
	if p.Delay == 0 {
		p.Delay = 200 * time.Millisecond
	}
	if p.MaxDelay == 0 {
		p.MaxDelay = max(5*time.Second, p.Delay)
	}
	if p.SettleEvery == 0 {
		p.SettleEvery = min(max(p.Settle/4, 1), 5*time.Second)
		p.SettleEvery = max(p.SettleEvery, (p.Settle+MaxAsks-1)/MaxAsks)
	}
	for _, f := range [...]struct {
		name        string
		value       time.Duration
		least, most time.Duration
	}{
		{"timeout", p.Timeout, 1, MaxTimeout},
		{"delay", p.Delay, 1, MaxTimeout},
		{"max_delay", p.MaxDelay, p.Delay, MaxTimeout},
		{"settle", p.Settle, 0, MaxSettle},
		{"settle_every", p.SettleEvery, 1, MaxSettle},
	} {
		if f.value < f.least || f.value > f.most {
			return p, Invalid(f.name, "%v: want %v to %v", f.value, f.least, f.most)
		}
	}
	if p.Tries < 1 || p.Tries > MaxTries {
		return p, Invalid("tries", "%d: want 1 to %d", p.Tries, MaxTries)
	}
	if p.again() > MaxAsks {
		return p, Invalid("settle_every", "%v: %v of settle would be %d questions, at most %d", p.SettleEvery, p.Settle, p.again(), MaxAsks)
	}
	return p, nil
}

// again is how many questions follow the first one within the settling time.
func (p Patience) again() int {
	return int((p.Settle + p.SettleEvery - 1) / p.SettleEvery)
}

// Invalid is a VALIDATION_ERROR about one key of a configuration.
func Invalid(key, format string, args ...any) error {
	e := tga.Errorf(tga.ValidationError, format, args...)
	e.Message = key + ": " + e.Message
	return e
}

// transient marks an error that a further try may not have.
type transient struct{ error }

func (t transient) Unwrap() error { return t.error }

// Transient marks an error after which another try is worthwhile: nobody answered, or the
// answer says that the system is busy. A nil error stays nil.
func Transient(err error) error {
	if err == nil {
		return nil
	}
	return transient{err}
}

// asker puts one question as often as its patience says.
type asker struct {
	Patience
	policy retrypolicy.RetryPolicy[any]
}

func newAsker(p Patience) *asker {
	b := retrypolicy.NewBuilder[any]().
		HandleIf(func(_ any, err error) bool {
			_, ok := errors.AsType[transient](err)
			return ok
		}).
		WithMaxAttempts(p.Tries).
		WithJitterFactor(0.25).
		ReturnLastFailure()
	if p.MaxDelay > p.Delay {
		b = b.WithBackoff(p.Delay, p.MaxDelay)
	} else {
		b = b.WithDelay(p.Delay)
	}
	return &asker{p, b.Build()}
}

// ask tries until a try does not fail with a transient error, and returns the result of
// that try, or else of the last one. The context bounds the tries and the waits between
// them.
func ask[T any](ctx context.Context, a *asker, try func(context.Context) (T, error)) (answer T, err error) {
	if err = ctx.Err(); err != nil {
		return answer, err // the policy would try once
	}
	// The policy only decides whether to try again. Its own result is not used: when the
	// context ends, it is not the answer of the try under way.
	_ = failsafe.With[any](a.policy).WithContext(ctx).Run(func() error {
		one, cancel := context.WithTimeout(ctx, a.Timeout)
		defer cancel()
		answer, err = try(one)
		return err
	})
	return answer, err
}

// pause waits between two questions.
func (a *asker) pause(ctx context.Context) error {
	t := time.NewTimer(a.SettleEvery)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// coded prefixes err with what was attempted. It keeps the code of err; an error without
// a code gets TOOL_TIMEOUT or TOOL_ERROR.
func coded(err error, format string, args ...any) *tga.Error {
	attempted := fmt.Sprintf(format, args...)
	if known, ok := errors.AsType[*tga.Error](err); ok {
		e := *known
		e.Message = attempted + ": " + e.Message
		return &e
	}
	code := tga.ToolError
	if errors.Is(err, context.DeadlineExceeded) {
		code = tga.ToolTimeout
	}
	return tga.Errorf(code, "%s: %w", attempted, err)
}

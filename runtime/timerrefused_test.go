package runtime_test

import (
	"context"
	"errors"
	goruntime "runtime"
	"testing"
	"time"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// refusing is a dispatcher whose Prepare fails while refusal is set.
type refusing struct {
	*tool
	refusal error
}

func (r *refusing) Prepare(context.Context, runtime.Call) ([]chain.Attachment, error) {
	return nil, r.refusal
}

// failing is a pure supervisor that fails while err is set, and approves otherwise.
type failing struct{ err error }

func (f *failing) Decide(context.Context, *tga.Artifact) (runtime.Verdict, error) {
	return runtime.Verdict{Decision: tga.Approve, Rationale: "approved by a rule"}, f.err
}
func (*failing) Pure() {}

// owed is a bench with a failed call whose timer is due: of a new attempt, or of the call that undoes it.
type owed struct {
	*bench
	tools  *refusing
	rules  *failing
	schema error // of the source of definitions
}

func owing(t *testing.T, class ledger.Class, deadline time.Duration) *owed {
	t.Helper()
	p := park
	p.Retry, p.AutoCompensate = runtime.Backoff{First: time.Minute, Max: time.Minute, Attempts: 1}, true
	o := &owed{rules: &failing{}}
	o.bench = setup(t, p, func(b *bench) {
		o.tools = &refusing{tool: b.tool}
		b.tools, b.sup = o.tools, o.rules
		b.opts.Trust.Inverse = func(call *tga.ToolCall, _ *tga.ToolEffect, _ []byte) (runtime.Inverse, bool, error) {
			return runtime.Inverse{Server: "payments", Tool: "refund", Args: []byte(`{}`)}, true, nil
		}
		b.opts.Trust.Schema = func(context.Context, string, string) (tga.Digest, error) { return tga.Digest{}, o.schema }
		b.opts.Trust.Capabilities, b.opts.Trust.RequireCapability = trusting{}, true
		b.tool.answer = func(n int, _ runtime.Call) (runtime.Reply, error) {
			if n > 1 {
				return ok(`1`), nil
			}
			return runtime.Reply{Status: tga.StatusFailure, Class: class}, nil
		}
	})
	req := charge("k")
	if deadline != 0 {
		req.Deadline = epoch.Add(deadline)
	}
	o.mustCall(req)
	o.advance(time.Minute)
	return o
}

// trusting mints one token, and accepts every token.
type trusting struct{}

func (trusting) Mint(context.Context, runtime.Grant) (string, error) {
	return "eyJhIjoxfQ.e30.c2ln", nil
}
func (trusting) Check(context.Context, string, runtime.Grant) error { return nil }

func (o *owed) fire() (left int) {
	o.t.Helper()
	if _, err := o.rt.FireTimers(context.Background()); err != nil {
		o.t.Fatal(err)
	}
	for _, err := range o.db.Attachments(context.Background(), chain.AttachTimer, nil) {
		if left++; err != nil {
			o.t.Fatal(err)
		}
	}
	return left
}

// TestTimerOutlastsARefusal: what is due, a new attempt or the undoing of a call, is refused before anything
// of it is written, and may be possible later. The timer stays, also over a restart, and what is due is
// done once it is possible.
func TestTimerOutlastsARefusal(t *testing.T) {
	away := errors.New("connection refused")
	for _, class := range []ledger.Class{ledger.ClassRetryable, ledger.ClassCompensatable} {
		for name, set := range map[string]func(*owed, error){
			"the breaker is open":      func(o *owed, err error) { o.tools.refusal = coded(tga.CircuitOpen, err) },
			"a limit is reached":       func(o *owed, err error) { o.tools.refusal = coded(tga.RateLimited, err) },
			"a quota is used up":       func(o *owed, err error) { o.tools.refusal = coded(tga.QuotaExceeded, err) },
			"the preparation fails":    func(o *owed, err error) { o.tools.refusal = err },
			"the rules fail":           func(o *owed, err error) { o.rules.err = err },
			"no definition of a tool":  func(o *owed, err error) { o.schema = err },
			"the definitions time out": func(o *owed, err error) { o.schema = coded(tga.ToolTimeout, err) },
		} {
			t.Run(class.String()+", "+name, func(t *testing.T) {
				o := owing(t, class, 0)
				set(o, away)
				for i := range 3 {
					if left := o.fire(); left != 1 {
						t.Fatalf("%d timers are left after refusal %d", left, i+1)
					}
					o.advance(time.Minute)
				}
				o.wantSends(1)
				if got := o.rt.Stats().Retried; got != 0 {
					t.Errorf("%d new attempts are counted, and none was made", got)
				}
				o.reopen()
				set(o, nil)
				if left := o.fire(); left != 0 {
					t.Errorf("%d timers are left", left)
				}
				o.wantSends(2)
			})
		}
	}
}

func coded(code tga.Code, err error) error {
	if err == nil {
		return nil
	}
	return tga.Errorf(code, "not now: %w", err)
}

// TestTimerEndsWithARefusalForGood: if nothing would change the refusal, or the deadline of the call is
// over meanwhile, the timer ends.
func TestTimerEndsWithARefusalForGood(t *testing.T) {
	for _, code := range []tga.Code{tga.ValidationError, tga.NotFound, tga.PolicyViolation, tga.CapabilityInvalid} {
		o := owing(t, ledger.ClassRetryable, 0)
		o.tools.refusal = tga.Errorf(code, "never")
		if left := o.fire(); left != 0 {
			t.Errorf("%s: %d timers are left", code, left)
		}
		o.wantSends(1)
	}
	o := owing(t, ledger.ClassRetryable, 10*time.Minute)
	o.tools.refusal = tga.Errorf(tga.CircuitOpen, "not now")
	if left := o.fire(); left != 1 {
		t.Errorf("%d timers are left before the deadline", left)
	}
	o.advance(10 * time.Minute)
	if left := o.fire(); left != 0 {
		t.Errorf("%d timers are left after the deadline", left)
	}
	o.wantSends(1)
}

// TestExpiryOutlastsItsRules: the rules fail at the moment when an approval expires. The timer stays, and
// the expiry is recorded once the rules answer.
func TestExpiryOutlastsItsRules(t *testing.T) {
	b := setup(t, park, needsApproval(1, time.Hour))
	res, err := b.call(charge("k"))
	wantCode(t, err, tga.EscalationRequired)
	rules := b.sup
	b.sup = &failing{errors.New("the rules cannot be read")}
	b.start()
	b.advance(2 * time.Hour)
	next, err := b.rt.FireTimers(t.Context())
	if err != nil || next == 0 {
		t.Fatalf("next timer %v, %v", next, err)
	}
	b.wantState(res.TraceID, tga.Pending)
	b.sup = rules
	b.start()
	if _, err := b.rt.FireTimers(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.wantState(res.TraceID, tga.Denied)
}

// TestRestOfAnEndedTimerIsForgotten: a timer failed, rests, and ends by another route: its caller asks again.
// Once the rest is over, this process remembers nothing about the timer.
func TestRestOfAnEndedTimerIsForgotten(t *testing.T) {
	b := setup(t, park, needsApproval(1, time.Hour))
	res, err := b.call(charge("k"))
	wantCode(t, err, tga.EscalationRequired)
	held, err := b.db.Acquire(t.Context(), res.TraceID)
	if err != nil {
		t.Fatal(err)
	}
	b.advance(time.Hour)
	if _, err := b.rt.FireTimers(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := b.rt.Resting(); n != 1 {
		t.Errorf("%d timers rest, want 1", n)
	}
	b.db.Release(held)
	if _, err := b.rt.Recover(t.Context(), res.TraceID); err != nil {
		t.Fatal(err)
	}
	b.advance(time.Minute)
	if _, err := b.rt.FireTimers(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := b.rt.Resting(); n != 0 {
		t.Errorf("%d timers are remembered, and there is none", n)
	}
}

// TestGoroutineThatEndsInATimer: code of the embedder that ends its goroutine, as t.Fatal of a test does, leaves the other timers
// and the next round. The timer is tried again later.
func TestGoroutineThatEndsInATimer(t *testing.T) {
	b, p := probing(t, ledger.Licence{}, func(n int, _ runtime.Call) (runtime.Probed, error) {
		if n == 2 {
			goruntime.Goexit()
		}
		return runtime.Probed{}, nil
	})
	_, err := b.call(charge("k"))
	wantCode(t, err, tga.EffectInDoubt)
	for _, want := range []int{2, 3} {
		b.advance(2 * time.Minute)
		fired := make(chan error, 1)
		go func() {
			_, err := b.rt.FireTimers(context.Background())
			fired <- err
		}()
		select {
		case err := <-fired:
			if err != nil || p.asked != want {
				t.Errorf("%d questions, want %d, %v", p.asked, want, err)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("the timers are not served any more")
		}
	}
}

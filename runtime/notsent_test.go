package runtime_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

var errDial = fmt.Errorf("dial: connection refused: %w", runtime.ErrNotSent)

// downUntil answers the first n-1 sends with a refused connection.
func downUntil(n int) func(int, runtime.Call) (runtime.Reply, error) {
	return func(send int, _ runtime.Call) (runtime.Reply, error) {
		if send < n {
			return runtime.Reply{}, errDial
		}
		return ok(`"paid"`), nil
	}
}

// TestNotSentReleasesTheKey: if no byte left, the next call with the same key and request
// runs, in both profiles and without a flag. From then on its effect is served.
func TestNotSentReleasesTheKey(t *testing.T) {
	for _, profile := range []ledger.Profile{ledger.Strict, ledger.Spec93} {
		for kind := ledger.Park; kind <= ledger.DedupeArgs; kind++ {
			t.Run(profile.String()+"/"+kind.String(), func(t *testing.T) {
				b := setup(t, licence(kind), func(b *bench) { b.opts.Profile = profile })
				b.tool.answer = downUntil(3)
				var before tga.ID
				for n := 1; n < 3; n++ {
					res := b.mustCall(charge("order-1"))
					if res.State != tga.Failed || res.Class != ledger.ClassNotSent || res.Status != tga.StatusError || !res.ServedFrom.IsZero() || res.TraceID == before {
						t.Fatalf("call %d: %+v", n, res)
					}
					b.wantTakesOver(res.TraceID, before, n-1)
					before = res.TraceID
				}
				third := b.mustCall(charge("order-1"))
				if third.State != tga.Completed || third.Attempts != 1 {
					t.Errorf("third %+v", third)
				}
				b.wantTakesOver(third.TraceID, before, 2)
				for range 2 {
					if again := b.mustCall(charge("order-1")); again.ServedFrom != third.TraceID {
						t.Errorf("again %+v", again)
					}
				}
				b.wantSends(3)
			})
		}
	}
}

// wantTakesOver checks which trace a call names as the one whose key it reserved again.
func (b *bench) wantTakesOver(id, from tga.ID, number int) {
	b.t.Helper()
	trace, err := b.db.Load(context.Background(), id)
	if err != nil {
		b.t.Fatal(err)
	}
	meta := trace.Call.Meta
	if from.IsZero() {
		if meta[tga.MetaRetryOf] != nil || meta[tga.MetaRetryNumber] != nil {
			b.t.Errorf("the first call says %v", meta)
		}
		return
	}
	if meta[tga.MetaRetryOf] != from.String() || meta[tga.MetaRetryNumber] != tga.Number(fmt.Sprint(number)) {
		b.t.Errorf("call says %v, want a new attempt %d after %s", meta, number, from)
	}
}

func TestNotSentIsOfOneRequest(t *testing.T) {
	b := setup(t, park)
	b.tool.answer = downUntil(2)
	b.mustCall(charge("order-1"))
	other := charge("order-1")
	other.Args = []byte(`{"amount":99}`)
	_, err := b.call(other)
	wantCode(t, err, tga.IdempotencyKeyConflict)
	b.wantSends(1)
}

// TestRetryableFailureStaysExplicit: an answer, for example a proxy's 503, does not prove that
// nothing was sent. So a call is sent again only if its caller asks for that.
func TestRetryableFailureStaysExplicit(t *testing.T) {
	b := setup(t, park)
	b.tool.answer = func(n int, _ runtime.Call) (runtime.Reply, error) {
		if n > 1 {
			return ok(`"paid"`), nil
		}
		return runtime.Reply{Status: tga.StatusFailure, Class: ledger.ClassRetryable, ErrorCode: "RATE_LIMITED"}, nil
	}
	first := b.mustCall(charge("order-1"))
	if again := b.mustCall(charge("order-1")); again.ServedFrom != first.TraceID {
		t.Errorf("again %+v", again)
	}
	b.wantSends(1)
	retry := charge("order-1")
	retry.Retry = true
	if res := b.mustCall(retry); res.State != tga.Completed {
		t.Errorf("retry %+v", res)
	}
	b.wantSends(2)
}

// TestAnswerIsNeverNotSent: not_sent is what this process itself saw. If a dispatcher, a rule, a
// person or an executor gives an answer this class, that does not free the key.
func TestAnswerIsNeverNotSent(t *testing.T) {
	claim := runtime.Reply{Status: tga.StatusError, Class: ledger.ClassNotSent, ErrorCode: "TOOL_ERROR"}
	t.Run("dispatcher", func(t *testing.T) {
		b := setup(t, park)
		b.tool.answer = func(int, runtime.Call) (runtime.Reply, error) { return claim, nil }
		if res := b.mustCall(charge("order-1")); res.Class != ledger.ClassPermanent {
			t.Errorf("%+v", res)
		}
	})
	t.Run("rule", func(t *testing.T) {
		b := setup(t, park, func(b *bench) {
			b.opts.Trust.Outcome = func(_ runtime.Call, r *runtime.Reply) error { r.Class = ledger.ClassNotSent; return nil }
		})
		b.tool.answer = func(int, runtime.Call) (runtime.Reply, error) {
			return runtime.Reply{Status: tga.StatusError, ErrorCode: "TOOL_ERROR"}, nil
		}
		if res := b.mustCall(charge("order-1")); res.Class != ledger.ClassPermanent {
			t.Errorf("%+v", res)
		}
	})
	t.Run("person", func(t *testing.T) {
		b := setup(t, park)
		b.tool.answer = unknown
		res, err := b.call(charge("order-1"))
		wantCode(t, err, tga.EffectInDoubt)
		_, err = b.rt.Resolve(context.Background(), res.TraceID, runtime.Resolution{Who: "ops", Evidence: []byte("e"), Reply: claim})
		wantCode(t, err, tga.ValidationError)
		b.wantState(res.TraceID, tga.Executing)
	})
	t.Run("executor", func(t *testing.T) {
		b := setup(t, park)
		begun := b.begin("order-1", "begin-1")
		_, err := b.finish(begun, claim)
		wantCode(t, err, tga.ValidationError)
		b.wantState(begun.Result.TraceID, tga.Executing)
	})
}

// TestWaitersShareANotSentOutcome: many callers wait for one send, and the server is down. All get
// that outcome together, and do not try it one after the other.
func TestWaitersShareANotSentOutcome(t *testing.T) {
	b := setup(t, park)
	const waiters = 8
	inside, release := make(chan struct{}), make(chan struct{})
	b.tool.answer = func(n int, _ runtime.Call) (runtime.Reply, error) {
		if n == 1 {
			close(inside)
			<-release
			return runtime.Reply{}, errDial
		}
		return ok(`"paid"`), nil
	}
	results := make([]runtime.Result, waiters+1)
	var wg sync.WaitGroup
	run := func(i int) { wg.Go(func() { results[i], _ = b.call(charge("order-1")) }) }
	run(0)
	<-inside
	for i := 1; i <= waiters; i++ {
		run(i)
	}
	for b.rt.Stats().Waited < waiters {
		time.Sleep(time.Millisecond)
	}
	close(release)
	wg.Wait()
	for i, r := range results {
		if r.State != tga.Failed || r.Class != ledger.ClassNotSent || i > 0 && r.ServedFrom != results[0].TraceID {
			t.Errorf("call %d: %+v", i, r)
		}
	}
	b.wantSends(1)
	if later := b.mustCall(charge("order-1")); later.State != tga.Completed {
		t.Errorf("later %+v", later)
	}
}

// TestCallOlderThanTheFailureTakesTheKeyOver: while a call waits for an approval, another call uses
// the key without being sent. When the first is sent, it names the trace that has the key then.
func TestCallOlderThanTheFailureTakesTheKeyOver(t *testing.T) {
	b := setup(t, park)
	b.sup = runtime.Rules{Rules: []runtime.Rule{{Decision: tga.NeedsApproval}}}
	b.start()
	pending, err := b.call(charge("order-1"))
	wantCode(t, err, tga.EscalationRequired)
	b.sup = runtime.AllowAll
	b.start()
	b.tool.answer = downUntil(2)
	failed := b.mustCall(charge("order-1"))
	got, err := b.rt.Decide(context.Background(), pending.TraceID, runtime.Vote{Who: "ops", Approve: true, Rationale: "looks right to me"})
	if err != nil || got.State != tga.Completed {
		t.Fatalf("%+v, %v", got, err)
	}
	b.wantTakesOver(pending.TraceID, failed.TraceID, 1)
	b.wantSends(2)
}

// TestScheduledAttemptStandsDown: a caller repeats the call before the timer does. Then the
// timer finds that another trace has the key, and sends nothing.
func TestScheduledAttemptStandsDown(t *testing.T) {
	for _, profile := range []ledger.Profile{ledger.Strict, ledger.Spec93} {
		policy := park
		policy.Retry = runtime.Backoff{Attempts: 3, First: time.Minute, Max: time.Minute}
		b := setup(t, policy, func(b *bench) { b.opts.Profile = profile })
		b.tool.answer = downUntil(2)
		b.mustCall(charge("order-1"))
		if res := b.mustCall(charge("order-1")); res.State != tga.Completed {
			t.Fatalf("%+v", res)
		}
		b.advance(time.Hour)
		if next, err := b.rt.FireTimers(context.Background()); next != 0 || err != nil {
			t.Errorf("next timer %v, %v", next, err)
		}
		b.wantSends(2)
	}
}

// TestScheduledAttemptFollowsANotSentCall: nobody repeats the call, so the timer does.
func TestScheduledAttemptFollowsANotSentCall(t *testing.T) {
	for _, profile := range []ledger.Profile{ledger.Strict, ledger.Spec93} {
		policy := park
		policy.Retry = runtime.Backoff{Attempts: 3, First: time.Minute, Max: time.Minute}
		b := setup(t, policy, func(b *bench) { b.opts.Profile = profile })
		b.tool.answer = downUntil(2)
		b.mustCall(charge("order-1"))
		b.advance(time.Hour)
		if _, err := b.rt.FireTimers(context.Background()); err != nil {
			t.Fatal(err)
		}
		b.wantSends(2)
		if res := b.mustCall(charge("order-1")); res.State != tga.Completed || res.ServedFrom.IsZero() {
			t.Errorf("%+v", res)
		}
	}
}

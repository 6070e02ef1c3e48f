package runtime_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// TestCrashWindows kills the runtime between every two durable writes: the n-th append
// does not return, and is on disk or is not. The store is then opened again and
// recovered, twice. The counts are the tool server's.
func TestCrashWindows(t *testing.T) {
	serial.Test(t)
	for _, c := range []struct {
		name  string
		at    int
		after bool
		sup   runtime.Supervisor // nil: pure, so request, decision and call are one append
		kind  ledger.LicenceKind

		window runtime.Window // "" = no open trace
		state  tga.State      // after recovery; None = no trace
		sends  int            // in all
		code   tga.Code       // of recovery
	}{
		{name: "W0", at: 1, kind: ledger.Park, state: tga.None},
		{name: "W0/impure", at: 1, sup: &impure{}, kind: ledger.Park, state: tga.None},
		{name: "W1", at: 1, after: true, sup: &impure{}, kind: ledger.Park, window: runtime.W1, state: tga.Completed, sends: 1},
		{name: "W1/second", at: 2, sup: &impure{}, kind: ledger.Park, window: runtime.W1, state: tga.Completed, sends: 1},
		{name: "W4/before the send", at: 1, after: true, kind: ledger.Park, window: runtime.W4, state: tga.Executing, sends: 0, code: tga.EffectInDoubt},
		{name: "W4/after the send", at: 2, kind: ledger.Park, window: runtime.W4, state: tga.Executing, sends: 1, code: tga.EffectInDoubt},
		{name: "W4/probe", at: 2, kind: ledger.Probe, window: runtime.W4, state: tga.Executing, sends: 1, code: tga.EffectInDoubt},
		{name: "W4/dedupe_key", at: 2, kind: ledger.DedupeKey, window: runtime.W4, state: tga.Completed, sends: 2},
		{name: "W4/dedupe_args", at: 2, kind: ledger.DedupeArgs, window: runtime.W4, state: tga.Completed, sends: 2},
		{name: "W4/read_only", at: 2, kind: ledger.ReadOnly, window: runtime.W4, state: tga.Completed, sends: 2},
		{name: "W5", at: 2, after: true, kind: ledger.Park, state: tga.Completed, sends: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := setup(t, licence(c.kind), func(b *bench) {
				if c.sup != nil {
					b.sup = c.sup
				}
			})
			b.store = &counted{Store: b.db, crashAt: c.at, after: c.after}
			b.start()
			req := charge("order-1")
			req.TraceID = newID()
			_, err := b.call(req)
			wantCode(t, err, tga.StoreUnavailable)

			b.reopen()
			open, err := b.rt.Classify(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case c.window == "" && len(open) != 0:
				t.Errorf("open traces %+v", open)
			case c.window != "" && (len(open) != 1 || open[0].Window != c.window || open[0].InDoubt != (c.window == runtime.W4)):
				t.Errorf("classified %+v, want %s", open, c.window)
			}
			for range 2 { // recovery again changes nothing
				all, err := b.rt.RecoverAll(context.Background(), 4)
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range all {
					if tga.CodeOf(r.Err) != c.code {
						t.Errorf("recovery %v, want %q", r.Err, c.code)
					}
				}
				b.reopen()
				b.wantSends(c.sends)
			}
			if c.state == tga.None {
				b.wantNothing(req.TraceID)
				b.mustCall(req) // the caller retries
				b.wantSends(1)
				return
			}
			b.wantState(req.TraceID, c.state)
			for i, call := range b.tool.calls {
				// Same id, same key, same bytes; the attempt number alone moves on.
				first := b.tool.calls[0]
				first.Attempt = uint32(i + 1)
				if fmt.Sprint(call) != fmt.Sprint(first) {
					t.Errorf("send %d is %+v, the first was %+v", i+1, call, first)
				}
			}
		})
	}
}

// TestCrashWindows/W2: AUTHORIZED without a call is on disk only if a run waited in that state for
// another trace that has the key.
func TestAuthorizedTraceGoesOnAfterARestart(t *testing.T) {
	b := setup(t, park)
	release := make(chan struct{})
	b.tool.answer = func(int, runtime.Call) (runtime.Reply, error) {
		<-release
		return runtime.Reply{}, fmt.Errorf("dial: %w", runtime.ErrNotSent)
	}
	first := make(chan runtime.Result, 1)
	go func() {
		res, _ := b.call(charge("order-1"))
		first <- res
	}()
	eventually(t, func() bool { return b.tool.sends() == 1 })
	ctx, cancel := context.WithCancel(context.Background())
	second := charge("order-1")
	second.TraceID = newID()
	done := make(chan error, 1)
	go func() {
		_, err := b.rt.Call(ctx, second)
		done <- err
	}()
	eventually(t, func() bool {
		res, err := b.rt.Result(context.Background(), second.TraceID)
		return err == nil && res.State == tga.Authorized
	})
	cancel()
	wantCode(t, <-done, tga.IdempotencyKeyInFlight)
	close(release)
	<-first

	b.reopen()
	b.tool.answer = nil
	open, err := b.rt.Classify(context.Background())
	if err != nil || len(open) != 1 || open[0].Window != runtime.W2 {
		t.Fatalf("classified %+v, %v", open, err)
	}
	res, err := b.rt.Recover(context.Background(), second.TraceID)
	if err != nil || res.State != tga.Completed || !res.ServedFrom.IsZero() {
		t.Errorf("recovered %+v, %v: nothing was sent under its key, so it is sent", res, err)
	}
	b.wantSends(2)
}

// TestLicences is about doubt without a crash: the tool does not answer twice, and then answers.
func TestLicences(t *testing.T) {
	serial.Test(t)
	for _, c := range []struct {
		kind    ledger.LicenceKind
		resends int
		sends   int
		state   tga.State
	}{
		{ledger.Park, 0, 1, tga.Executing},
		{ledger.Probe, 0, 1, tga.Executing},
		{ledger.DedupeKey, 0, 3, tga.Completed},
		{ledger.DedupeKey, 1, 2, tga.Executing},
		{ledger.DedupeKey, -1, 1, tga.Executing},
		{ledger.DedupeArgs, 0, 3, tga.Completed},
		{ledger.ReadOnly, 0, 3, tga.Completed},
	} {
		t.Run(fmt.Sprintf("%v/resends=%d", c.kind, c.resends), func(t *testing.T) {
			policy := licence(c.kind)
			policy.Resends = c.resends
			b := setup(t, policy)
			b.tool.answer = func(n int, call runtime.Call) (runtime.Reply, error) {
				b.wantMarked(call)
				if n <= 2 {
					return runtime.Reply{}, errReset
				}
				return ok(`"paid"`), nil
			}
			res, err := b.call(charge("order-1"))
			if c.state == tga.Executing {
				wantCode(t, err, tga.EffectInDoubt)
			} else if err != nil {
				t.Error(err)
			}
			b.wantSends(c.sends)
			b.wantState(res.TraceID, c.state)
		})
	}
}

// wantMarked checks, while the send is under way, that its attempt is durable.
func (b *bench) wantMarked(call runtime.Call) {
	b.t.Helper()
	record, err := b.db.Record(context.Background(), ledger.Key{Namespace: tga.DefaultNamespace, Server: call.Server, Tool: call.Tool, Key: call.Key})
	if err != nil || record == nil || record.Attempts.Count != call.Attempt || record.ToolCallID != call.ToolCallID {
		b.t.Errorf("attempt %d is sent, the record says %+v, %v", call.Attempt, record, err)
	}
}

// TestRaisedRiskTakesTheReadLicenceAway: the read licence of a tool does not cover a call whose
// caller says that it is a write.
func TestRaisedRiskTakesTheReadLicenceAway(t *testing.T) {
	b := setup(t, licence(ledger.ReadOnly))
	b.tool.answer = unknown
	req := charge("order-1")
	req.Risk = tga.RiskWrite
	_, err := b.call(req)
	wantCode(t, err, tga.EffectInDoubt)
	b.wantSends(1)
}

func TestEverySendHasADurableAttempt(t *testing.T) {
	b := setup(t, licence(ledger.DedupeArgs))
	store := &counted{Store: b.db}
	b.store = store
	b.start()
	b.tool.answer = func(n int, call runtime.Call) (runtime.Reply, error) {
		b.wantMarked(call)
		if store.appends != n {
			b.t.Errorf("send %d after %d appends", n, store.appends)
		}
		if n < 3 {
			return runtime.Reply{}, errReset
		}
		return ok(`1`), nil
	}
	if res := b.mustCall(charge("order-1")); res.Attempts != 3 {
		t.Errorf("attempts %d", res.Attempts)
	}
}

func TestUnknownErrorIsDoubt(t *testing.T) {
	b := setup(t, park)
	b.tool.answer = unknown
	res, err := b.call(charge("order-1"))
	wantCode(t, err, tga.EffectInDoubt)
	for range 3 {
		_, err := b.rt.Recover(context.Background(), res.TraceID)
		wantCode(t, err, tga.EffectInDoubt)
		b.reopen()
	}
	again, err := b.call(charge("order-1"))
	wantCode(t, err, tga.EffectInDoubt)
	if again.TraceID != res.TraceID {
		b.wantNothing(again.TraceID)
	}
	b.wantSends(1)
}

func TestProfile93ResendsAKeyedCall(t *testing.T) {
	b := setup(t, runtime.Policy{}, func(b *bench) { b.opts.Profile = ledger.Spec93 })
	b.store = &counted{Store: b.db, crashAt: 2}
	b.start()
	res, _ := b.call(charge("order-1"))
	b.reopen()
	b.advance(time.Hour)
	if got, err := b.rt.Recover(context.Background(), res.TraceID); err != nil || got.State != tga.Completed {
		t.Errorf("%+v, %v", got, err)
	}
	b.wantSends(2)
}

// TestNotSentAfterDoubtStaysInDoubt: the first send may have run. So it does not matter that the
// second reached nobody.
func TestNotSentAfterDoubtStaysInDoubt(t *testing.T) {
	b := setup(t, licence(ledger.DedupeKey))
	b.tool.answer = func(n int, _ runtime.Call) (runtime.Reply, error) {
		if n == 1 {
			return runtime.Reply{}, errReset
		}
		return runtime.Reply{}, fmt.Errorf("dial: %w", runtime.ErrNotSent)
	}
	res, err := b.call(charge("order-1"))
	wantCode(t, err, tga.EffectInDoubt)
	b.wantState(res.TraceID, tga.Executing)
	b.tool.answer = nil
	if got, err := b.rt.Recover(context.Background(), res.TraceID); err != nil || got.State != tga.Completed {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestDedupeKeyWindowIsTestedAtItsEnd: now + send time-out < first + window - margin.
func TestDedupeKeyWindowIsTestedAtItsEnd(t *testing.T) {
	for _, c := range []struct {
		wait  time.Duration
		sends int
	}{
		{time.Hour - 10*time.Minute - 30*time.Second - time.Millisecond, 2},
		{time.Hour - 10*time.Minute - 30*time.Second, 1},
		{-time.Millisecond, 1}, // a clock that went back licenses nothing
	} {
		t.Run(c.wait.String(), func(t *testing.T) {
			policy := licence(ledger.DedupeKey)
			policy.Licence.Margin, policy.SendTimeout = 10*time.Minute, 30*time.Second
			b := setup(t, policy)
			b.store = &counted{Store: b.db, crashAt: 2}
			b.start()
			res, _ := b.call(charge("order-1"))
			b.reopen()
			b.advance(c.wait)
			_, err := b.rt.Recover(context.Background(), res.TraceID)
			if c.sends == 1 {
				wantCode(t, err, tga.EffectInDoubt)
			} else if err != nil {
				t.Error(err)
			}
			b.wantSends(c.sends)
		})
	}
}

func TestRecoveryDoesNotSendAfterTheDeadline(t *testing.T) {
	b := setup(t, park, func(b *bench) { b.sup = &impure{} })
	b.store = &counted{Store: b.db, crashAt: 2}
	b.start()
	req := charge("order-1")
	req.Deadline = b.clock().Add(time.Minute)
	res, _ := b.call(req)
	b.reopen()
	b.advance(24 * time.Hour)
	_, err := b.rt.Recover(context.Background(), res.TraceID)
	wantCode(t, err, tga.ToolTimeout)
	got := b.wantState(res.TraceID, tga.Failed)
	if got.ErrorCode != tga.ToolTimeout || got.Attempts != 0 {
		t.Errorf("%+v", got)
	}
	b.wantSends(0)
}

// TestAnotherTraceInDoubt: a caller of the key learns at once that another trace is in doubt, and
// finishes that trace if the licence permits it.
func TestAnotherTraceInDoubt(t *testing.T) {
	for _, kind := range []ledger.LicenceKind{ledger.Park, ledger.DedupeKey} {
		t.Run(kind.String(), func(t *testing.T) {
			b := setup(t, licence(kind))
			b.store = &counted{Store: b.db, crashAt: 2}
			b.start()
			first, _ := b.call(charge("order-1"))
			b.reopen() // nobody recovers
			res, err := b.call(charge("order-1"))
			if kind == ledger.Park {
				wantCode(t, err, tga.EffectInDoubt)
				b.wantNothing(res.TraceID)
				b.wantSends(1)
				return
			}
			if err != nil || res.ServedFrom != first.TraceID {
				t.Errorf("%+v, %v", res, err)
			}
			b.wantSends(2)
		})
	}
}

// TestKeyThatIsSettledMeanwhileIsServed is about a bug that a kill at the demo's point 7 on a busy
// disk showed: the trace that had the key ended after its record was read and before its holder was
// looked up. The trace that waited for it was told of a doubt that was over.
func TestKeyThatIsSettledMeanwhileIsServed(t *testing.T) {
	for at := 1; ; at++ { // each look for the holder
		b := setup(t, park)
		b.tool.answer = unknown
		first, err := b.call(charge("order-1"))
		wantCode(t, err, tga.EffectInDoubt)
		other, settled := b.rt, false
		b.store = &ending{Store: b.db, at: at, do: func() {
			settled = true
			r := runtime.Resolution{Reply: ok(`"paid"`), Who: "ann", Evidence: []byte("statement line 7")}
			if _, err := other.Resolve(t.Context(), first.TraceID, r); err != nil {
				t.Error(err)
			}
		}}
		b.start()
		res, err := b.call(charge("order-1"))
		b.wantSends(1)
		if !settled { // there are no more looks
			wantCode(t, err, tga.EffectInDoubt)
			if at <= 4 {
				t.Errorf("%d looks, want two before the first is helped and two after", at-1)
			}
			break
		}
		if err != nil || res.ServedFrom != first.TraceID || string(res.Value) != `"paid"` {
			t.Errorf("settled at look %d: %+v, %v", at, res, err)
		}
	}
}

func TestResolveEndsDoubtOnce(t *testing.T) {
	b := setup(t, park)
	b.tool.answer = unknown
	res, _ := b.call(charge("order-1"))
	doubt, err := b.rt.InDoubt(context.Background())
	if err != nil || len(doubt) != 1 || doubt[0].TraceID != res.TraceID {
		t.Fatalf("in doubt %+v, %v", doubt, err)
	}
	ctx := context.Background()
	r := runtime.Resolution{Reply: ok(`"paid"`), Who: "ann"}
	_, err = b.rt.Resolve(ctx, res.TraceID, r)
	wantCode(t, err, tga.ValidationError) // no evidence
	r.Evidence = []byte("statement line 7")
	got, err := b.rt.Resolve(ctx, res.TraceID, r)
	if err != nil || got.State != tga.Completed || string(got.Value) != `"paid"` {
		t.Fatalf("%+v, %v", got, err)
	}
	_, err = b.rt.Resolve(ctx, res.TraceID, r)
	wantCode(t, err, tga.StateInvalidTransition)
	if again := b.mustCall(charge("order-1")); again.ServedFrom != res.TraceID {
		t.Errorf("again %+v", again)
	}
	trace, err := b.db.Load(ctx, res.TraceID)
	if err != nil {
		t.Fatal(err)
	}
	if trace.Effect.Meta.String(tga.MetaResolvedBy) != "person" || trace.Effect.Meta.String(tga.MetaResolver) != "ann" || len(trace.Documents) != 2 {
		t.Errorf("effect %s with %d documents", trace.Effect.Canonical, len(trace.Documents))
	}
	b.wantSends(1)
}

func TestAbandonedKeyIsNeverSentAndNeverAPlainFailure(t *testing.T) {
	b := setup(t, park)
	b.tool.answer = unknown
	res, _ := b.call(charge("order-1"))
	got, err := b.rt.Abandon(context.Background(), res.TraceID, "ann", "")
	if err != nil || got.State != tga.Failed || got.ErrorCode != tga.EffectInDoubt {
		t.Fatalf("%+v, %v", got, err)
	}
	retry := charge("order-1")
	retry.Retry = true
	_, err = b.call(retry)
	wantCode(t, err, tga.EffectInDoubt)
	b.wantSends(1)
}

func eventually(t *testing.T, is func() bool) {
	t.Helper()
	for range 2000 {
		if is() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatal("it did not come to pass")
}

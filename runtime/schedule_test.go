package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// fireAll serves timers until none is left, moving the clock to each.
func (b *bench) fireAll() (fired int) {
	b.t.Helper()
	for range 5000 {
		next, err := b.rt.FireTimers(b.t.Context())
		if err != nil {
			b.t.Fatal(err)
		}
		if next == 0 {
			return fired
		}
		fired++
		b.advance(max(next.Time().Sub(b.clock()), 0))
	}
	b.t.Fatal("the timers do not end")
	return 0
}

func busy(int, runtime.Call) (runtime.Reply, error) {
	return runtime.Reply{Status: tga.StatusFailure, Class: ledger.ClassRetryable, ErrorCode: "BUSY"}, nil
}

// TestRetryableFailureIsTriedAgainOnTime: the class alone decides. Each new attempt has the same key
// and a trace of its own. There are as many as configured, also over a restart, and no more.
func TestRetryableFailureIsTriedAgainOnTime(t *testing.T) {
	p := park
	p.Retry = runtime.Backoff{First: time.Minute, Max: 3 * time.Minute, Attempts: 3}
	b := setup(t, p, func(b *bench) { b.tool.answer = busy })
	first := b.mustCall(charge("k"))
	b.wantSends(1)
	b.reopen() // the next attempt's time survives
	if next, err := b.rt.FireTimers(t.Context()); err != nil || next <= tga.MillisOf(b.clock()) || next > tga.MillisOf(b.clock().Add(time.Minute)) {
		t.Fatalf("next %v, %v: want within a minute of %v", next, err, b.clock())
	}
	b.wantSends(1)
	if fired := b.fireAll(); fired < 3 {
		t.Errorf("%d timers", fired)
	}
	b.wantSends(4)
	keys, traces := map[string]bool{}, map[tga.ID]bool{}
	for _, c := range b.tool.calls {
		keys[c.Key], traces[c.TraceID] = true, true
	}
	if len(keys) != 1 || len(traces) != 4 {
		t.Errorf("%d keys in %d traces", len(keys), len(traces))
	}
	r := b.record("k")
	if r.TraceID == first.TraceID || r.Class != ledger.ClassRetryable {
		t.Errorf("record %+v", r)
	}
	// Whoever repeats the call is served the newest outcome.
	if res := b.mustCall(charge("k")); res.ServedFrom != r.TraceID {
		t.Errorf("%+v", res)
	}
	b.wantSends(4)
}

func TestRetryEndsWithSuccess(t *testing.T) {
	p := park
	p.Retry = runtime.Backoff{Attempts: 9}
	b := setup(t, p, func(b *bench) {
		b.tool.answer = func(n int, c runtime.Call) (runtime.Reply, error) {
			if n < 3 {
				return busy(n, c)
			}
			return ok(`{}`), nil
		}
	})
	b.mustCall(charge("k"))
	b.fireAll()
	b.wantSends(3)
	if r := b.record("k"); r.Class != ledger.ClassCommitted {
		t.Errorf("record %+v", r)
	}
}

// TestWhatIsNeverTriedAgain: the scheduler decides by the class alone.
func TestWhatIsNeverTriedAgain(t *testing.T) {
	for class, status := range map[ledger.Class]string{
		ledger.ClassCommitted: tga.StatusSuccess, ledger.ClassSuccess: tga.StatusSuccess,
		ledger.ClassPermanent: tga.StatusFailure, ledger.ClassCompensatable: tga.StatusFailure, ledger.ClassCompensated: tga.StatusFailure,
	} {
		p := park
		p.Retry = runtime.Backoff{Attempts: 9}
		b := setup(t, p, func(b *bench) {
			b.tool.answer = func(int, runtime.Call) (runtime.Reply, error) {
				return runtime.Reply{Status: status, Class: class}, nil
			}
		})
		b.mustCall(charge("k"))
		if n := b.fireAll(); n != 0 {
			t.Errorf("%v: %d timers", class, n)
		}
		b.wantSends(1)
	}
	// Nor under spec-9.3, after the deadline, or where attempts are not configured.
	for name, change := range map[string]func(*bench, *runtime.Request, *runtime.Policy){
		"spec-9.3": func(b *bench, _ *runtime.Request, _ *runtime.Policy) { b.opts.Profile = ledger.Spec93 },
		"deadline": func(b *bench, r *runtime.Request, _ *runtime.Policy) { r.Deadline = b.clock().Add(20 * time.Second) },
		"none":     func(_ *bench, _ *runtime.Request, p *runtime.Policy) { p.Retry.Attempts = 0 },
	} {
		p, req := park, charge("k")
		p.Retry = runtime.Backoff{First: time.Minute, Attempts: 9}
		b := setup(t, park, func(b *bench) { b.tool.answer = busy })
		change(b, &req, &p)
		b.opts.Policy = func(string, string) runtime.Policy { return p }
		b.start()
		b.mustCall(req)
		b.fireAll()
		if got := b.tool.sends(); got != 1 {
			t.Errorf("%s: %d sends", name, got)
		}
	}
}

// TestRetryIsMadeOnceThroughCrashes: after a crash at any append of a due new attempt, the attempt is
// made, and it is made once.
func TestRetryIsMadeOnceThroughCrashes(t *testing.T) {
	for crashAt := 1; ; crashAt++ {
		for _, after := range []bool{false, true} {
			p := licence(ledger.DedupeKey)
			p.Retry = runtime.Backoff{First: time.Minute, Attempts: 1}
			b := setup(t, p, func(b *bench) { b.tool.answer = busy })
			b.mustCall(charge("k"))
			b.advance(time.Hour)
			c := &counted{Store: b.db, crashAt: crashAt, after: after}
			b.store = c
			b.start()
			_, err := b.rt.FireTimers(t.Context())
			crashed := c.down
			if crashed && !errors.Is(err, tga.StoreUnavailable) {
				t.Errorf("append %d: %v", crashAt, err)
			}
			b.store = b.db
			b.start()
			if _, err := b.rt.RecoverAll(t.Context(), 2); err != nil {
				t.Fatal(err)
			}
			b.fireAll()
			traces := map[tga.ID]bool{}
			for _, c := range b.tool.calls {
				traces[c.TraceID] = true
			}
			if len(traces) != 2 {
				t.Errorf("crash at append %d (done %v): sent from %d traces, want 2", crashAt, after, len(traces))
			}
			if !crashed {
				if crashAt < 3 {
					t.Errorf("only %d appends", crashAt-1)
				}
				return
			}
		}
	}
}

// TestDerivedKeys: a repeat after a lost answer is a repeat; two intended calls are two;
// a crash before the answer was delivered errs towards the repeat.
func TestDerivedKeys(t *testing.T) {
	b := setup(t, park)
	req := runtime.Request{Server: "payments", Tool: "charge", Args: []byte(`{"amount":1}`), Scope: "job-1", Step: "pay"}
	first := b.mustCall(req)
	want, err := ledger.DeriveKey("job-1", "pay", "charge", []byte(`{"amount":1}`), 0)
	if err != nil || first.Key != want {
		t.Errorf("key %s, want %s, %v", first.Key, want, err)
	}
	if again := b.mustCall(req); again.ServedFrom != first.TraceID {
		t.Errorf("a repeat after a lost answer: %+v", again)
	}
	b.reopen()
	if again := b.mustCall(req); again.ServedFrom != first.TraceID {
		t.Errorf("a repeat after a restart: %+v", again)
	}
	b.wantSends(1)
	for range 2 { // told twice
		if err := b.rt.Delivered(t.Context(), first.TraceID); err != nil {
			t.Fatal(err)
		}
	}
	second := b.mustCall(req)
	if second.Key == first.Key || !second.ServedFrom.IsZero() {
		t.Errorf("the second intended call: %+v", second)
	}
	b.reopen()
	if again := b.mustCall(req); again.ServedFrom != second.TraceID {
		t.Errorf("a repeat of the second: %+v", again)
	}
	b.wantSends(2)
	other := req
	other.Step = "pay\x00more"
	_, err = b.call(other)
	wantCode(t, err, tga.ValidationError)
	// Two servers, scopes, steps and arguments do not share a counter.
	for _, change := range []func(*runtime.Request){
		func(r *runtime.Request) { r.Server = "other" }, func(r *runtime.Request) { r.Scope = "job-2" },
		func(r *runtime.Request) { r.Step = "tip" }, func(r *runtime.Request) { r.Args = []byte(`{"amount":2}`) },
		func(r *runtime.Request) { r.Namespace = "tenant" },
	} {
		next := req
		change(&next)
		if res := b.mustCall(next); !res.ServedFrom.IsZero() {
			t.Errorf("%+v was served", next)
		}
	}
	b.wantSends(7)
}

// TestExpiredApprovalIsRecordedWithoutAnybodyAsking, also when the process was down.
func TestExpiredApprovalIsRecordedWithoutAnybodyAsking(t *testing.T) {
	b := setup(t, park, func(b *bench) {
		b.sup = runtime.Rules{Rules: []runtime.Rule{{Decision: tga.NeedsApproval, Within: time.Hour}}}
	})
	late, err := b.call(charge("late"))
	wantCode(t, err, tga.EscalationRequired)
	inTime, err := b.call(charge("in-time"))
	wantCode(t, err, tga.EscalationRequired)
	if _, err := b.rt.Decide(t.Context(), inTime.TraceID, runtime.Vote{Who: "ann", Approve: true, Rationale: "checked with the customer"}); err != nil {
		t.Fatal(err)
	}
	b.reopen()
	b.fireAll()
	b.wantState(late.TraceID, tga.Denied)
	b.wantState(inTime.TraceID, tga.Completed)
	if s := b.rt.Stats(); s.Expired != 1 {
		t.Errorf("stats %+v", s)
	}
	for _, err := range b.db.Attachments(t.Context(), chain.AttachTimer, nil) {
		t.Errorf("a timer is left (%v)", err)
	}
	if b.notes(inTime.TraceID, tga.NoteVote) != 1 {
		t.Error("the vote is not in the chain")
	}
	b.wantSends(1)
}

// TestExpiryIsNotSpentTooEarly: a timer whose trace still waits for people stays, wherever the
// clock stands within a millisecond when it is anchored, and where the wall clock is slewed
// after that.
func TestExpiryIsNotSpentTooEarly(t *testing.T) {
	serial.Test(t)
	const within = time.Second
	for _, c := range []struct{ begun, anchored, set, slewed time.Duration }{
		{0, 0, 0, 0},
		{300 * time.Microsecond, 900 * time.Microsecond, 0, 0},
		{900 * time.Microsecond, 300 * time.Microsecond, 0, 0},
		{time.Millisecond - 1, 1, 0, 0},
		{0, 350 * time.Microsecond, -time.Hour, 0},
		{0, 0, -time.Hour, 200 * time.Millisecond},
	} {
		b := setup(t, park, func(b *bench) {
			b.sup = runtime.Rules{Rules: []runtime.Rule{{Decision: tga.NeedsApproval, Within: within}}}
			b.opts.Monotonic = b.monotonic
		})
		b.advance(c.begun)
		res, err := b.call(charge("k"))
		wantCode(t, err, tga.EscalationRequired)
		b.advance(c.anchored)
		b.jump(c.set) // while no process looks: the timer is anchored to what passes
		b.reopen()
		fire := func() {
			t.Helper()
			if _, err := b.rt.FireTimers(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		fire()
		b.jump(c.slewed)
		step := 100 * time.Microsecond
		for range (within + 2*time.Millisecond) / step {
			b.advance(step)
			fire()
		}
		if c.slewed != 0 {
			b.advance(time.Minute) // it rests after it came too early
			fire()
		}
		b.wantState(res.TraceID, tga.Denied)
	}
}

func TestSubmitterDoesNotApprove(t *testing.T) {
	for _, self := range []bool{false, true} {
		b := setup(t, park, func(b *bench) {
			b.sup = runtime.Rules{Rules: []runtime.Rule{{Decision: tga.NeedsApproval}}}
			b.opts.Trust.SelfApproval = self
		})
		req := charge("k")
		req.Submitter = "uid:1000"
		res, err := b.call(req)
		wantCode(t, err, tga.EscalationRequired)
		_, err = b.rt.Decide(t.Context(), res.TraceID, runtime.Vote{Who: "uid:1000", Approve: true, Rationale: "looks good to me"})
		if self != (err == nil) || !self && !errors.Is(err, tga.PermissionDenied) {
			t.Errorf("self %v: %v", self, err)
		}
	}
}

// TestApprovedRemoteCallIsLeftToItsExecutor: if people approve a call that a remote executor
// began, this process sends nothing; the executor gets the call when it asks again.
func TestApprovedRemoteCallIsLeftToItsExecutor(t *testing.T) {
	b := setup(t, park, func(b *bench) {
		b.sup = runtime.Rules{Rules: []runtime.Rule{{Decision: tga.NeedsApproval}}}
	})
	req := runtime.BeginRequest{Request: charge("k"), BeginID: "one"}
	req.TraceID = newID()
	begun, err := b.rt.Begin(t.Context(), req)
	if err != nil || begun.Standing != runtime.BeginNeedsApproval {
		t.Fatalf("%+v, %v", begun, err)
	}
	res, err := b.rt.Decide(t.Context(), req.TraceID, runtime.Vote{Who: "ann", Approve: true, Rationale: "checked with the customer"})
	if err != nil || res.State != tga.Authorized {
		t.Fatalf("%+v, %v", res, err)
	}
	b.reopen()
	if _, err := b.rt.RecoverAll(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	b.wantSends(0)
	begun, err = b.rt.Begin(t.Context(), req)
	if err != nil || begun.Standing != runtime.BeginSend || begun.Attempt != 1 {
		t.Fatalf("%+v, %v", begun, err)
	}
	// It gives up: the next Begin is answered by licence at once.
	if err := b.rt.GiveUp(t.Context(), req.TraceID, begun.Permit, "", 0); err != nil {
		t.Fatal(err)
	}
	other := req
	other.BeginID = "two"
	if begun, err = b.rt.Begin(t.Context(), other); err != nil || begun.Standing != runtime.BeginInDoubt {
		t.Errorf("%+v, %v", begun, err)
	}
	b.wantSends(0)
}

// TestTimerThatStandsForNothingEnds: if a tool has no inverse, or a new attempt is refused before
// anything is written, the timer ends and does not keep the process busy.
func TestTimerThatStandsForNothingEnds(t *testing.T) {
	p := park
	p.AutoCompensate, p.Retry = true, runtime.Backoff{Attempts: 1}
	b := setup(t, p, func(b *bench) {
		b.tool.answer = func(n int, _ runtime.Call) (runtime.Reply, error) {
			class := ledger.ClassCompensatable
			if n > 1 {
				class = ledger.ClassRetryable
			}
			return runtime.Reply{Status: tga.StatusFailure, Class: class}, nil
		}
	})
	b.mustCall(charge("half"))
	b.mustCall(charge("busy"))
	b.sup = runtime.Rules{} // denies everything, so the new attempt is not made
	b.start()
	b.fireAll()
	b.wantSends(2)
	for a, err := range b.db.Attachments(t.Context(), chain.AttachTimer, nil) {
		t.Errorf("timer %s is left (%v)", a.Value, err)
	}
}

// interposing does something just before the first effect that is served from another
// trace is appended.
type interposing struct {
	runtime.Store
	once *sync.Once
	do   func()
}

func (s interposing) Append(ctx context.Context, l chain.Lease, b chain.Batch) (chain.Appended, error) {
	for _, a := range b.Artifacts {
		if a.Artifact.Meta.String(tga.MetaReplayedFrom) != "" {
			s.once.Do(s.do)
		}
	}
	return s.Store.Append(ctx, l, b)
}

// TestServedRecordThatIsTakenIsLookedAtAgain is about a bug that a repeat during a scheduled attempt
// showed: the new attempt reserved the key after the record of a retryable failure was read and
// before it was served, and the caller got STATE_INVALID_TRANSITION.
func TestServedRecordThatIsTakenIsLookedAtAgain(t *testing.T) {
	b := setup(t, park, func(b *bench) {
		b.tool.answer = func(n int, c runtime.Call) (runtime.Reply, error) {
			if n == 1 {
				return busy(n, c)
			}
			return ok(`{"n":2}`), nil
		}
	})
	b.mustCall(charge("k"))
	scheduler := b.rt
	var second runtime.Result
	b.store = interposing{b.db, &sync.Once{}, func() {
		retry := charge("k")
		retry.Retry = true
		var err error
		if second, err = scheduler.Call(context.Background(), retry); err != nil {
			t.Error(err)
		}
	}}
	b.start()
	if res := b.mustCall(charge("k")); res.ServedFrom != second.TraceID || string(res.Value) != `{"n":2}` {
		t.Errorf("%+v, want what trace %s has", res, second.TraceID)
	}
	b.wantSends(2)
}

// TestTimerThatIsSetWakesTheRunner: RunTimers sleeps for up to a minute if no timer is due. A timer
// that is set meanwhile does not wait until that minute is over.
func TestTimerThatIsSetWakesTheRunner(t *testing.T) {
	p := park
	p.Retry = runtime.Backoff{First: time.Millisecond, Attempts: 1}
	b := setup(t, p, func(b *bench) {
		b.tool.answer = func(n int, c runtime.Call) (runtime.Reply, error) {
			if n%2 == 1 {
				return busy(n, c)
			}
			return ok(`1`), nil
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.rt.RunTimers(ctx, ctx) }()
	for i := range 3 { // from the second on, the runner sleeps
		b.mustCall(charge(fmt.Sprint("k", i)))
		b.advance(time.Second)
		for n := 0; b.tool.sends() < 2*(i+1); n++ {
			if n > 1000 {
				t.Fatalf("the timer of call %d was not served in 10 s", i)
			}
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(20 * time.Millisecond)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

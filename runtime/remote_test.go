package runtime_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

func (b *bench) begin(key, beginID string) runtime.Begun {
	b.t.Helper()
	begun, err := b.rt.Begin(context.Background(), runtime.BeginRequest{Request: charge(key), BeginID: beginID})
	if err != nil {
		b.t.Fatal(err)
	}
	return begun
}

func (b *bench) wantStanding(begun runtime.Begun, want runtime.Standing) {
	b.t.Helper()
	if begun.Standing != want {
		b.t.Errorf("begin answers %s (%v), want %s", begun.Standing, begun.Cause, want)
	}
}

func (b *bench) finish(g runtime.Begun, r runtime.Reply) (runtime.Result, error) {
	return b.rt.Finish(context.Background(), g.Result.TraceID, g.Permit, runtime.Finished{Reply: r})
}

func TestBeginAndFinishAreTwoAppends(t *testing.T) {
	b := setup(t, park)
	store := &counted{Store: b.db}
	b.store = store
	b.start()
	begun := b.begin("order-1", "begin-1")
	b.wantStanding(begun, runtime.BeginSend)
	if begun.Attempt != 1 || begun.Key != "order-1" {
		t.Errorf("begun %+v", begun)
	}
	res, err := b.finish(begun, ok(`"paid"`))
	if err != nil || res.State != tga.Completed || string(res.Value) != `"paid"` {
		t.Fatalf("%+v, %v", res, err)
	}
	if store.appends != 2 {
		t.Errorf("%d appends", store.appends)
	}
	served := b.begin("order-1", "begin-2")
	b.wantStanding(served, runtime.BeginServe)
	if served.Result.ServedFrom != res.TraceID {
		t.Errorf("served %+v", served.Result)
	}
	b.wantSends(0) // this process sends nothing
}

// TestRepeatedBeginIsItsSubmittersAlone: others can read the begin id in the log. Another submitter
// that repeats it gets no permit, and the first submitter's permit stays valid.
func TestRepeatedBeginIsItsSubmittersAlone(t *testing.T) {
	b := setup(t, park)
	begin := func(who string) runtime.Begun {
		t.Helper()
		req := charge("order-1")
		req.Submitter = who
		begun, err := b.rt.Begin(context.Background(), runtime.BeginRequest{Request: req, BeginID: "begin-1"})
		if err != nil {
			t.Fatal(err)
		}
		return begun
	}
	first := begin("uid:1000")
	b.wantStanding(first, runtime.BeginSend)
	thief := begin("uid:1001")
	b.wantStanding(thief, runtime.BeginWait)
	if thief.Permit != (runtime.Permit{}) {
		t.Errorf("it was given the permit %s", thief.Permit)
	}
	b.reopen()
	again := begin("uid:1000")
	b.wantStanding(again, runtime.BeginSend)
	if again.Permit != first.Permit || again.Attempt != 1 {
		t.Errorf("permit %s of attempt %d, first %s", again.Permit, again.Attempt, first.Permit)
	}
	if res, err := b.finish(again, ok(`"paid"`)); err != nil || res.State != tga.Completed {
		t.Errorf("%+v, %v", res, err)
	}
}

func TestRepeatedBeginNamesTheSameAttempt(t *testing.T) {
	b := setup(t, park)
	first := b.begin("order-1", "begin-1")
	b.reopen() // the permit outlives the process
	again := b.begin("order-1", "begin-1")
	b.wantStanding(again, runtime.BeginSend)
	if again.Permit != first.Permit || again.Attempt != first.Attempt || again.Result.TraceID != first.Result.TraceID {
		t.Errorf("again %+v, first %+v", again, first)
	}
	if _, err := b.finish(first, ok(`1`)); err != nil {
		t.Error(err)
	}
}

func TestOtherBeginWaitsThenGoesByLicence(t *testing.T) {
	for _, c := range []struct {
		kind ledger.LicenceKind
		want runtime.Standing
	}{
		{ledger.Park, runtime.BeginInDoubt},
		{ledger.Probe, runtime.BeginInDoubt},
		{ledger.DedupeKey, runtime.BeginSend},
		{ledger.DedupeArgs, runtime.BeginSend},
	} {
		t.Run(c.kind.String(), func(t *testing.T) {
			policy := licence(c.kind)
			policy.PermitTime = time.Minute
			b := setup(t, policy)
			first := b.begin("order-1", "begin-1")
			b.advance(time.Minute - time.Millisecond)
			b.wantStanding(b.begin("order-1", "begin-2"), runtime.BeginWait)
			b.advance(time.Millisecond)
			second := b.begin("order-1", "begin-2")
			b.wantStanding(second, c.want)
			if c.want == runtime.BeginSend {
				if second.Attempt != 2 || second.Permit == first.Permit || second.Result.TraceID != first.Result.TraceID {
					t.Errorf("second %+v", second)
				}
				// The first is overtaken: it is not handed out again, but its answer counts.
				b.wantStanding(b.begin("order-1", "begin-1"), runtime.BeginWait)
			}
			if _, err := b.finish(first, ok(`1`)); err != nil {
				t.Error(err)
			}
			b.wantSends(0)
		})
	}
}

func TestDaemonNeverSendsABegunCall(t *testing.T) {
	for _, kind := range []ledger.LicenceKind{ledger.Park, ledger.DedupeKey, ledger.DedupeArgs} {
		b := setup(t, licence(kind))
		begun := b.begin("order-1", "begin-1")
		b.reopen()
		b.advance(10 * time.Minute)
		if _, err := b.rt.RecoverAll(context.Background(), 1); err != nil {
			t.Fatal(err)
		}
		_, err := b.call(charge("order-1"))
		wantCode(t, err, tga.EffectInDoubt)
		b.wantState(begun.Result.TraceID, tga.Executing)
		b.wantSends(0)
	}
}

func TestNotSentGivesTheKeyToTheNextBegin(t *testing.T) {
	b := setup(t, park)
	first := b.begin("order-1", "begin-1")
	ctx := context.Background()
	for n := range 2 { // said twice is said once
		res, err := b.rt.NotSent(ctx, first.Result.TraceID, first.Permit, "no route", 0)
		if err != nil || res.State != tga.Failed || res.Class != ledger.ClassNotSent || res.ErrorMessage != "no route" || res.Replayed != (n == 1) {
			t.Fatalf("%+v, %v", res, err)
		}
	}
	second := b.begin("order-1", "begin-2")
	b.wantStanding(second, runtime.BeginSend)
	if second.Attempt != 1 || second.Result.TraceID == first.Result.TraceID || second.Permit == first.Permit {
		t.Errorf("the second begin: %+v", second)
	}
	// The permit of the call that was not sent ends nothing of the one that follows it.
	_, err := b.finish(first, ok(`1`))
	wantCode(t, err, tga.StateInvalidTransition)
	b.wantState(second.Result.TraceID, tga.Executing)
	if res, err := b.finish(second, ok(`1`)); err != nil || res.State != tga.Completed {
		t.Errorf("%+v, %v", res, err)
	}
}

// TestPermitTakenBackIsNotHandedOutAgain: of two attempts the second reached nobody. Its permit is no
// longer valid, and that of the first is. A repeat of the second begin gets another attempt.
func TestPermitTakenBackIsNotHandedOutAgain(t *testing.T) {
	policy := licence(ledger.DedupeArgs)
	policy.PermitTime = 10 * time.Minute
	b := setup(t, policy)
	first := b.begin("k", "begin-1")
	b.advance(policy.PermitTime)
	second := b.begin("k", "begin-2")
	b.wantStanding(second, runtime.BeginSend)
	trace := first.Result.TraceID
	for _, replayed := range []bool{false, true} {
		res, err := b.rt.NotSent(t.Context(), trace, second.Permit, "nobody listened", 0)
		if err != nil || res.Replayed != replayed || res.State != tga.Executing {
			t.Fatalf("taken back, again %v: %+v, %v", replayed, res, err)
		}
	}
	third := b.begin("k", "begin-2")
	b.wantStanding(third, runtime.BeginSend)
	if second.Attempt != 2 || third.Attempt != 3 || third.Permit == second.Permit {
		t.Errorf("attempts %d and %d", second.Attempt, third.Attempt)
	}
	// While nobody knows what became of the first, the trace does not end.
	for _, c := range []struct {
		permit runtime.Permit
		state  tga.State
	}{{third.Permit, tga.Executing}, {first.Permit, tga.Failed}} {
		if res, err := b.rt.NotSent(t.Context(), trace, c.permit, "nobody listened", 0); err != nil || res.Replayed || res.State != c.state {
			t.Errorf("taken back: %+v, %v", res, err)
		}
	}
	if res, err := b.rt.Result(t.Context(), trace); err != nil || res.Attempts != 3 || res.Sent != 0 {
		t.Errorf("three attempts that reached nobody: %d, sent %d, %v", res.Attempts, res.Sent, err)
	}
}

// TestPermitIsReadInOneSpelling: 32 lowercase digits, and none a byte short or long.
func TestPermitIsReadInOneSpelling(t *testing.T) {
	const good = "00112233445566778899aabbccddeeff"
	for s, ok := range map[string]bool{
		good: true, good[2:]: false, good + "00": false, good[1:]: false, "": false, strings.ToUpper(good): false, good[:31] + "g": false,
	} {
		p, err := runtime.ParsePermit(s)
		if (err == nil) != ok || ok && p.String() != s || !ok && (p != runtime.Permit{} || tga.CodeOf(err) != tga.ValidationError) {
			t.Errorf("%q: %v, %v", s, p, err)
		}
	}
}

func TestFinishIsAcceptedOnce(t *testing.T) {
	b := setup(t, park)
	begun := b.begin("order-1", "begin-1")
	stranger := begun
	stranger.Permit[0] ^= 1
	_, err := b.finish(stranger, ok(`"paid"`))
	wantCode(t, err, tga.PermissionDenied)
	b.wantState(begun.Result.TraceID, tga.Executing)

	if _, err := b.finish(begun, ok(`"paid"`)); err != nil {
		t.Fatal(err)
	}
	again, err := b.finish(begun, ok(`"paid"`))
	if err != nil || !again.Replayed {
		t.Errorf("again %+v, %v", again, err)
	}
	_, err = b.finish(begun, ok(`"paid twice"`))
	wantCode(t, err, tga.StateInvalidTransition)
	trace, err := b.db.Load(context.Background(), begun.Result.TraceID)
	if err != nil {
		t.Fatal(err)
	}
	if len(trace.Notes) != 1 || trace.Notes[0].Kind != tga.NoteLateReply {
		t.Errorf("notes %+v, want the late reply", trace.Notes)
	}
	if got := b.wantState(begun.Result.TraceID, tga.Completed); string(got.Value) != `"paid"` {
		t.Errorf("value %s", got.Value)
	}
}

func TestBeginWithOtherArgumentsIsAConflict(t *testing.T) {
	b := setup(t, park)
	b.begin("order-1", "begin-1")
	req := charge("order-1")
	req.Args = []byte(`{"amount":200}`)
	begun, err := b.rt.Begin(context.Background(), runtime.BeginRequest{Request: req, BeginID: "begin-2"})
	if err != nil {
		t.Fatal(err)
	}
	b.wantStanding(begun, runtime.BeginConflict)
}

func TestCallWaitsForARemoteExecutor(t *testing.T) {
	b := setup(t, park)
	begun := b.begin("order-1", "begin-1")
	done := make(chan runtime.Result, 1)
	go func() {
		res, err := b.call(charge("order-1"))
		if err != nil {
			t.Error(err)
		}
		done <- res
	}()
	eventually(t, func() bool { return b.rt.Stats().Waited > 0 })
	if _, err := b.finish(begun, ok(`"paid"`)); err != nil {
		t.Fatal(err)
	}
	if res := <-done; res.ServedFrom != begun.Result.TraceID {
		t.Errorf("%+v", res)
	}
	if n := b.rt.Stats().Waited; n > 3 {
		t.Errorf("waited %d times: a wait must not spin", n)
	}
	b.wantSends(0)
}

// TestPermitSaysUntilWhenItsSendMayBegin: a permit of a re-send ends with the window in which the
// server honours the key, one of a first send with the call's deadline. None is handed out, for
// the first time or again, at that moment or later.
func TestPermitSaysUntilWhenItsSendMayBegin(t *testing.T) {
	// From the first attempt on: the window of an hour, without margin and send time-out.
	const window = time.Hour - ledger.DefaultMargin - runtime.DefaultSendTimeout
	for _, c := range []struct {
		name    string
		kind    ledger.LicenceKind
		attempt uint32
		until   time.Duration // after the call began; 0 = no bound
		given   time.Duration // the call's deadline; 0 = none
	}{
		{"first attempt", ledger.DedupeKey, 1, 0, 0},
		{"first attempt, deadline", ledger.Park, 1, 50 * time.Minute, 50 * time.Minute},
		{"re-send of what is keyed", ledger.DedupeKey, 2, window, 0},
		{"re-send, deadline", ledger.DedupeKey, 2, window, 50 * time.Minute},
		{"re-send of what repeats harmlessly", ledger.DedupeArgs, 2, 0, 50 * time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			policy := licence(c.kind)
			policy.PermitTime = 2 * time.Hour // beyond what is looked at here
			if c.attempt == 2 {
				policy.PermitTime = 40 * time.Minute // over before the window is, and then once more
			}
			b := setup(t, policy)
			begin := func(id string) runtime.Begun {
				t.Helper()
				req := charge("order-1")
				if c.given != 0 {
					req.Deadline = epoch.Add(c.given)
				}
				g, err := b.rt.Begin(t.Context(), runtime.BeginRequest{Request: req, BeginID: id})
				if err != nil {
					t.Fatal(err)
				}
				return g
			}
			id := "begin-1"
			g := begin(id)
			if c.attempt == 2 {
				b.advance(policy.PermitTime)
				id = "begin-2"
				g = begin(id)
			}
			b.wantStanding(g, runtime.BeginSend)
			for _, left := range []time.Duration{time.Minute, time.Millisecond} {
				if c.until == 0 {
					break
				}
				b.advance(c.until - left - b.clock().Sub(epoch))
				again := begin(id)
				b.wantStanding(again, runtime.BeginSend)
				if again.SendWithin != min(left, runtime.DefaultSendTimeout) || again.Permit != g.Permit || again.Attempt != c.attempt {
					t.Errorf("%v before the end: %+v", left, again)
				}
			}
			if c.until == 0 {
				if g.SendWithin != runtime.DefaultSendTimeout {
					t.Errorf("bounded by %v, want the send time-out", g.SendWithin)
				}
				b.advance(policy.PermitTime - time.Millisecond)
				if again := begin(id); again.Permit != g.Permit {
					t.Errorf("while the permit is fresh: %+v", again)
				}
				return
			}
			b.advance(time.Millisecond)
			if late := begin(id); late.Standing == runtime.BeginSend || late.Permit != (runtime.Permit{}) {
				t.Errorf("when it is over: %+v", late)
			}
		})
	}
	now := time.Now()
	for _, b := range []struct {
		begun runtime.Begun
		asked time.Time
		late  bool
	}{
		{runtime.Begun{}, now.Add(-time.Hour), false},
		{runtime.Begun{SendWithin: time.Hour}, now, false},
		{runtime.Begun{SendWithin: time.Hour}, now.Add(-time.Hour), true},
	} {
		if b.begun.Late(b.asked) != b.late {
			t.Errorf("within %v, asked %v ago: late is %v", b.begun.SendWithin, time.Since(b.asked), !b.late)
		}
	}
}

// TestCauseOfAGivenUpAttemptIsKept: the cause that an executor gives for an attempt that it gave up is
// noted once, with bounded length. Later askers get the cause, also after a restart.
func TestCauseOfAGivenUpAttemptIsKept(t *testing.T) {
	for said, want := range map[string]string{
		"":                        "",
		"the tool server is gone": "its executor says: the tool server is gone",
		strings.Repeat("é", 481):  "its executor says: " + strings.Repeat("é", 481),
		strings.Repeat("é", 482):  "its executor says: " + strings.Repeat("é", 480) + "…",
	} {
		b := setup(t, park)
		begun := b.begin("k", "begin-1")
		trace := begun.Result.TraceID
		for _, cause := range []string{said, said, "another"} {
			if said == "" && cause != "" {
				break
			}
			if err := b.rt.GiveUp(t.Context(), trace, begun.Permit, cause, 0); err != nil {
				t.Fatal(err)
			}
		}
		b.reopen()
		read, err := b.db.Load(t.Context(), trace)
		if err != nil {
			t.Fatal(err)
		}
		if got := runtime.DoubtCause(read); got != want || b.notes(trace, tga.NoteDoubt) != min(len(want), 1) {
			t.Errorf("said %.20q, kept %.40q in %d notes", said, got, b.notes(trace, tga.NoteDoubt))
		}
		if want != "" {
			b.advance(time.Hour)
			if again := b.begin("k", "begin-2"); again.Standing != runtime.BeginInDoubt || !strings.Contains(again.Cause.Error(), want) {
				t.Errorf("told %v: %v", again.Standing, again.Cause)
			}
		}
	}
}

// TestWaitEndsWithThePermit: a run that waits for a remote executor's call reads the record again when
// the permit goes stale, and answers that the call is in doubt, not that the wait is over.
func TestWaitEndsWithThePermit(t *testing.T) {
	policy := park
	policy.PermitTime = time.Minute
	b := setup(t, policy)
	begun := b.begin("order-1", "begin-1")
	b.advance(time.Minute - 50*time.Millisecond) // the wait itself is by the real clock
	told := make(chan error, 1)
	go func() {
		_, err := b.call(charge("order-1"))
		told <- err
	}()
	eventually(t, func() bool { return b.rt.Stats().Waited > 0 })
	b.advance(50 * time.Millisecond)
	err := <-told
	wantCode(t, err, tga.EffectInDoubt)
	if err == nil || !strings.Contains(err.Error(), begun.Result.TraceID.String()) {
		t.Errorf("%v", err)
	}
	b.wantSends(0)
}

// TestExecutorBeginsNobodyElsesCall: a Begin that names the trace of a call which this process makes gets no
// permit for it, and writes nothing. When that call has ended, the Begin is served.
func TestExecutorBeginsNobodyElsesCall(t *testing.T) {
	policy := licence(ledger.DedupeArgs)
	policy.Resends = -1
	b := setup(t, policy, func(b *bench) { b.tool.answer = unknown })
	req := runtime.BeginRequest{Request: charge("k"), BeginID: "one"}
	req.TraceID = newID()
	_, err := b.call(req.Request)
	wantCode(t, err, tga.EffectInDoubt)
	_, err = b.rt.Begin(t.Context(), req)
	wantCode(t, err, tga.PermissionDenied)
	if res := b.wantState(req.TraceID, tga.Executing); res.Attempts != 1 {
		t.Errorf("%d attempts", res.Attempts)
	}
	b.tool.answer = nil
	if _, err := b.rt.Recover(t.Context(), req.TraceID); err != nil {
		t.Fatal(err)
	}
	served, err := b.rt.Begin(t.Context(), req)
	if err != nil || served.Standing != runtime.BeginServe {
		t.Errorf("%+v, %v", served, err)
	}
}

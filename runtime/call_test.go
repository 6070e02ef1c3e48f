package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

func TestGovernedCallIsTwoAppends(t *testing.T) {
	b := setup(t, park)
	store := &counted{Store: b.db}
	b.store = store
	b.start()
	res := b.mustCall(charge("order-1"))
	if res.State != tga.Completed || string(res.Value) != `{"paid":9007199254740993}` || res.Attempts != 1 {
		t.Errorf("result %+v", res)
	}
	if store.appends != 2 {
		t.Errorf("%d appends, want intent and effect", store.appends)
	}
	b.wantSends(1)
}

func TestRecordedEffectIsNeverRedispatched(t *testing.T) {
	for _, kind := range []ledger.LicenceKind{ledger.Park, ledger.Probe, ledger.DedupeKey, ledger.DedupeArgs} {
		t.Run(kind.String(), func(t *testing.T) {
			b := setup(t, licence(kind))
			first := b.mustCall(charge("order-1"))
			again := b.mustCall(charge("order-1"))
			b.reopen()
			later := b.mustCall(charge("order-1"))
			recovered, err := b.rt.Recover(context.Background(), first.TraceID)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range []runtime.Result{again, later} {
				if r.ServedFrom != first.TraceID || string(r.Value) != string(first.Value) || r.Class != first.Class || r.Attempts != 0 {
					t.Errorf("served %+v, want the effect of %s", r, first.TraceID)
				}
			}
			if !recovered.Replayed || recovered.State != tga.Completed {
				t.Errorf("recovered %+v", recovered)
			}
			b.wantSends(1)
		})
	}
}

func TestRecordedFailureIsAResult(t *testing.T) {
	b := setup(t, park)
	b.tool.answer = func(int, runtime.Call) (runtime.Reply, error) {
		return runtime.Reply{Status: tga.StatusFailure, Result: []byte(`"no funds"`), ErrorMessage: "no funds"}, nil
	}
	first := b.mustCall(charge("order-1"))
	again := b.mustCall(charge("order-1"))
	wantCode(t, first.Err(), tga.ToolError)
	if again.State != tga.Failed || again.ServedFrom != first.TraceID || again.Class != ledger.ClassPermanent {
		t.Errorf("again %+v", again)
	}
	b.wantSends(1)
}

func TestSameKeyOtherArgumentsWritesNothing(t *testing.T) {
	b := setup(t, park)
	b.mustCall(charge("order-1"))
	before := b.db.Stats()
	other := charge("order-1")
	other.Args = []byte(`{"amount":200}`)
	other.TraceID = newID()
	_, err := b.call(other)
	wantCode(t, err, tga.IdempotencyKeyConflict)
	b.wantNothing(other.TraceID)
	if after := b.db.Stats(); after.Appends != before.Appends {
		t.Errorf("%d appends", after.Appends-before.Appends)
	}
	b.wantSends(1)
}

func TestBadRequestsWriteNothing(t *testing.T) {
	b := setup(t, park)
	for _, c := range []struct {
		name string
		with func(*runtime.Request)
		want tga.Code
	}{
		{"write call without a key", func(r *runtime.Request) { r.Key = "" }, tga.IdempotencyKeyRequired},
		{"duplicate member", func(r *runtime.Request) { r.Args = []byte(`{"a":1,"a":2}`) }, tga.ValidationError},
		{"unsafe number", func(r *runtime.Request) { r.Args = []byte(`{"a":9007199254740993}`) }, tga.ValidationError},
		{"arguments that are no object", func(r *runtime.Request) { r.Args = []byte(`[1]`) }, tga.SchemaViolation},
		{"tool name", func(r *runtime.Request) { r.Tool = "a b" }, tga.SchemaViolation},
		{"key over the limit", func(r *runtime.Request) { r.Key = fmt.Sprintf("%0256d", 1) }, tga.SchemaViolation},
		{"intent too short", func(r *runtime.Request) { r.Intent = "short" }, tga.SchemaViolation},
		{"own meta", func(r *runtime.Request) { r.Meta = tga.Meta{"namespace": "x"} }, tga.ValidationError},
	} {
		t.Run(c.name, func(t *testing.T) {
			req := charge("order-1")
			req.TraceID = newID()
			c.with(&req)
			_, err := b.call(req)
			wantCode(t, err, c.want)
			b.wantNothing(req.TraceID)
		})
	}
	b.wantSends(0)
	ok := charge(fmt.Sprintf("%0255d", 1)) // at the limit
	b.mustCall(ok)
}

func TestThousandRacersOneDispatch(t *testing.T) {
	b := setup(t, park)
	b.tool.answer = func(int, runtime.Call) (runtime.Reply, error) {
		time.Sleep(5 * time.Millisecond) // long enough for racers to find the key taken
		return ok(`"once"`), nil
	}
	const racers = 1000
	results := make([]runtime.Result, racers)
	errs := make([]error, racers)
	var wg sync.WaitGroup
	for i := range racers {
		wg.Go(func() { results[i], errs[i] = b.call(charge("order-1")) })
	}
	wg.Wait()
	served := 0
	for i, r := range results {
		if errs[i] != nil || string(r.Value) != `"once"` {
			t.Fatalf("racer %d: %+v, %v", i, r, errs[i])
		}
		if !r.ServedFrom.IsZero() {
			served++
		}
	}
	b.wantSends(1)
	if served != racers-1 {
		t.Errorf("%d served, want %d", served, racers-1)
	}
}

func TestDeniedIsNotSent(t *testing.T) {
	b := setup(t, park, func(b *bench) {
		b.sup = runtime.Rules{Rules: []runtime.Rule{{Tool: "charge", Risk: tga.RiskWrite, Decision: tga.Deny}}}
	})
	res := b.mustCall(charge("order-1"))
	if res.State != tga.Denied {
		t.Errorf("state %v", res.State)
	}
	wantCode(t, res.Err(), tga.PolicyViolation)
	b.wantSends(0)
}

func TestToolThatNoRuleNamesIsDenied(t *testing.T) {
	b := setup(t, park, func(b *bench) {
		b.sup = runtime.Rules{Rules: []runtime.Rule{{Tool: "refund", Decision: tga.Approve}}}
	})
	if res := b.mustCall(charge("order-1")); res.State != tga.Denied {
		t.Errorf("state %v", res.State)
	}
	b.wantSends(0)
}

func TestReadCallsAreNeverServedToEachOther(t *testing.T) {
	b := setup(t, licence(ledger.ReadOnly))
	req := charge("")
	first, second := b.mustCall(req), b.mustCall(req)
	if first.Class != ledger.ClassSuccess || first.Key != first.ToolCallID.String() || !second.ServedFrom.IsZero() {
		t.Errorf("first %+v\nsecond %+v", first, second)
	}
	b.wantSends(2)
}

func TestRiskRaisesTheClassAndNeverLowersIt(t *testing.T) {
	b := setup(t, licence(ledger.ReadOnly))
	raised := charge("")
	raised.Risk = tga.RiskWrite
	_, err := b.call(raised)
	wantCode(t, err, tga.IdempotencyKeyRequired)

	w := setup(t, park)
	lowered := charge("")
	lowered.Risk = tga.RiskRead
	_, err = w.call(lowered)
	wantCode(t, err, tga.IdempotencyKeyRequired)
}

func TestDeadlinePassedIsNeverSent(t *testing.T) {
	b := setup(t, park)
	late := charge("order-1")
	late.TraceID = newID()
	late.Deadline = b.clock() // at the deadline is past it
	_, err := b.call(late)
	wantCode(t, err, tga.ToolTimeout)
	b.wantNothing(late.TraceID)

	for _, at := range []time.Time{time.Unix(0, 0), time.Unix(0, 999_999), time.Unix(-1, 0)} {
		late.Deadline = at // long ago, and not none
		_, err := b.call(late)
		wantCode(t, err, tga.ToolTimeout)
	}
	b.wantSends(0)

	inTime := charge("order-1")
	inTime.Deadline = b.clock().Add(time.Millisecond)
	b.mustCall(inTime)
	b.wantSends(1)
}

func TestAnswerIsRecordedAfterCancel(t *testing.T) {
	b := setup(t, park)
	b.store = impatient{b.db}
	b.start()
	ctx, cancel := context.WithCancel(context.Background())
	b.tool.answer = func(int, runtime.Call) (runtime.Reply, error) {
		cancel()
		return ok(`"paid"`), nil
	}
	res, err := b.rt.Call(ctx, charge("order-1"))
	if err != nil || res.State != tga.Completed {
		t.Fatalf("%+v, %v", res, err)
	}
	b.reopen()
	if got := b.wantState(res.TraceID, tga.Completed); string(got.Value) != `"paid"` {
		t.Errorf("value %s", got.Value)
	}
}

func TestCancelWhileExecutingIsInDoubt(t *testing.T) {
	for _, kind := range []ledger.LicenceKind{ledger.Park, ledger.DedupeKey} {
		b := setup(t, licence(kind))
		b.store = impatient{b.db}
		b.start()
		ctx, cancel := context.WithCancel(context.Background())
		b.tool.answer = func(int, runtime.Call) (runtime.Reply, error) {
			cancel()
			return runtime.Reply{}, ctx.Err()
		}
		res, err := b.rt.Call(ctx, charge("order-1"))
		wantCode(t, err, tga.EffectInDoubt)
		b.wantState(res.TraceID, tga.Executing)
		b.wantSends(1) // nobody waits: even a licensed re-send is left to a later run
	}
}

func TestCancelBeforeTheSendIsKnownNotToHaveRun(t *testing.T) {
	b := setup(t, park)
	ctx, cancel := context.WithCancel(context.Background())
	b.store = cancelling{Store: impatient{b.db}, cancel: cancel}
	b.start()
	res, err := b.rt.Call(ctx, charge("order-1"))
	if err != nil || res.State != tga.Failed || res.Class != ledger.ClassNotSent {
		t.Errorf("%+v, %v", res, err)
	}
	b.wantSends(0)
}

func TestRepeatedCallOfOneTraceGoesOnWithIt(t *testing.T) {
	b := setup(t, park)
	req := charge("order-1")
	req.TraceID = newID()
	first := b.mustCall(req)
	again := b.mustCall(req)
	if !again.Replayed || again.TraceID != first.TraceID || again.Digest != first.Digest {
		t.Errorf("again %+v", again)
	}
	other := req
	other.Key = "order-2"
	_, err := b.call(other)
	wantCode(t, err, tga.StateInvalidTransition)
	b.wantSends(1)
}

func TestNamespacesDoNotShareKeys(t *testing.T) {
	b := setup(t, park)
	one, two := charge("order-1"), charge("order-1")
	two.Namespace = "tenant-b"
	b.mustCall(one)
	if res := b.mustCall(two); !res.ServedFrom.IsZero() {
		t.Error("a tenant was served another's effect")
	}
	b.wantSends(2)
}

func TestLargeAnswerIsKeptWhole(t *testing.T) {
	b := setup(t, park)
	big := make([]byte, 300<<10)
	for i := range big {
		big[i] = byte(i) // not UTF-8: an answer is bytes
	}
	b.tool.answer = func(int, runtime.Call) (runtime.Reply, error) {
		return runtime.Reply{Status: tga.StatusSuccess, Result: big}, nil
	}
	res := b.mustCall(charge("order-1"))
	b.reopen()
	if got := b.wantState(res.TraceID, tga.Completed); string(got.Value) != string(big) {
		t.Errorf("%d bytes came back of %d", len(got.Value), len(big))
	}
}

func TestTooLongAnswerOfASuccessIsASuccess(t *testing.T) {
	b := setup(t, park)
	digest := tga.Sum([]byte("what arrived"))
	b.tool.answer = func(int, runtime.Call) (runtime.Reply, error) {
		return runtime.Reply{Status: tga.StatusSuccess, Truncated: true, ResultBytes: 12, ResultDigest: digest}, nil
	}
	res := b.mustCall(charge("order-1"))
	if res.State != tga.Completed || res.Class != ledger.ClassCommitted || res.ErrorCode != "" || res.Value != nil || res.ResultBytes != 12 || res.ResultDigest != digest {
		t.Errorf("%+v", res)
	}
	trace, err := b.db.Load(context.Background(), res.TraceID)
	if err != nil {
		t.Fatal(err)
	}
	if h := trace.Effect.Effect.DocumentHashes; len(h) != 1 || h[0].Pointer != tga.PointerResult || h[0].Hash != digest || h[0].SizeBytes != 12 {
		t.Errorf("document_hashes %+v", h)
	}
}

func TestPoisonedStoreIsNotTakenForAnAnswer(t *testing.T) {
	b := setup(t, park)
	store := &counted{Store: b.db, crashAt: 2}
	b.store = store
	b.start()
	res, err := b.call(charge("order-1"))
	wantCode(t, err, tga.StoreUnavailable)
	b.reopen()
	b.wantState(res.TraceID, tga.Executing)
	_, err = b.rt.Recover(context.Background(), res.TraceID)
	wantCode(t, err, tga.EffectInDoubt)
	b.wantSends(1)
}

func TestSupervisorErrorIsNoDecision(t *testing.T) {
	b := setup(t, park, func(b *bench) { b.sup = broken{} })
	res, err := b.call(charge("order-1"))
	if err == nil || !errors.Is(err, errBroken) {
		t.Errorf("error %v", err)
	}
	b.wantState(res.TraceID, tga.Pending) // asked about a durable request
	b.wantSends(0)
}

func TestEffectThatIsNotTheRecordedOneIsNotServed(t *testing.T) {
	b := setup(t, park)
	b.mustCall(charge("order-1"))
	b.store = lying{b.db}
	b.start()
	_, err := b.call(charge("order-1"))
	wantCode(t, err, tga.StateChecksumMismatch)
	b.wantSends(1)
}

// TestAppendBehindTheLoopIsRefused: the loop appends after the head it knows, so an
// entry that somebody else put there under its lease is named, not built upon.
func TestAppendBehindTheLoopIsRefused(t *testing.T) {
	b := setup(t, park)
	var lease chain.Lease
	b.store = spying{b.db, &lease}
	b.start()
	b.tool.answer = func(_ int, c runtime.Call) (runtime.Reply, error) {
		trace, err := b.db.Load(context.Background(), c.TraceID)
		if err != nil {
			t.Fatal(err)
		}
		effect := &tga.Artifact{Type: tga.EffectType, ID: newID(), TraceID: c.TraceID, PlanID: trace.PlanID, TS: tga.MillisOf(epoch),
			Effect: &tga.ToolEffect{CallID: trace.Call.ID, CallDigest: trace.Call.Digest, BatchTotalBytes: -1, Outcome: tga.Outcome{Status: tga.StatusFailure}}}
		if err := effect.Seal(); err != nil {
			t.Fatal(err)
		}
		if _, err := b.db.Append(context.Background(), lease, chain.Batch{Artifacts: []chain.NewArtifact{{Artifact: effect}}}); err != nil {
			t.Fatal(err)
		}
		return ok(`"paid"`), nil
	}
	_, err := b.call(charge("order-1"))
	wantCode(t, err, tga.StateSequenceGap)
}

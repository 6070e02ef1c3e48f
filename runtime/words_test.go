package runtime_test

import (
	"testing"
	"time"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// declined is an operator's rule: an answer with a code says that the tool did nothing.
func declined(_ runtime.Call, r *runtime.Reply) error {
	if string(r.Result) != `{"code":"card_declined"}` {
		return nil
	}
	r.Status, r.Class, r.ErrorCode = tga.StatusFailure, ledger.ClassRetryable, string(tga.ToolError)
	return nil
}

// TestRulesDoNotReadAModelsWords: a model says that a call ran, with a result that the operator's rules call a
// failure. The call is recorded as one that ran, and neither a timer nor a new attempt sends it.
func TestRulesDoNotReadAModelsWords(t *testing.T) {
	policy := park
	policy.Retry = runtime.Backoff{Attempts: 3}
	b := setup(t, policy, func(b *bench) {
		b.tool.answer = unknown
		b.opts.Trust.Outcome = declined
	})
	res, err := b.call(charge("order-1"))
	wantCode(t, err, tga.EffectInDoubt)
	said := evidence(ok(`{"code":"card_declined"}`))
	said.Via = runtime.ViaModel
	ended, err := b.rt.Resolve(t.Context(), res.TraceID, said)
	if err != nil || ended.State != tga.Completed || ended.Class != ledger.ClassCommitted {
		t.Errorf("%+v, %v", ended, err)
	}
	b.advance(24 * time.Hour)
	if fired := b.fireAll(); fired != 0 {
		t.Errorf("%d timers", fired)
	}
	b.mustCall(retried("order-1"))
	b.wantSends(1)
}

// TestRulesKnowTheAttemptsOfASettledCall: a person settles a call with a tool's answer. A rule reads it as the
// answer to the newest attempt, and frees the key only if there was no other attempt.
func TestRulesKnowTheAttemptsOfASettledCall(t *testing.T) {
	for _, attempts := range []int{1, 2} {
		policy := licence(ledger.DedupeArgs)
		policy.Resends = -1
		b := setup(t, policy, func(b *bench) {
			b.tool.answer = unknown
			b.opts.Trust.Outcome = declined
		})
		res, err := b.call(charge("order-1"))
		wantCode(t, err, tga.EffectInDoubt)
		if attempts == 2 {
			_, err := b.rt.Recover(t.Context(), res.TraceID)
			wantCode(t, err, tga.EffectInDoubt)
		}
		b.wantSends(attempts)
		ended, err := b.rt.Resolve(t.Context(), res.TraceID, evidence(ok(`{"code":"card_declined"}`)))
		if err != nil || ended.Class.Releases() != (attempts == 1) {
			t.Errorf("%d attempts: %+v, %v", attempts, ended, err)
		}
	}
}

// TestAnswerToOneOfSeveralAttemptsFreesNoKey: an executor whose attempt is over reports that the tool server did
// not execute it, while another executor sends the next attempt. That ends nothing, by the executor's own
// word and by a rule: the other executor may still report. Without another attempt it ends the call.
func TestAnswerToOneOfSeveralAttemptsFreesNoKey(t *testing.T) {
	answers := map[string]runtime.Reply{
		"its word": {Status: tga.StatusFailure, Class: ledger.ClassRetryable, ErrorCode: string(tga.ToolError)},
		"a rule":   ok(`{"code":"card_declined"}`),
		"denied":   {Status: tga.StatusDenied, ErrorMessage: "the token has expired"},
	}
	for name, reply := range answers {
		for _, several := range []bool{false, true} {
			policy := licence(ledger.DedupeArgs)
			policy.PermitTime = time.Minute
			b := setup(t, policy, func(b *bench) { b.opts.Trust.Outcome = declined })
			first := b.begin("order-1", "one")
			b.advance(time.Hour)
			if !several {
				if res, err := b.finish(first, reply); err != nil || !res.State.Terminal() {
					t.Errorf("%s: %+v, %v", name, res, err)
				}
				next := runtime.BeginSend
				if name == "denied" {
					next = runtime.BeginServe // the only attempt was refused: that is the answer
				}
				b.wantStanding(b.beginAgain("order-1", "three"), next)
				continue
			}
			second := b.begin("order-1", "two")
			b.wantStanding(second, runtime.BeginSend)
			for range 2 { // the second time it is a repeat
				res, err := b.finish(first, reply)
				wantCode(t, err, tga.EffectInDoubt)
				if res.State != tga.Executing {
					t.Errorf("%s: %+v", name, res)
				}
			}
			if got := b.notes(first.Result.TraceID, tga.NoteNotSent); got != 1 {
				t.Errorf("%s: %d notes", name, got)
			}
			b.wantStanding(b.beginAgain("order-1", "three"), runtime.BeginWait)
			if res, err := b.finish(second, ok(`{"charged":true}`)); err != nil || res.State != tga.Completed {
				t.Errorf("%s: %+v, %v", name, res, err)
			}
		}
		// If each attempt is refused, none ran, and the key is free.
		policy := licence(ledger.DedupeArgs)
		policy.PermitTime = time.Minute
		b := setup(t, policy, func(b *bench) { b.opts.Trust.Outcome = declined })
		first := b.begin("order-1", "one")
		b.advance(time.Hour)
		second := b.begin("order-1", "two")
		_, err := b.finish(first, reply)
		wantCode(t, err, tga.EffectInDoubt)
		if res, err := b.finish(second, reply); err != nil || res.Class != ledger.ClassNotSent {
			t.Errorf("%s, to both: %+v, %v", name, res, err)
		}
		if res, err := b.finish(second, reply); err != nil || !res.Replayed {
			t.Errorf("%s, a repeat: %+v, %v", name, res, err)
		}
		if got := b.notes(first.Result.TraceID, tga.NoteLateReply); got != 0 {
			t.Errorf("%s: %d late replies", name, got)
		}
	}
}

// TestRefusalOfALaterAttemptLeavesTheCallInDoubt: the answer to the first attempt is lost, and the tool server
// refuses the second one, by its own word, by a rule or as denied. The call has neither failed nor run: it stays in doubt, and
// the licence sends it again, not before the Retry-After of the refusal is over.
func TestRefusalOfALaterAttemptLeavesTheCallInDoubt(t *testing.T) {
	busy := runtime.Reply{Status: tga.StatusDenied, Class: ledger.ClassRetryable, ErrorCode: string(tga.RateLimited), ErrorMessage: "busy", RetryAfter: time.Minute}
	ruled := ok(`{"code":"card_declined"}`)
	denied := runtime.Reply{Status: tga.StatusDenied, ErrorMessage: "the token has expired"}
	for name, reply := range map[string]runtime.Reply{"its word": busy, "a rule": ruled, "denied": denied} {
		policy := licence(ledger.DedupeArgs)
		policy.Resends = -1
		policy.SendTimeout = time.Second
		b := setup(t, policy, func(b *bench) {
			b.opts.Trust.Outcome = declined
			b.tool.answer = unknown
		})
		res, err := b.call(charge("order-1"))
		wantCode(t, err, tga.EffectInDoubt)
		b.tool.answer = func(int, runtime.Call) (runtime.Reply, error) { return reply, nil }
		held, err := b.rt.Recover(t.Context(), res.TraceID)
		wantCode(t, err, tga.EffectInDoubt)
		if held.State != tga.Executing || b.notes(res.TraceID, tga.NoteNotSent) != 1 {
			t.Errorf("%s: %+v, %d notes", name, held, b.notes(res.TraceID, tga.NoteNotSent))
		}
		b.wantSends(2)
		b.tool.answer = func(int, runtime.Call) (runtime.Reply, error) { return ok(`{"charged":true}`), nil }
		b.reopen()
		if reply.RetryAfter > 0 {
			_, err := b.rt.Recover(t.Context(), res.TraceID)
			if wantCode(t, err, tga.EffectInDoubt); tga.RetryAfterOf(err) == 0 {
				t.Errorf("%s: %v does not say when", name, err)
			}
			b.wantSends(2)
			b.advance(reply.RetryAfter)
		}
		ended, err := b.rt.Recover(t.Context(), res.TraceID)
		if err != nil || ended.State != tga.Completed {
			t.Errorf("%s: %+v, %v", name, ended, err)
		}
		b.wantSends(3)
	}
}

// beginAgain begins a call that may be tried again.
func (b *bench) beginAgain(key, beginID string) runtime.Begun {
	b.t.Helper()
	begun, err := b.rt.Begin(b.t.Context(), runtime.BeginRequest{Request: retried(key), BeginID: beginID})
	if err != nil {
		b.t.Fatal(err)
	}
	return begun
}

func retried(key string) runtime.Request {
	req := charge(key)
	req.Retry = true
	return req
}

package runtime_test

import (
	"errors"
	"testing"
	"time"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// declined is an operator's rule: an answer with a code says that the tool did nothing, unless another
// attempt may have run.
func declined(c runtime.Call, r *runtime.Reply) error {
	if string(r.Result) != `{"code":"card_declined"}` {
		return nil
	}
	if c.Attempt > 1 {
		return errors.New("an earlier attempt may have run")
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
// not execute it, while another executor sends the next attempt. The key stays used, by the executor's own
// word and by a rule. Before the other attempt it is freed.
func TestAnswerToOneOfSeveralAttemptsFreesNoKey(t *testing.T) {
	answers := map[string]runtime.Reply{
		"its word": {Status: tga.StatusFailure, Class: ledger.ClassRetryable, ErrorCode: string(tga.ToolError)},
		"a rule":   ok(`{"code":"card_declined"}`),
	}
	for name, reply := range answers {
		for _, several := range []bool{false, true} {
			policy := licence(ledger.DedupeArgs)
			policy.PermitTime = time.Minute
			b := setup(t, policy, func(b *bench) { b.opts.Trust.Outcome = declined })
			first := b.begin("order-1", "one")
			b.advance(time.Hour)
			if several {
				b.wantStanding(b.begin("order-1", "two"), runtime.BeginSend)
			}
			res, err := b.finish(first, reply)
			if err != nil || res.Class.Releases() == several {
				t.Errorf("%s, several attempts %v: %+v, %v", name, several, res, err)
			}
			anew, err := b.rt.Begin(t.Context(), runtime.BeginRequest{Request: retried("order-1"), BeginID: "three"})
			if want := map[bool]runtime.Standing{false: runtime.BeginSend, true: runtime.BeginServe}[several]; err != nil || anew.Standing != want {
				t.Errorf("%s, several attempts %v: a new attempt is answered %s, want %s; %v", name, several, anew.Standing, want, err)
			}
		}
	}
}

func retried(key string) runtime.Request {
	req := charge(key)
	req.Retry = true
	return req
}

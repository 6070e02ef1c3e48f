package runtime_test

import (
	"testing"
	"time"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// TestRedactedCallIsNotSentAfterAQuestion: the tool server says that a call in doubt did not run and never
// will. Recovery and a timer have the marks of its arguments alone, and send nothing. Its caller brings the
// arguments, and the tool gets them whole.
func TestRedactedCallIsNotSentAfterAQuestion(t *testing.T) {
	for _, restart := range []bool{false, true} {
		b, p := probing(t, ledger.Licence{}, func(n int, _ runtime.Call) (runtime.Probed, error) {
			return runtime.Probed{Answer: ledger.ProbeNotRan, Fenced: n > 1}, nil
		})
		redacting(b)
		b.tool.answer = func(n int, c runtime.Call) (runtime.Reply, error) {
			if n == 1 {
				return runtime.Reply{}, errReset
			}
			return answersWithSecrets(n, c)
		}
		b.start()
		res, err := b.call(secretCharge("order-1"))
		wantCode(t, err, tga.EffectInDoubt)
		if restart {
			b.reopen()
			_, err := b.rt.Recover(t.Context(), res.TraceID)
			wantCode(t, err, tga.EffectInDoubt)
		}
		b.advance(2 * time.Hour)
		if _, err := b.rt.FireTimers(t.Context()); err != nil {
			t.Fatal(err)
		}
		if p.asked < 2 || b.notes(res.TraceID, tga.NoteProbe) != p.asked {
			t.Errorf("asked %d times", p.asked)
		}
		b.wantSends(1)
		b.wantState(res.TraceID, tga.Executing)
		if again := b.mustCall(secretCharge("order-1")); again.State != tga.Completed {
			t.Errorf("the repeat comes to %+v", again)
		}
		b.wantSends(2)
		b.wantWhole()
		b.wantNoSecret()
	}
}

// TestLicenceTakenBackWhileARunWaits: the operator takes a licence back while a run pauses before a re-send,
// or while it asks the tool server. The run sends nothing more, and the log names the licence of the attempt
// that was sent.
func TestLicenceTakenBackWhileARunWaits(t *testing.T) {
	for name, kind := range map[string]ledger.LicenceKind{"a pause": ledger.DedupeArgs, "a question": ledger.Probe} {
		t.Run(name, func(t *testing.T) {
			policy := licence(kind)
			sent := false
			b := setup(t, policy, func(b *bench) {
				asked := 0
				b.opts.Policy = func(string, string) runtime.Policy {
					if sent {
						asked++
					}
					// The run asks once after the send, to decide that it waits. Then the licence is taken back.
					if kind == ledger.DedupeArgs && asked > 1 {
						return park
					}
					return policy
				}
				b.opts.Trust.Prober = func(string, string) runtime.Prober {
					return &prober{answer: func(int, runtime.Call) (runtime.Probed, error) {
						policy = park
						return runtime.Probed{Answer: ledger.ProbeNotRan, Fenced: true}, nil
					}}
				}
			})
			b.tool.answer = func(int, runtime.Call) (runtime.Reply, error) {
				sent = true
				return runtime.Reply{}, errReset
			}
			res, err := b.call(charge("order-1"))
			wantCode(t, err, tga.EffectInDoubt)
			b.wantSends(1)
			trace, err := b.db.Load(t.Context(), res.TraceID)
			if err != nil {
				t.Fatal(err)
			}
			if l := runtime.LicenceOf(trace); l == nil || l.Kind != kind {
				t.Errorf("the licence of the attempt is %+v", l)
			}
		})
	}
}

// TestBeginAfterAQuestionIsFoundAgain: a remote executor gets the next attempt because the tool server says
// that the call did not run. The mark of this attempt leads from the begin id to the trace, so the executor
// that repeats its Begin after a restart finds the call that it was given.
func TestBeginAfterAQuestionIsFoundAgain(t *testing.T) {
	b, _ := probing(t, ledger.Licence{}, func(int, runtime.Call) (runtime.Probed, error) {
		return runtime.Probed{Answer: ledger.ProbeNotRan, Fenced: true}, nil
	})
	first := b.begin("k", "one")
	b.advance(time.Hour)
	second := b.begin("k", "two")
	b.wantStanding(second, runtime.BeginSend)
	if res, err := b.finish(second, ok(`{}`)); err != nil || res.TraceID != first.Result.TraceID {
		t.Fatalf("%+v, %v", res, err)
	}
	b.reopen()
	again := b.begin("k", "two")
	b.wantStanding(again, runtime.BeginServe)
	if again.Result.TraceID != first.Result.TraceID || !again.Result.ServedFrom.IsZero() {
		t.Errorf("the begin id leads to trace %s, served from %s", again.Result.TraceID, again.Result.ServedFrom)
	}
}

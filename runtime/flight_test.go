package runtime_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/clock"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// TestFlightIsCountedFromWhenTheSenderIsGone: "did not run" counts once the send can no longer be under
// way. In the process that sent, that is max_in_flight after the first question. A process that began
// later, or that asks about a call which another runtime had asked about, may count from its own start,
// because the sender was gone by then: it need not have asked at once.
func TestFlightIsCountedFromWhenTheSenderIsGone(t *testing.T) {
	const flight = 10 * time.Minute
	for _, c := range []struct {
		name  string
		lives time.Duration // of the process, before the call
		again func(*bench)  // after the call
		after time.Duration // of the next question, after that
		sends int
	}{
		{"same process", 2 * flight, func(*bench) {}, flight, 1},
		{"same process, past the limit", 2 * flight, func(*bench) {}, flight + time.Millisecond, 2},
		{"same process, at its begin", 0, func(*bench) {}, flight + time.Millisecond, 2},
		{"same process, clock set back by a step", 0, func(b *bench) { b.jump(-clock.Step) }, flight + clock.Step + time.Millisecond, 2},
		{"same process, clock set back by more", 0, func(b *bench) { b.jump(-clock.Step - time.Millisecond) }, flight + clock.Step + 2*time.Millisecond, 1},
		{"next process", 0, (*bench).reopen, flight, 1},
		{"next process, past the limit", 0, (*bench).reopen, flight + time.Millisecond, 2},
		{"another runtime of the process", 0, (*bench).start, flight, 1},
		{"another runtime of the process, past the limit", 0, (*bench).start, flight + time.Millisecond, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, _ := probing(t, ledger.Licence{MaxInFlight: flight}, func(int, runtime.Call) (runtime.Probed, error) {
				return runtime.Probed{Answer: ledger.ProbeNotRan}, nil
			})
			b.opts.Monotonic = b.monotonic
			b.start()
			b.advance(c.lives)
			res, err := b.call(charge("k"))
			wantCode(t, err, tga.EffectInDoubt)
			b.wantSends(1)
			b.tool.answer = nil
			c.again(b)
			b.advance(c.after)
			res, err = b.rt.Recover(t.Context(), res.TraceID)
			if done := res.State == tga.Completed; done != (c.sends == 2) {
				t.Errorf("%+v, %v", res, err)
			}
			b.wantSends(c.sends)
		})
	}
}

// TestQuestionsEnd: a tool server is asked as often as the operator configured, and no more, also over a
// restart.
func TestQuestionsEnd(t *testing.T) {
	for _, most := range []int{1, 2, 4} {
		b, p := probing(t, ledger.Licence{}, func(int, runtime.Call) (runtime.Probed, error) {
			return runtime.Probed{}, errors.New("no such page")
		})
		b.opts.Policy = func(string, string) runtime.Policy {
			return runtime.Policy{
				Licence: ledger.Licence{Kind: ledger.Probe}, LicenceSet: true, SendTimeout: time.Second,
				Probe: runtime.Backoff{First: time.Minute, Max: time.Hour, Attempts: most},
			}
		}
		b.start()
		res, err := b.call(charge("k"))
		wantCode(t, err, tga.EffectInDoubt)
		b.reopen()
		b.fireAll()
		if p.asked != most {
			t.Errorf("asked %d times, want %d", p.asked, most)
		}
		trace, err := b.db.Load(t.Context(), res.TraceID)
		if err != nil || b.notes(res.TraceID, tga.NoteProbe) != most {
			t.Errorf("%d notes, %v", b.notes(res.TraceID, tga.NoteProbe), err)
		}
		for _, n := range trace.Notes {
			if n.Kind == tga.NoteProbe && !strings.Contains(string(n.Body), `"evidence_digest"`) {
				t.Errorf("what the question failed with is not kept: %s", n.Body)
			}
		}
	}
}

// TestFirstSendEndsAtTheDeadlineAfterAnEarlierPermitCameBack: the first permit is returned unused
// while a second permit is given out. Then only the second attempt may have been sent, so its send is
// a first send, and the call's deadline bounds it.
func TestFirstSendEndsAtTheDeadlineAfterAnEarlierPermitCameBack(t *testing.T) {
	policy := licence(ledger.DedupeArgs)
	policy.PermitTime = 10 * time.Minute
	b := setup(t, policy)
	begin := func(id string) runtime.Begun {
		t.Helper()
		req := charge("k")
		req.Deadline = epoch.Add(15 * time.Minute)
		g, err := b.rt.Begin(t.Context(), runtime.BeginRequest{Request: req, BeginID: id})
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	first := begin("one")
	b.advance(policy.PermitTime)
	second := begin("two")
	b.wantStanding(second, runtime.BeginSend)
	if _, err := b.rt.NotSent(t.Context(), first.Result.TraceID, first.Permit, "was not sent", 0); err != nil {
		t.Fatal(err)
	}
	b.advance(5*time.Minute - time.Second)
	if again := begin("two"); again.Permit != second.Permit || again.SendWithin != time.Second {
		t.Errorf("a second before the deadline: %+v", again)
	}
	b.advance(time.Second)
	if late := begin("two"); late.Standing == runtime.BeginSend {
		t.Errorf("at the deadline: %+v", late)
	}
}

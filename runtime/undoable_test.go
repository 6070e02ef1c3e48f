package runtime_test

import (
	"context"
	"testing"
	"time"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// archive moves every trace that has ended, and that nothing is expected of, into a segment.
func (b *bench) archive() (traces int) {
	b.t.Helper()
	b.advance(time.Hour)
	done, err := b.db.SealTraces(b.t.Context(), tga.MillisOf(b.clock()))
	if err != nil {
		b.t.Fatal(err)
	}
	return done.Traces
}

// awayWays are the ways in which a trace that has ended takes no note any more.
var awayWays = map[string]func(*bench, tga.ID){
	"erased":   func(b *bench, id tga.ID) { b.erase(id) },
	"archived": func(b *bench, _ tga.ID) { b.archive() },
}

// TestUndoingOfWhatIsAwayIsNotSent: the trace that is to be undone was erased or archived, so the log could not
// say that it is undone. Its undoing is refused before anything is sent, also if people approve it later.
func TestUndoingOfWhatIsAwayIsNotSent(t *testing.T) {
	for name, away := range awayWays {
		for _, asked := range []bool{false, true} {
			b := undoing(t, park)
			first := b.mustCall(charge("k"))
			if asked {
				b.sup = runtime.Rules{Rules: []runtime.Rule{{Decision: tga.NeedsApproval}}}
				b.start()
				waits, err := b.rt.Compensate(t.Context(), first.TraceID, "ann")
				wantCode(t, err, tga.EscalationRequired)
				away(b, first.TraceID)
				_, err = b.rt.Decide(t.Context(), waits.TraceID, vote("bob", true))
				wantCode(t, err, tga.StateInvalidTransition)
				b.wantState(waits.TraceID, tga.Failed)
			} else {
				away(b, first.TraceID)
				_, err := b.rt.Compensate(t.Context(), first.TraceID, "ann")
				wantCode(t, err, tga.StateInvalidTransition)
			}
			if n := b.sent("refund"); n != 0 {
				t.Errorf("%s, asked %v: %d refunds", name, asked, n)
			}
		}
	}
}

// TestUndoingEndsAlthoughItsOriginIsAway: the trace that is undone was erased or archived while its undoing was in
// doubt. What becomes known of the undoing call is recorded: by a person, and by the tool's answer to a re-send.
func TestUndoingEndsAlthoughItsOriginIsAway(t *testing.T) {
	for name, away := range awayWays {
		for _, kind := range []ledger.LicenceKind{ledger.Park, ledger.DedupeArgs} {
			p := licence(kind)
			p.Resends = -1
			b := undoing(t, p)
			first := b.mustCall(charge("k"))
			answer := b.tool.answer
			b.tool.answer = unknown
			doubt, err := b.rt.Compensate(t.Context(), first.TraceID, "ann")
			wantCode(t, err, tga.EffectInDoubt)
			away(b, first.TraceID)
			b.tool.answer = answer
			var done runtime.Result
			if kind == ledger.Park {
				done, err = b.rt.Resolve(t.Context(), doubt.TraceID, evidence(ok(`"refunded"`)))
			} else {
				done, err = b.rt.Recover(t.Context(), doubt.TraceID)
			}
			if err != nil || done.State != tga.Completed {
				t.Errorf("%s, %v: %+v, %v", name, kind, done, err)
			}
			b.reopen()
			b.wantState(doubt.TraceID, tga.Completed)
		}
	}
}

// unprepared is a dispatcher that cannot prepare a number of calls of one tool.
type unprepared struct {
	runtime.Dispatcher
	tool  string
	times int
}

func (u *unprepared) Prepare(_ context.Context, c runtime.Call) ([]chain.Attachment, error) {
	if c.Tool == u.tool && u.times > 0 {
		u.times--
		return nil, tga.Errorf(tga.CircuitOpen, "its breaker is open")
	}
	return nil, nil
}

// TestRefusedUndoingIsMadeAgain: an undoing call is approved, and refused before it is sent. A further request makes it
// again. One that people deny stays denied.
func TestRefusedUndoingIsMadeAgain(t *testing.T) {
	b := undoing(t, park)
	u := &unprepared{b.tool, "refund", 2}
	b.tools, b.sup = u, runtime.Rules{Rules: []runtime.Rule{{Tool: "charge", Decision: tga.Approve}, {Decision: tga.NeedsApproval}}}
	b.start()
	first := b.mustCall(charge("k"))
	traces := map[tga.ID]bool{}
	for range 2 {
		waits, err := b.rt.Compensate(t.Context(), first.TraceID, "ann")
		wantCode(t, err, tga.EscalationRequired)
		_, err = b.rt.Decide(t.Context(), waits.TraceID, vote("bob", true))
		wantCode(t, err, tga.CircuitOpen)
		b.wantState(waits.TraceID, tga.Failed)
		traces[waits.TraceID] = true
	}
	waits, err := b.rt.Compensate(t.Context(), first.TraceID, "ann")
	wantCode(t, err, tga.EscalationRequired)
	if traces[waits.TraceID] || len(traces) != 2 {
		t.Errorf("%s, after %v", waits.TraceID, traces)
	}
	if done, err := b.rt.Decide(t.Context(), waits.TraceID, vote("bob", true)); err != nil || done.State != tga.Completed || b.sent("refund") != 1 {
		t.Errorf("%+v, %v", done, err)
	}
	if r := b.record("k"); r.Class != ledger.ClassCompensated {
		t.Errorf("the undone record is %v", r.Class)
	}
	second := b.mustCall(charge("k2"))
	waits, err = b.rt.Compensate(t.Context(), second.TraceID, "ann")
	wantCode(t, err, tga.EscalationRequired)
	for range 2 {
		_, _ = b.rt.Decide(t.Context(), waits.TraceID, vote("bob", false))
		if again, err := b.rt.Compensate(t.Context(), second.TraceID, "ann"); err != nil || again.TraceID != waits.TraceID || again.State != tga.Denied {
			t.Errorf("%+v, %v", again, err)
		}
	}
}

// TestUndoingAfterAnErasedOne: an undoing that was not sent, or was refused, is erased. A further request makes it again, and
// finds it after that. An erased one that ran is not made again.
func TestUndoingAfterAnErasedOne(t *testing.T) {
	for name, dispatch := range map[string]func(int, runtime.Call) (runtime.Reply, error){
		"not sent": func(int, runtime.Call) (runtime.Reply, error) { return runtime.Reply{}, errDial },
		"failed":   func(int, runtime.Call) (runtime.Reply, error) { return runtime.Reply{Status: tga.StatusFailure}, nil },
	} {
		b := undoing(t, park)
		first := b.mustCall(charge("k"))
		answer := b.tool.answer
		b.tool.answer = dispatch
		tried, err := b.rt.Compensate(t.Context(), first.TraceID, "ann")
		if err != nil || tried.State != tga.Failed {
			t.Fatalf("%+v, %v", tried, err)
		}
		b.erase(tried.TraceID)
		b.tool.answer = answer
		done, err := b.rt.Compensate(t.Context(), first.TraceID, "ann")
		if name == "failed" {
			if wantCode(t, err, tga.IdempotencyKeyExpired); b.sent("refund") != 1 {
				t.Errorf("%d refunds", b.sent("refund"))
			}
			continue
		}
		if err != nil || done.State != tga.Completed || b.sent("refund") != 2 {
			t.Errorf("%s: %+v, %v, %d refunds", name, done, err, b.sent("refund"))
		}
		again, err := b.rt.Compensate(t.Context(), first.TraceID, "ann")
		if err != nil || again.TraceID != done.TraceID || b.sent("refund") != 2 {
			t.Errorf("%s, again: %+v, %v", name, again, err)
		}
	}
}

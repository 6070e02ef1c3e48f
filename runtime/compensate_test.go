package runtime_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// undo is the inverse of charge: refund of the charge in the answer.
func undo(call *tga.ToolCall, _ *tga.ToolEffect, result []byte) (runtime.Inverse, bool, error) {
	if call.Call.ToolName != "charge" {
		return runtime.Inverse{}, false, nil
	}
	return runtime.Inverse{Server: "payments", Tool: "refund", Args: []byte(`{"of":` + string(result) + `}`)}, true, nil
}

func undoing(t *testing.T, p runtime.Policy) *bench {
	return setup(t, p, func(b *bench) {
		b.opts.Trust.Inverse = undo
		b.tool.answer = func(_ int, c runtime.Call) (runtime.Reply, error) {
			return ok(`"` + c.Tool + `-` + c.Key[:1] + `"`), nil
		}
	})
}

func (b *bench) sent(tool string) (n int) {
	b.tool.mu.Lock()
	defer b.tool.mu.Unlock()
	for _, c := range b.tool.calls {
		if c.Tool == tool {
			n++
		}
	}
	return n
}

func TestCompensationSettlesBothAtOnce(t *testing.T) {
	b := undoing(t, park)
	first := b.mustCall(charge("k"))
	res, err := b.rt.Compensate(t.Context(), first.TraceID, "ann")
	if err != nil || res.State != tga.Completed || res.TraceID == first.TraceID {
		t.Fatalf("%+v, %v", res, err)
	}
	if r := b.record("k"); r.Class != ledger.ClassCompensated || r.TraceID != first.TraceID {
		t.Errorf("record %+v", r)
	}
	// Linked both ways.
	undone := b.wantState(first.TraceID, tga.Completed)
	trace, err := b.db.Load(t.Context(), res.TraceID)
	if err != nil || undone.CompensatedBy != res.TraceID || undone.Class != ledger.ClassCompensated || trace.Request.Meta.String(tga.MetaCompensates) != first.TraceID.String() {
		t.Errorf("links: %+v, %v, %v", undone, trace.Request.Meta, err)
	}
	// Both are in one batch, so they are neighbours in the order of the store and committed together.
	again, err := b.rt.Compensate(t.Context(), first.TraceID, "bob")
	if err != nil || !again.Replayed || again.TraceID != res.TraceID {
		t.Errorf("again: %+v, %v", again, err)
	}
	if b.sent("refund") != 1 {
		t.Errorf("%d refunds", b.sent("refund"))
	}
	served := b.mustCall(charge("k"))
	if served.ServedFrom != first.TraceID || served.CompensatedBy != res.TraceID || served.Class != ledger.ClassCompensated {
		t.Errorf("served %+v", served)
	}
	if b.sent("charge") != 1 {
		t.Errorf("%d charges", b.sent("charge"))
	}
	b.reopen()
	if r := b.record("k"); r.Class != ledger.ClassCompensated {
		t.Errorf("after a restart: %+v", r)
	}
}

// TestResolvedCompensationSettlesBothAtOnce: a person says that the undoing call ran. It was in doubt, or its sender
// is still waiting for the answer.
func TestResolvedCompensationSettlesBothAtOnce(t *testing.T) {
	for _, waits := range []bool{false, true} {
		b := undoing(t, park)
		first := b.mustCall(charge("k"))
		inside, release, over := make(chan tga.ID, 1), make(chan struct{}), make(chan struct{})
		b.tool.answer = func(_ int, c runtime.Call) (runtime.Reply, error) {
			inside <- c.TraceID
			if waits {
				<-release
			}
			return runtime.Reply{}, errors.New("no answer")
		}
		go func() {
			defer close(over)
			_, err := b.rt.Compensate(t.Context(), first.TraceID, "ann")
			if errors.Is(err, tga.EffectInDoubt) == waits {
				t.Errorf("the sender waits %v: %v", waits, err)
			}
		}()
		id := <-inside
		if !waits {
			<-over
		}
		done, err := b.rt.Resolve(t.Context(), id, runtime.Resolution{Reply: ok(`1`), Who: "bob", Evidence: []byte("seen")})
		if err != nil || done.State != tga.Completed {
			t.Errorf("the sender waits %v: %+v, %v", waits, done, err)
		}
		close(release)
		<-over
		if r := b.record("k"); r.Class != ledger.ClassCompensated {
			t.Errorf("the sender waits %v: the undone record is %v", waits, r.Class)
		}
		if undone := b.wantState(first.TraceID, tga.Completed); undone.CompensatedBy != id {
			t.Errorf("the sender waits %v: compensated by %s, want %s", waits, undone.CompensatedBy, id)
		}
	}
}

// TestCompensationAfterAnOutage: the undoing call certainly did not run. A timer makes it again, or the next request
// does: it is sent once, and both calls are settled.
func TestCompensationAfterAnOutage(t *testing.T) {
	for _, timers := range []bool{false, true} {
		p := park
		if timers {
			p.Retry = runtime.Backoff{Attempts: 2}
		}
		b := undoing(t, p)
		first := b.mustCall(charge("k"))
		answer := b.tool.answer
		b.tool.answer = func(int, runtime.Call) (runtime.Reply, error) { return runtime.Reply{}, errDial }
		res, err := b.rt.Compensate(t.Context(), first.TraceID, "ann")
		if err != nil || res.State != tga.Failed || res.Class != ledger.ClassNotSent {
			t.Fatalf("%+v, %v", res, err)
		}
		b.tool.answer = answer
		if timers {
			b.advance(time.Hour)
			if _, err := b.rt.FireTimers(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		again, err := b.rt.Compensate(t.Context(), first.TraceID, "ann")
		if err != nil || again.State != tga.Completed || again.Replayed != timers || b.sent("refund") != 2 {
			t.Errorf("timers %v: %+v, %v, asked %d times", timers, again, err, b.sent("refund"))
		}
		if r := b.record("k"); r.Class != ledger.ClassCompensated {
			t.Errorf("timers %v: the undone record is %v", timers, r.Class)
		}
	}
}

// TestCompensatedStaysCompensated: a repeated request finds the undoing, although the tool has no inverse any more.
func TestCompensatedStaysCompensated(t *testing.T) {
	b := undoing(t, park)
	first := b.mustCall(charge("k"))
	res, err := b.rt.Compensate(t.Context(), first.TraceID, "ann")
	if err != nil {
		t.Fatal(err)
	}
	b.opts.Trust.Inverse = nil
	b.start()
	again, err := b.rt.Compensate(t.Context(), first.TraceID, "ann")
	if err != nil || again.TraceID != res.TraceID || !again.Replayed {
		t.Errorf("%+v, %v", again, err)
	}
}

// TestCompensationIsOnceThroughCrashes: after a crash before or after any append, the
// compensation can be continued and is not made twice. The record of the undone call always
// agrees with it.
func TestCompensationIsOnceThroughCrashes(t *testing.T) {
	serial.Test(t)
	for _, kind := range []ledger.LicenceKind{ledger.Park, ledger.DedupeKey} {
		for crashAt := 1; ; crashAt++ {
			over := false
			for _, after := range []bool{false, true} {
				b := undoing(t, licence(kind))
				first := b.mustCall(charge("k"))
				c := &counted{Store: b.db, crashAt: crashAt, after: after}
				b.store = c
				b.start()
				_, err := b.rt.Compensate(t.Context(), first.TraceID, "ann")
				over = !c.down
				if c.down && err == nil {
					t.Errorf("append %d: no error", crashAt)
				}
				b.store = b.db
				b.start()
				b.reopen()
				if _, err := b.rt.RecoverAll(t.Context(), 2); err != nil {
					t.Fatal(err)
				}
				_, err = b.rt.Compensate(t.Context(), first.TraceID, "ann")
				doubt := errors.Is(err, tga.EffectInDoubt)
				if err != nil && !doubt {
					t.Errorf("%v, crash at append %d (done %v): %v", kind, crashAt, after, err)
				}
				refunds, class := b.sent("refund"), b.record("k").Class
				if doubt && (kind != ledger.Park || refunds > 1 || class != ledger.ClassCommitted) || !doubt && class != ledger.ClassCompensated {
					t.Errorf("%v, crash at append %d (done %v): doubt %v, %d refunds, outcome %v", kind, crashAt, after, doubt, refunds, class)
				}
				most := 1
				if kind == ledger.DedupeKey {
					most = 2 // the same key: the server that attests it refunds once
				}
				if refunds > most || b.sent("charge") != 1 {
					t.Errorf("%v, crash at append %d (done %v): %d refunds", kind, crashAt, after, refunds)
				}
				b.close()
			}
			if over {
				if crashAt < 3 {
					t.Errorf("only %d appends", crashAt-1)
				}
				break
			}
		}
	}
}

func TestWhatCannotBeCompensated(t *testing.T) {
	b := undoing(t, park)
	ctx := context.Background()
	read := b.mustCall(runtime.Request{Server: "payments", Tool: "look", Key: "look", Args: []byte(`{}`)})
	b.tool.answer = func(int, runtime.Call) (runtime.Reply, error) { return runtime.Reply{Status: tga.StatusFailure}, nil }
	failed := b.mustCall(charge("failed"))
	b.tool.answer = nil
	first := b.mustCall(charge("k"))
	served := b.mustCall(charge("k"))
	b.tool.answer = unknown
	doubtful, err := b.call(charge("doubt"))
	wantCode(t, err, tga.EffectInDoubt)
	abandoned, err := b.call(charge("abandoned"))
	wantCode(t, err, tga.EffectInDoubt)
	if _, err := b.rt.Abandon(ctx, abandoned.TraceID, "ann", ""); err != nil {
		t.Fatal(err)
	}
	for trace, code := range map[tga.ID]tga.Code{
		read.TraceID: tga.NotFound, failed.TraceID: tga.StateInvalidTransition, served.TraceID: tga.StateInvalidTransition,
		doubtful.TraceID: tga.StateInvalidTransition, abandoned.TraceID: tga.StateInvalidTransition, newID(): tga.NotFound,
	} {
		_, err := b.rt.Compensate(ctx, trace, "ann")
		wantCode(t, err, code)
	}
	if b.sent("refund") != 0 {
		t.Error("something was refunded")
	}
	b.advance(time.Second)
	b.tool.answer = nil
	second := b.mustCall(charge("k2"))
	plan, err := b.rt.RollbackPlan(ctx, []tga.ID{first.TraceID, read.TraceID, second.TraceID, failed.TraceID})
	if err != nil || len(plan) != 4 || plan[0].TraceID != second.TraceID || !plan[0].CanUndo || plan[0].Inverse.Tool != "refund" {
		t.Fatalf("plan %+v, %v", plan, err)
	}
	for _, s := range plan {
		if s.CanUndo != (s.TraceID == first.TraceID || s.TraceID == second.TraceID) || s.CanUndo == (s.Why != "") {
			t.Errorf("step %+v", s)
		}
	}
}

// TestCompensatableFailureUndoesItself: with AutoCompensate the call is undone automatically, also
// if the process dies first.
func TestCompensatableFailureUndoesItself(t *testing.T) {
	p := park
	p.AutoCompensate = true
	b := undoing(t, p)
	b.tool.answer = func(_ int, c runtime.Call) (runtime.Reply, error) {
		if c.Tool == "charge" {
			return runtime.Reply{Status: tga.StatusFailure, Class: ledger.ClassCompensatable, Result: []byte(`"half"`)}, nil
		}
		return ok(`{}`), nil
	}
	res := b.mustCall(charge("k"))
	b.reopen()
	b.fireAll()
	if b.sent("refund") != 1 || b.record("k").Class != ledger.ClassCompensated {
		t.Errorf("%d refunds, %+v", b.sent("refund"), b.record("k"))
	}
	if r := b.wantState(res.TraceID, tga.Failed); r.CompensatedBy.IsZero() {
		t.Errorf("%+v", r)
	}
}

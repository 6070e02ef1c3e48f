package workstate_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/workstate"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// both runs a test with a state in memory and with one in a store under a runtime.
func both(t *testing.T, o workstate.Options, test func(t *testing.T, w *world)) {
	t.Run("memory", func(t *testing.T) { test(t, inMemory(t, o)) })
	t.Run("store", func(t *testing.T) { test(t, inStore(t, o)) })
}

// TestFailingToolLeavesNoTrace: however a tool fails, files, slices, budget and resources
// without branches are as before. Only its LOG appends remain.
func TestFailingToolLeavesNoTrace(t *testing.T) {
	for tool, code := range map[string]tga.Code{
		"fail": tga.ToolError, "error": tga.ToolError, "refuse": tga.ValidationError, "panic": tga.ToolError,
	} {
		t.Run(tool, func(t *testing.T) {
			both(t, workstate.Options{}, func(t *testing.T, w *world) {
				_, res, err := w.call(bg, tool, `{"text":"x","tokens":5}`)
				must(t, err)
				if res.Status != tga.StatusFailure || res.ErrorCode != code {
					t.Errorf("answer %s %s, want a failure with %s", res.Status, res.ErrorCode, code)
				}
				want := untouched
				want.Logged = 1
				w.want(want)
				if got := w.invoked(); len(got) != 1 || got[0].Success || got[0].Code != string(code) {
					t.Errorf("logged %+v", got)
				}
				if w.dir != "" {
					w.reopen()
					w.want(want)
				}
			})
		})
	}
}

func TestSucceedingToolLeavesAll(t *testing.T) {
	both(t, workstate.Options{}, func(t *testing.T, w *world) {
		w.do("good", `{"text":"x","tokens":5}`, tga.StatusSuccess)
		want := after("x", 1, 1, workstate.Usage{Tokens: 5, Calls: 1})
		w.want(want)
		if got := w.invoked(); len(got) != 1 || !got[0].Success {
			t.Errorf("logged %+v", got)
		}
		if w.dir != "" {
			w.reopen()
			w.want(want)
		}
	})
}

// TestVisibilityExpansionLeavesNoDifference: the request for expansion is returned, and the
// state is as if the tool had never run, except for the logs.
func TestVisibilityExpansionLeavesNoDifference(t *testing.T) {
	both(t, workstate.Options{}, func(t *testing.T, w *world) {
		before, err := w.state.Snapshot(bg, workstate.SnapshotOptions{}, "")
		must(t, err)
		_, res, err := w.call(bg, "expand", `{"text":"x"}`)
		if w.rt == nil {
			var e *workstate.Expansion
			if !errors.As(err, &e) || !errors.Is(err, runtime.ErrNotSent) || len(e.Sections) != 1 {
				t.Errorf("%v, want the expansion, as not sent", err)
			}
		} else if err != nil || res.State != tga.Failed {
			t.Errorf("%v, %v, want a call that was not sent", res.State, err)
		}
		after, err := w.state.Snapshot(bg, workstate.SnapshotOptions{}, "")
		must(t, err)
		if !equal(t, before, after) {
			t.Error("the state differs")
		}
		want := untouched
		want.Logged = 1
		w.want(want)
	})
}

// equal compares snapshots but for their id and time.
func equal(t testing.TB, a, b *workstate.CompositeSnapshot) bool {
	t.Helper()
	b.ID, b.CreatedAt, b.Session.CreatedAt = a.ID, a.CreatedAt, a.Session.CreatedAt
	x, err := a.ToJSON()
	must(t, err)
	y, err := b.ToJSON()
	must(t, err)
	return string(x) == string(y)
}

func TestCancelledToolIsUndone(t *testing.T) {
	both(t, workstate.Options{}, func(t *testing.T, w *world) {
		ctx, cancel := context.WithCancel(bg)
		w.tools["stop"] = workstate.Func(func(ctx context.Context, e edit) (any, error) {
			must(t, apply(ctx, e))
			cancel()
			<-ctx.Done()
			return nil, ctx.Err()
		})
		_, _, err := w.call(ctx, "stop", `{"text":"x"}`)
		if w.rt == nil && !errors.Is(err, context.Canceled) || w.rt != nil && !errors.Is(err, tga.EffectInDoubt) {
			t.Errorf("%v", err)
		}
		want := untouched
		want.Logged = 1
		w.want(want)
	})
}

// ending is a context whose deadline passes when the test says so.
type ending struct {
	context.Context
	done chan struct{}
}

func (e ending) Done() <-chan struct{} { return e.done }

func (e ending) Err() error {
	select {
	case <-e.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

func TestDeadlineUndoesTheCall(t *testing.T) {
	both(t, workstate.Options{}, func(t *testing.T, w *world) {
		ctx := ending{bg, make(chan struct{})}
		w.tools["slow"] = workstate.Func(func(call context.Context, e edit) (any, error) {
			must(t, apply(call, e))
			close(ctx.done)
			<-call.Done()
			return nil, call.Err()
		})
		_, _, err := w.call(ctx, "slow", `{"text":"x"}`)
		wantCode(t, err, tga.ToolTimeout)
		want := untouched
		want.Logged = 1
		w.want(want)
	})
}

// TestRefusedCallsNeverRun: lookup, parse, policy, deadline and budget refuse before
// anything is done, and in that order.
func TestRefusedCallsNeverRun(t *testing.T) {
	asked := 0
	o := workstate.Options{Policy: func(_ context.Context, c runtime.Call) error {
		asked++
		switch string(c.Args) {
		case `{"text":"denied"}`:
			return errNo
		case `{"text":"panics"}`:
			panic("policy")
		}
		return nil
	}}
	gone, cancel := context.WithDeadline(bg, time.Unix(0, 0))
	defer cancel()
	for _, c := range []struct {
		name, tool, args string
		ctx              context.Context
		code             tga.Code
		asked            int
	}{
		{"lookup", "none", `{}`, gone, tga.NotFound, 0},
		{"parse", "good", `{"text":"denied","extra":1}`, gone, tga.ValidationError, 0},
		{"policy", "good", `{"text":"denied"}`, gone, tga.PolicyViolation, 1},
		{"policy fails closed", "good", `{"text":"panics"}`, bg, tga.PolicyViolation, 1},
		{"deadline", "good", `{"text":"x"}`, gone, tga.ToolTimeout, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := inMemory(t, o)
			asked = 0
			_, _, err := w.call(c.ctx, c.tool, c.args)
			wantCode(t, err, c.code)
			if !errors.Is(err, runtime.ErrNotSent) {
				t.Errorf("%v is not known as not sent", err)
			}
			if asked != c.asked {
				t.Errorf("the policy was asked %d times, want %d", asked, c.asked)
			}
			w.want(untouched)
			if n := len(w.state.List()); n != 0 {
				t.Errorf("%d boundaries of calls that never ran", n)
			}
		})
	}
}

// TestChargeOverAnyNumberIsRefused: the sum of what was spent and of a charge is over the largest number.
func TestChargeOverAnyNumberIsRefused(t *testing.T) {
	b := workstate.NewBudget(workstate.Usage{Tokens: 10})
	must(t, b.Charge("e", workstate.Usage{Tokens: 1}))
	for _, tokens := range []int64{10, math.MaxInt64 - 1, math.MaxInt64} {
		wantCode(t, b.Charge("e", workstate.Usage{Tokens: tokens}), tga.BudgetExceeded)
	}
	must(t, b.Charge("e", workstate.Usage{Tokens: 9}))
}

// TestBudgetRefusesBeforeDispatch tries the limit and one call before it.
func TestBudgetRefusesBeforeDispatch(t *testing.T) {
	w := inMemory(t, workstate.Options{})
	w.do("good", `{"text":"a","tokens":999}`, tga.StatusSuccess)
	w.do("good", `{"text":"b","tokens":1}`, tga.StatusSuccess)
	before := w.seen()
	_, _, err := w.call(bg, "good", `{"text":"c"}`)
	wantCode(t, err, tga.BudgetExceeded)
	if !errors.Is(err, runtime.ErrNotSent) {
		t.Errorf("%v is not known as not sent", err)
	}
	w.want(before)
	ctx := workstate.WithEvaluation(bg, "other")
	if _, res, err := w.call(ctx, "good", `{"text":"d"}`); err != nil || res.Status != tga.StatusSuccess {
		t.Errorf("another evaluation: %v %v", res.Status, err)
	}
}

func TestSpendingSideBySideCannotPassTheLimit(t *testing.T) {
	w := inMemory(t, workstate.Options{Uses: func(string, string) []string { return []string{} }})
	inner := func(tokens int64) workstate.Tool {
		return workstate.Func(func(ctx context.Context, _ struct{}) (any, error) {
			b, err := workstate.Use[*workstate.Budget](workstate.FromContext(ctx))
			must(t, err)
			return nil, b.Charge("", workstate.Usage{Tokens: tokens})
		})
	}
	w.tools["late"] = inner(600)
	w.tools["early"] = workstate.Func(func(ctx context.Context, _ struct{}) (any, error) {
		b, err := workstate.Use[*workstate.Budget](workstate.FromContext(ctx))
		must(t, err, b.Charge("", workstate.Usage{Tokens: 600}))
		w.do("late", `{}`, tga.StatusSuccess) // not inside this one: another context
		return nil, nil
	})
	_, res, err := w.call(bg, "early", `{}`)
	must(t, err)
	if res.ErrorCode != tga.BudgetExceeded {
		t.Errorf("%s %s, want BUDGET_EXCEEDED at the commit", res.Status, res.ErrorCode)
	}
	if got := w.seen().Spent; got != (workstate.Usage{Tokens: 600, Calls: 1}) {
		t.Errorf("spent %+v", got)
	}
}

// TestFailedRestoreIsRepeatedBeforeUse: after a failed restore no call runs until a repeated
// restore succeeds. A restart repeats the restore too, unless it has succeeded before.
func TestFailedRestoreIsRepeatedBeforeUse(t *testing.T) {
	both(t, workstate.Options{}, func(t *testing.T, w *world) {
		w.tools["breaks"] = workstate.Func(func(ctx context.Context, e edit) (any, error) {
			must(t, apply(ctx, e))
			w.machine.broken = true
			return nil, errNo
		})
		_, res, err := w.call(bg, "breaks", `{"text":"x"}`)
		must(t, err)
		if res.ErrorCode != tga.RestoreFailed {
			t.Errorf("%s, want RESTORE_FAILED", res.ErrorCode)
		}
		_, _, err = w.call(bg, "good", `{"text":"y"}`)
		wantCode(t, err, tga.RestoreFailed)
		w.machine.broken = false
		if w.dir != "" {
			w.reopen()
			if got := w.machine.get(); got != "original" {
				t.Errorf("after a restart the machine says %q", got)
			}
			_, _, err := w.call(bg, "breaks", `{"text":"x"}`)
			must(t, err)
			w.machine.broken = false
		}
		w.do("good", `{"text":"z"}`, tga.StatusSuccess)
		if got := w.seen(); got.Machine != "z" || got.Objective != "z" {
			t.Errorf("the state is %+v", got)
		}
		if w.dir != "" {
			w.reopen()
			if got := w.seen(); got.Machine != "z" || got.Objective != "z" {
				t.Errorf("after another restart the state is %+v", got)
			}
		}
		for _, c := range w.state.List() {
			if c.Open {
				t.Errorf("a boundary is open: %+v", c)
			}
		}
	})
}

// TestObserverCannotHarm: its failure and its panic change nothing.
func TestObserverCannotHarm(t *testing.T) {
	told := 0
	w := inMemory(t, workstate.Options{Observe: func(_ context.Context, done workstate.ToolInvoked) error {
		if told++; done.Success {
			panic("observer")
		}
		return errNo
	}})
	w.do("good", `{"text":"x"}`, tga.StatusSuccess)
	w.do("fail", `{"text":"y"}`, tga.StatusFailure)
	w.want(after("x", 1, 2, workstate.Usage{Calls: 1}))
	if told != 2 {
		t.Errorf("told %d times", told)
	}
}

// TestClockAndRandomnessReplay: what a call saw is recorded, and a replay sees the same.
func TestClockAndRandomnessReplay(t *testing.T) {
	both(t, workstate.Options{Seed: 7}, func(t *testing.T, w *world) {
		var saw [3]any
		w.tools["look"] = workstate.Func(func(ctx context.Context, _ struct{}) (any, error) {
			tx := workstate.FromContext(ctx)
			saw = [3]any{tx.Now(), tx.Now(), tx.Rand().Uint64()}
			return nil, nil
		})
		id := w.do("look", `{}`, tga.StatusSuccess)
		first := saw
		if w.dir != "" {
			w.reopen()
		}
		r, err := w.state.Recording(id)
		must(t, err)
		if _, _, err := w.call(workstate.WithRecording(bg, r), "look", `{}`); err != nil || saw != first {
			t.Errorf("the replay saw %v, the call %v (%v)", saw, first, err)
		}
		w.do("look", `{}`, tga.StatusSuccess)
		if saw == first {
			t.Error("another call saw the same")
		}
	})
}

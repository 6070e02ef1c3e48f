package workstate_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/workstate"
	"github.com/tgad/tgad/internal/workstate/memfs"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// TestRollbackToToolBoundary: three calls, back to before the second; logs stay.
func TestRollbackToToolBoundary(t *testing.T) {
	both(t, workstate.Options{}, func(t *testing.T, w *world) {
		w.do("good", `{"text":"a","tokens":1}`, tga.StatusSuccess)
		b := w.do("good", `{"text":"b","tokens":2}`, tga.StatusSuccess)
		w.do("good", `{"text":"c","tokens":4}`, tga.StatusSuccess)
		if w.dir != "" {
			w.reopen()
		}
		_, err := w.state.RollbackTo(bg, b)
		must(t, err)
		want := after("a", 1, 3, workstate.Usage{Tokens: 1, Calls: 1})
		want.Cache = "" // invalidated
		w.want(want)
		if n := len(w.invoked()); n != 3 {
			t.Errorf("%d calls in the log slice, want 3", n)
		}
		if w.dir != "" {
			w.reopen()
			w.want(want)
		}
	})
}

// TestUndoOfUndo: a rollback is a boundary; going back to before it takes it back, and
// going back to before that does it again.
func TestUndoOfUndo(t *testing.T) {
	both(t, workstate.Options{}, func(t *testing.T, w *world) {
		a := w.do("good", `{"text":"a","tokens":1}`, tga.StatusSuccess)
		full := w.seen()
		full.Cache = ""
		for i := range 3 {
			target := a
			if i > 0 {
				list := w.state.List()
				target = list[len(list)-1].ID
			}
			plan, err := w.state.RollbackTo(bg, target)
			must(t, err)
			want := full
			if i%2 == 0 {
				want = untouched
				want.Logged = 1
			}
			w.want(want)
			if plan.To.ID != target {
				t.Errorf("the plan was to %+v", plan.To)
			}
			list := w.state.List()
			if last := list[len(list)-1]; !last.Success || last.Code != "" {
				t.Errorf("a rollback that succeeded is %+v", last)
			}
		}
	})
}

func TestRollbackToUnknownCallChangesNothing(t *testing.T) {
	both(t, workstate.Options{}, func(t *testing.T, w *world) {
		w.do("good", `{"text":"a"}`, tga.StatusSuccess)
		before := w.seen()
		_, err := w.state.RollbackTo(bg, "nobody")
		wantCode(t, err, tga.NotFound)
		_, err = w.state.PreSnapshot(bg, "nobody")
		wantCode(t, err, tga.NotFound)
		w.want(before)
	})
}

// TestPlanSaysWhatARollbackCannotUndo also checks that a plan is refused if the state has changed since.
func TestPlanSaysWhatARollbackCannotUndo(t *testing.T) {
	w := inMemory(t, workstate.Options{External: func(_, tool string) workstate.External {
		return map[string]workstate.External{"pure": {None: true}, "mail": {}, "charge": {Compensation: "refund"}}[tool]
	}})
	for _, tool := range []string{"pure", "mail", "charge"} {
		w.tools[tool] = w.tools["good"]
	}
	first := w.do("pure", `{"text":"a"}`, tga.StatusSuccess)
	w.do("mail", `{"text":"b"}`, tga.StatusSuccess)
	w.do("charge", `{"text":"c"}`, tga.StatusSuccess)
	w.do("fail", `{"text":"d"}`, tga.StatusFailure)
	before := w.seen()
	plan, err := w.state.PlanRollback(bg, first, workstate.RestoreOptions{})
	must(t, err)
	w.want(before)
	var undone, standing, parts []string
	for _, c := range plan.Undone {
		undone = append(undone, c.Name)
	}
	for _, s := range plan.Standing {
		standing = append(standing, s.Name+":"+s.Compensation)
	}
	for _, c := range plan.Restored {
		parts = append(parts, c.Part[strings.LastIndex(c.Part, ".")+1:])
	}
	if !slices.Equal(undone, []string{"charge", "mail", "pure"}) || !slices.Equal(standing, []string{"charge:refund", "mail:"}) ||
		!slices.Equal(parts, []string{"FS", "machine", "Budget", "KV", "Digested", "Plan"}) {
		t.Errorf("undone %v, standing %v, parts %v", undone, standing, parts)
	}
	w.do("good", `{"text":"e"}`, tga.StatusSuccess)
	_, err = plan.Do(bg)
	wantCode(t, err, tga.StateConflict)
}

// TestFailedRollbackLeavesTheStateAsBefore.
func TestFailedRollbackLeavesTheStateAsBefore(t *testing.T) {
	both(t, workstate.Options{}, func(t *testing.T, w *world) {
		id := w.do("good", `{"text":"a"}`, tga.StatusSuccess)
		before := w.seen()
		w.machine.broken = true
		_, err := w.state.RollbackTo(bg, id)
		wantCode(t, err, tga.RestoreFailed)
		w.machine.broken = false
		w.want(before)
		w.do("good", `{"text":"b"}`, tga.StatusSuccess)
		if w.dir != "" {
			w.reopen()
			w.want(after("b", 2, 2, workstate.Usage{Calls: 2}))
		}
	})
}

func TestRestoreInsideACallIsRefused(t *testing.T) {
	w := inMemory(t, workstate.Options{})
	snap, err := w.state.Snapshot(bg, workstate.SnapshotOptions{}, "")
	must(t, err)
	w.tools["back"] = workstate.Func(func(ctx context.Context, _ struct{}) (any, error) {
		_, err := w.state.Restore(ctx, snap, workstate.RestoreOptions{}, "")
		return nil, err
	})
	_, res, err := w.call(bg, "back", `{}`)
	must(t, err)
	if res.ErrorCode != tga.ValidationError {
		t.Errorf("%s %s", res.Status, res.ErrorCode)
	}
}

// TestForkGoesItsOwnWay: a fork begins at a boundary and neither state sees the other.
func TestForkGoesItsOwnWay(t *testing.T) {
	both(t, workstate.Options{}, func(t *testing.T, w *world) {
		w.do("good", `{"text":"a"}`, tga.StatusSuccess)
		b := w.do("good", `{"text":"b"}`, tga.StatusSuccess)
		p := newParts(t)
		fork, err := w.state.Fork(bg, b, workstate.NewSession(), p.registry, workstate.Options{})
		must(t, err)
		if p.machine.get() != "a" || w.machine.get() != "b" {
			t.Errorf("the machines say %q and %q", p.machine.get(), w.machine.get())
		}
		must(t, fork.Update(bg, "fork", func(ctx context.Context, _ *workstate.Tx) error { return apply(ctx, edit{Text: "x"}) }))
		w.want(after("b", 2, 2, workstate.Usage{Calls: 2}))
		if w.dir != "" {
			w.reopen()
			numbers, err := w.state.Forks(bg)
			must(t, err)
			if !slices.Equal(numbers, []uint32{0, 1}) {
				t.Errorf("states %v", numbers)
			}
			fork, err = w.state.OpenFork(bg, 1, workstate.NewSession(), newParts(t).registry, workstate.Options{})
			must(t, err)
			_, err = w.state.OpenFork(bg, 2, workstate.NewSession(), newParts(t).registry, workstate.Options{})
			wantCode(t, err, tga.NotFound)
		}
		must(t, fork.View(bg, func(tx *workstate.Tx) error {
			if got := objective(t, tx.Session()); got != "x" {
				t.Errorf("the fork's objective is %q", got)
			}
			return nil
		}))
	})
}

// TestUpdateIsAllOrNothing.
func TestUpdateIsAllOrNothing(t *testing.T) {
	both(t, workstate.Options{}, func(t *testing.T, w *world) {
		for _, end := range []func() error{func() error { return errNo }, func() error { panic("oh") }} {
			if err := w.state.Update(bg, "u", func(ctx context.Context, _ *workstate.Tx) error {
				must(t, apply(ctx, edit{Text: "x"}))
				return end()
			}); err == nil {
				t.Error("no error")
			}
			want := w.seen()
			if want.Objective != "test" || want.File != "original" || want.Machine != "original" {
				t.Errorf("left %+v", want)
			}
		}
		must(t, w.state.Update(bg, "u", func(ctx context.Context, _ *workstate.Tx) error { return apply(ctx, edit{Text: "y"}) }))
		if w.dir != "" {
			w.reopen()
		}
		w.want(after("y", 1, 3, workstate.Usage{}))
	})
}

// TestRingKeepsTheNewest: at the limit and one past it; by age; by bytes.
func TestRingKeepsTheNewest(t *testing.T) {
	clock := time.Date(2026, 1, 15, 19, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name string
		o    workstate.Options
		want int
	}{
		{"count", workstate.Options{Ring: 4}, 4},
		{"default", workstate.Options{}, 6},
		{"age", workstate.Options{MaxAge: 150 * time.Second}, 3},
	} {
		c.o.Clock = func() time.Time { return clock }
		t.Run(c.name, func(t *testing.T) {
			both(t, c.o, func(t *testing.T, w *world) {
				var ids []string
				for i := range 6 {
					ids = append(ids, w.do("good", fmt.Sprintf(`{"text":"t%d"}`, i), tga.StatusSuccess))
					clock = clock.Add(time.Minute)
				}
				if w.dir != "" {
					w.reopen()
				}
				list := w.state.List()
				if len(list) != c.want || list[len(list)-1].ID != ids[5] {
					t.Fatalf("%d boundaries kept, want %d", len(list), c.want)
				}
				_, err := w.state.PreSnapshot(bg, ids[6-c.want])
				must(t, err)
				if c.want < 6 {
					_, err := w.state.PreSnapshot(bg, ids[6-c.want-1])
					wantCode(t, err, tga.NotFound)
				}
			})
		})
	}
	t.Run("bytes", func(t *testing.T) {
		w := inStore(t, workstate.Options{MaxBytes: 1})
		w.do("good", `{"text":"a"}`, tga.StatusSuccess)
		w.do("good", `{"text":"b"}`, tga.StatusSuccess)
		if n := len(w.state.List()); n > 1 {
			t.Errorf("%d boundaries of more than a byte", n)
		}
	})
}

func TestListSaysWhatHappened(t *testing.T) {
	at := time.Date(2026, 1, 15, 19, 0, 0, 0, time.UTC)
	w := inMemory(t, workstate.Options{Clock: func() time.Time { at = at.Add(time.Second); return at }})
	id := w.do("good", `{"text":"a"}`, tga.StatusSuccess)
	w.do("refuse", `{"text":"b"}`, tga.StatusFailure)
	cp, err := w.state.Checkpoint(bg, "here")
	must(t, err)
	list := w.state.List()
	if len(list) != 3 {
		t.Fatalf("%d boundaries", len(list))
	}
	if c := list[0]; c.ID != id || c.Name != "good" || c.Server != "local" || !c.Success || c.Elapsed <= 0 || c.Recorded.Year() != 2026 || c.Kind != "call" {
		t.Errorf("%+v", c)
	}
	if c := list[1]; c.Success || c.Code != tga.ValidationError {
		t.Errorf("%+v", c)
	}
	if c := list[2]; c.ID != cp || c.Name != "here" || c.Kind != "checkpoint" {
		t.Errorf("%+v", c)
	}
	_, err = w.state.PostSnapshot(bg, list[1].ID)
	wantCode(t, err, tga.NotFound)
	post, err := w.state.PostSnapshot(bg, id)
	must(t, err)
	if post.Metadata.Phase != "post_tool" || post.Metadata.ToolCallID != id || post.Metadata.ToolName != "good" {
		t.Errorf("%+v", post.Metadata)
	}
}

// TestSnapshotsAreRestoredElsewhere: snapshots of every resource, from before and after a
// boundary, can be restored into another state. Equal snapshots have equal JSON.
func TestSnapshotsAreRestoredElsewhere(t *testing.T) {
	both(t, workstate.Options{}, func(t *testing.T, w *world) {
		id := w.do("good", `{"text":"a","tokens":3}`, tga.StatusSuccess)
		w.do("good", `{"text":"b","tokens":4}`, tga.StatusSuccess)
		if w.dir != "" {
			w.reopen()
		}
		for _, side := range []struct {
			of   func(context.Context, string) (*workstate.CompositeSnapshot, error)
			want seen
		}{
			{w.state.PreSnapshot, untouched},
			{w.state.PostSnapshot, after("a", 1, 0, workstate.Usage{Tokens: 3, Calls: 1})},
		} {
			snap, err := side.of(bg, id)
			must(t, err)
			raw, err := snap.ToJSON()
			must(t, err)
			again, err := side.of(bg, id)
			must(t, err)
			if rest, err := again.ToJSON(); err != nil || string(rest) != string(raw) {
				t.Errorf("not stable: %v", err)
			}
			other := inMemory(t, workstate.Options{})
			_, err = other.state.Restore(bg, snap, workstate.RestoreOptions{}, "")
			must(t, err)
			want := side.want
			want.Cache = ""
			other.want(want)
		}
	})
}

// TestAdaptersGiveEqualState: a function, and a dispatcher that reaches the same tool in
// another way, lead to equal states.
func TestAdaptersGiveEqualState(t *testing.T) {
	one, other := inMemory(t, workstate.Options{}), inMemory(t, workstate.Options{})
	other.sent = workstate.Transact(runtime.DispatcherFunc(func(ctx context.Context, c runtime.Call) (runtime.Reply, error) {
		var e edit
		if err := json.Unmarshal(c.Args, &e); err != nil {
			return runtime.Reply{}, err
		}
		if err := apply(ctx, e); err != nil {
			return runtime.Reply{}, err
		}
		status := map[string]string{"good": tga.StatusSuccess, "fail": tga.StatusFailure}[c.Tool]
		return runtime.Reply{Status: status}, nil
	}), other.state)
	for _, w := range []*world{one, other} {
		for _, c := range [][3]string{{"good", `{"text":"a","tokens":1}`, tga.StatusSuccess}, {"fail", `{"text":"b"}`, tga.StatusFailure}, {"good", `{"text":"c"}`, tga.StatusSuccess}} {
			w.do(c[0], c[1], c[2])
		}
	}
	a, err := one.state.Snapshot(bg, workstate.SnapshotOptions{}, "")
	must(t, err)
	b, err := other.state.Snapshot(bg, workstate.SnapshotOptions{}, "")
	must(t, err)
	if !equal(t, a, b) || one.seen() != other.seen() {
		t.Errorf("%+v and %+v", one.seen(), other.seen())
	}
}

// TestPlanIsOfTheStateThatItSaw: a call was in progress when a plan was made, and ends before it is carried out.
func TestPlanIsOfTheStateThatItSaw(t *testing.T) {
	for name, free := range map[string]bool{"it has no turn": true, "it has a turn": false} {
		w := inMemory(t, workstate.Options{Uses: func(_, tool string) []string {
			if free && tool == "slow" {
				return []string{}
			}
			return nil
		}})
		first := w.do("good", `{"text":"a"}`, tga.StatusSuccess)
		inside, release, over := make(chan struct{}), make(chan struct{}), make(chan struct{})
		w.tools["slow"] = workstate.Func(func(ctx context.Context, _ struct{}) (any, error) {
			kv, err := workstate.Use[*workstate.KV](workstate.FromContext(ctx))
			if err == nil {
				kv.Set("slow", []byte("done"))
			}
			close(inside)
			<-release
			return nil, err
		})
		go func() {
			defer close(over)
			w.do("slow", `{}`, tga.StatusSuccess)
		}()
		<-inside
		plan, err := w.state.PlanRollback(bg, first, workstate.RestoreOptions{})
		must(t, err)
		close(release)
		<-over
		_, err = plan.Do(bg)
		wantCode(t, err, tga.StateConflict)
		must(t, w.state.View(bg, func(tx *workstate.Tx) error {
			kv, err := workstate.Use[*workstate.KV](tx)
			if err == nil {
				if _, ok := kv.Get("slow"); !ok {
					t.Errorf("%s: the rollback took a call back that its plan did not name", name)
				}
			}
			return err
		}))
	}
}

// TestRollbackUnderALowerLimit: the budget's limit is lowered, and more was spent. A rollback takes spending back, also
// if what is left exceeds the new limit; calls are refused.
func TestRollbackUnderALowerLimit(t *testing.T) {
	w := inStore(t, workstate.Options{})
	w.do("good", `{"text":"a","tokens":90}`, tga.StatusSuccess)
	second := w.do("good", `{"text":"b","tokens":90}`, tga.StatusSuccess)
	w.state.Close()
	w.registry = &workstate.Registry{}
	must(t, workstate.Add(w.registry, memfs.New()), workstate.Add(w.registry, workstate.NewKV()),
		workstate.Add(w.registry, workstate.NewBudget(workstate.Usage{Tokens: 50})), workstate.Add(w.registry, w.machine))
	var err error
	w.state, err = workstate.Open(bg, w.db, w.id, newSession(t), w.registry, w.opts)
	must(t, err)
	w.sent = workstate.Transact(w.next, w.state)
	w.rt, err = runtime.New(w.state.Store(), w.sent, runtime.AllowAll, runtime.Options{})
	must(t, err)
	_, err = w.state.RollbackTo(bg, second)
	must(t, err)
	want := after("a", 1, 2, workstate.Usage{Tokens: 90, Calls: 1})
	want.Cache = "" // invalidated
	w.want(want)
	_, _, err = w.call(bg, "good", `{"text":"c"}`)
	wantCode(t, err, tga.BudgetExceeded)
}

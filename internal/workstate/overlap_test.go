package workstate_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/workstate"
	"github.com/tgad/tgad/internal/workstate/memfs"
	"github.com/tgad/tgad/schemas/tga"
)

// TestOverlappingCallsKeepEachOthersCommits: A and B run at once, B commits, A fails.
func TestOverlappingCallsKeepEachOthersCommits(t *testing.T) {
	both(t, workstate.Options{Uses: func(string, string) []string { return []string{} }}, func(t *testing.T, w *world) {
		w.tools["b"] = workstate.Func(func(ctx context.Context, _ struct{}) (any, error) {
			return nil, writeFile(ctx, "src/b")
		})
		for _, end := range []error{errNo, nil} {
			w.tools["a"] = workstate.Func(func(ctx context.Context, _ struct{}) (any, error) {
				must(t, writeFile(ctx, "src/a"))
				w.do("b", `{}`, tga.StatusSuccess)
				return nil, end
			})
			_, _, err := w.call(bg, "a", `{}`)
			must(t, err)
			want := []string{"b"}
			if end == nil {
				want = []string{"a", "b"}
			}
			if got := w.listing(); len(got) != len(want) || got[len(got)-1] != "b" {
				t.Errorf("A ends with %v: files %v, want %v", end, got, want)
			}
		}
	})
}

func writeFile(ctx context.Context, name string) error {
	f, err := workstate.Use[*memfs.FS](workstate.FromContext(ctx))
	if err != nil {
		return err
	}
	return f.WriteFile(name, []byte(name), 0o644)
}

func (w *world) listing() (names []string) {
	must(w, w.state.View(bg, func(tx *workstate.Tx) error {
		f, err := workstate.Use[*memfs.FS](tx)
		must(w, err)
		list, err := f.ReadDir("src")
		for _, e := range list {
			names = append(names, e.Name())
		}
		return err
	}))
	return names
}

// TestSecondCommitterOfAConflictFails: cleanly, keeping what the tool said.
func TestSecondCommitterOfAConflictFails(t *testing.T) {
	read := func(ctx context.Context) error {
		s := workstate.FromContext(ctx).Session()
		_, _, err := workstate.Slice[Plan](s).Latest()
		return errors.Join(err, workstate.Slice[Operation](s).Append(Operation{"read"}))
	}
	write := func(ctx context.Context) error {
		return workstate.Slice[Plan](workstate.FromContext(ctx).Session()).Replace(Plan{Objective: "mine"})
	}
	for _, c := range []struct {
		name        string
		do          func(context.Context) error
		ignoreReads bool
		conflict    bool
	}{
		{"write and write", write, false, true},
		{"write and write, reads ignored", write, true, true},
		{"read and write", read, false, true},
		{"read and write, reads ignored", read, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			both(t, workstate.Options{IgnoreReads: c.ignoreReads, Uses: func(string, string) []string { return []string{} }}, func(t *testing.T, w *world) {
				w.tools["b"] = workstate.Func(func(ctx context.Context, _ struct{}) (any, error) {
					return nil, workstate.Slice[Plan](workstate.FromContext(ctx).Session()).Replace(Plan{Objective: "theirs"})
				})
				w.tools["a"] = workstate.Func(func(ctx context.Context, _ struct{}) (any, error) {
					must(t, c.do(ctx), writeFile(ctx, "src/a"))
					w.do("b", `{}`, tga.StatusSuccess)
					return "said", nil
				})
				_, res, err := w.call(bg, "a", `{}`)
				must(t, err)
				if got := res.ErrorCode == tga.StateConflict; got != c.conflict {
					t.Fatalf("%s %s, conflict wanted: %v", res.Status, res.ErrorMessage, c.conflict)
				}
				if string(res.Value) != `"said"` {
					t.Errorf("the tool's own answer is %s", res.Value)
				}
				if got := w.seen(); got.Objective != "theirs" || (got.Files == 0) != c.conflict {
					t.Errorf("the state is %+v", got)
				}
			})
		})
	}
}

// TestCallsTakeTurnsAtWhatHasNoBranches: no call sees a resource without branches in the middle
// of another call. A call that may not use the resource is refused.
func TestCallsTakeTurnsAtWhatHasNoBranches(t *testing.T) {
	w := inMemory(t, workstate.Options{Uses: func(_, tool string) []string {
		if tool == "apart" {
			return []string{}
		}
		return nil
	}})
	w.tools["apart"] = workstate.Func(func(ctx context.Context, _ struct{}) (any, error) {
		_, err := workstate.Use[*machine](workstate.FromContext(ctx))
		return nil, err
	})
	w.tools["busy"] = workstate.Func(func(ctx context.Context, _ struct{}) (any, error) {
		brief, cancel := context.WithTimeout(bg, 500*time.Millisecond)
		defer cancel()
		_, _, err := w.call(brief, "good", `{"text":"other"}`)
		wantCode(t, err, tga.StateLockAcquireFailed)
		_, res, err := w.call(bg, "apart", `{}`)
		must(t, err)
		if res.ErrorCode != tga.PermissionDenied {
			t.Errorf("a call that may not use the machine: %s %s", res.Status, res.ErrorCode)
		}
		return nil, apply(ctx, edit{Text: "busy"})
	})
	w.do("busy", `{}`, tga.StatusSuccess)
	w.want(after("busy", 1, 1, workstate.Usage{Calls: 1}))
}

// TestNestedCallsAreUndoneAlone: a call inside a call is undone to where it began, and
// everything is undone with the outer one.
func TestNestedCallsAreUndoneAlone(t *testing.T) {
	both(t, workstate.Options{}, func(t *testing.T, w *world) {
		var end error
		w.tools["outer"] = workstate.Func(func(ctx context.Context, _ struct{}) (any, error) {
			must(t, apply(ctx, edit{Text: "outer"}))
			for _, inner := range []struct{ tool, status string }{{"good", tga.StatusSuccess}, {"fail", tga.StatusFailure}} {
				_, res, err := w.call(ctx, inner.tool, `{"text":"in-`+inner.tool+`"}`)
				must(t, err)
				if res.Status != inner.status {
					t.Errorf("inner %s: %s %s", inner.tool, res.Status, res.ErrorMessage)
				}
			}
			if got := w.machine.get(); got != "in-good" {
				t.Errorf("inside, the machine says %q", got)
			}
			if got := objective(t, workstate.FromContext(ctx).Session()); got != "in-good" {
				t.Errorf("inside, the objective is %q", got)
			}
			return nil, end
		})
		end = errNo
		w.do("outer", `{}`, tga.StatusFailure)
		want := untouched
		want.Logged = 3
		w.want(want)
		end = nil
		id := w.do("outer", `{}`, tga.StatusSuccess)
		w.want(after("in-good", 2, 6, workstate.Usage{Calls: 2}))
		inside := 0
		for _, c := range w.state.List() {
			if c.Parent == id {
				inside++
			}
		}
		if inside != 2 {
			t.Errorf("%d boundaries inside the call, want 2", inside)
		}
		if w.dir != "" {
			w.reopen()
			w.want(after("in-good", 2, 6, workstate.Usage{Calls: 2}))
		}
	})
}

// TestReadsOfACallInsideCountForTheOuter: the outer call depends on what an inner call has read,
// also if the inner call failed: it was told why. What a failed call wrote counts for nothing.
func TestReadsOfACallInsideCountForTheOuter(t *testing.T) {
	for _, cell := range cellNames {
		for _, c := range []struct {
			status   string
			writes   bool // and does not read
			conflict bool
		}{{tga.StatusSuccess, false, true}, {tga.StatusFailure, false, true}, {tga.StatusFailure, true, cell[0] == 'f'}} { // memfs looks for the file that it replaces
			t.Run(fmt.Sprint(cell, " ", c.status, c.writes), func(t *testing.T) {
				w := inMemory(t, workstate.Options{Uses: func(string, string) []string { return []string{} }})
				w.tools["inner"] = workstate.Func(func(ctx context.Context, _ struct{}) (any, error) {
					var err error
					if tx := workstate.FromContext(ctx); c.writes {
						err = setCell(tx, cell, "ours")
					} else {
						_, err = getCell(tx, cell)
					}
					must(t, err)
					if c.status == tga.StatusFailure {
						return nil, errNo
					}
					return nil, nil
				})
				w.tools["write"] = workstate.Func(func(ctx context.Context, _ struct{}) (any, error) {
					return nil, setCell(workstate.FromContext(ctx), cell, "theirs")
				})
				w.tools["outer"] = workstate.Func(func(ctx context.Context, _ struct{}) (any, error) {
					_, res, err := w.call(ctx, "inner", `{}`)
					must(t, err)
					if res.Status != c.status {
						t.Errorf("inner: %s", res.Status)
					}
					w.do("write", `{}`, tga.StatusSuccess)
					return nil, nil
				})
				_, res, err := w.call(bg, "outer", `{}`)
				must(t, err)
				if conflict := res.ErrorCode == tga.StateConflict; conflict != c.conflict {
					t.Errorf("outer: %s %s", res.Status, res.ErrorMessage)
				}
			})
		}
	}
}

// TestFailedCallsInsideAreNoWayToLook: each of two calls looks at what the other one changes, by
// an inner call that fails and says what it saw. In no serial order do both see the old value, so
// one of the two is refused.
func TestFailedCallsInsideAreNoWayToLook(t *testing.T) {
	for _, cell := range cellNames {
		w := inMemory(t, workstate.Options{Uses: func(string, string) []string { return []string{} }})
		const mine = "k9"
		w.tools["look"] = workstate.Func(func(ctx context.Context, p struct{ Cell string }) (any, error) {
			v, err := getCell(workstate.FromContext(ctx), p.Cell)
			return v, errors.Join(err, workstate.ErrFailed)
		})
		swap := func(ctx context.Context, from, to string) (any, error) {
			_, res, err := w.call(ctx, "look", `{"Cell":"`+from+`"}`)
			must(t, err, setCell(workstate.FromContext(ctx), to, "after "+string(res.Value)))
			return nil, nil
		}
		w.tools["other"] = workstate.Func(func(ctx context.Context, _ struct{}) (any, error) { return swap(ctx, mine, cell) })
		w.tools["one"] = workstate.Func(func(ctx context.Context, _ struct{}) (any, error) {
			answer, err := swap(ctx, cell, mine)
			w.do("other", `{}`, tga.StatusSuccess)
			return answer, err
		})
		if _, res, err := w.call(bg, "one", `{}`); err != nil || res.ErrorCode != tga.StateConflict {
			t.Errorf("%s: %s %s, %v", cell, res.Status, res.ErrorMessage, err)
		}
	}
}

// TestToolThatLeavesACallBehindFails: a tool that returns while a call inside it is in progress
// fails, and no call begins inside a call that has ended.
func TestToolThatLeavesACallBehindFails(t *testing.T) {
	w := inMemory(t, workstate.Options{Uses: func(string, string) []string { return []string{} }})
	begun, ended := make(chan struct{}), make(chan struct{})
	left := make(chan string, 1)
	w.tools["slow"] = workstate.Func(func(ctx context.Context, _ struct{}) (any, error) {
		close(begun)
		<-ended
		return nil, writeFile(ctx, "src/late")
	})
	var inside context.Context
	w.tools["careless"] = workstate.Func(func(ctx context.Context, _ struct{}) (any, error) {
		inside = ctx
		go func() {
			_, res, err := w.call(ctx, "slow", `{}`)
			left <- string(res.ErrorCode) + text(err)
		}()
		<-begun
		return nil, writeFile(ctx, "src/a")
	})
	_, res, err := w.call(bg, "careless", `{}`)
	must(t, err)
	close(ended)
	if got := <-left; got != string(tga.StateConflict) || res.ErrorCode != tga.StateConflict {
		t.Errorf("the tool ended %q, what it left behind %q, want STATE_CONFLICT", res.ErrorCode, got)
	}
	if list := w.listing(); len(list) != 0 {
		t.Errorf("left %v", list)
	}
	if _, _, err := w.call(inside, "good", `{"text":"x"}`); !errors.Is(err, tga.StateConflict) {
		t.Errorf("a call inside one that has ended: %v", err)
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

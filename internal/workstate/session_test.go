package workstate_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/workstate"
	"github.com/tgad/tgad/schemas/tga"
)

type Plan struct {
	Objective string   `json:"objective"`
	Steps     []string `json:"steps,omitempty"`
}

type Operation struct {
	Path string `json:"path"`
}

type Digested struct {
	Sum string `json:"sum"`
}

type AddStep struct{ Step string }

func must(t testing.TB, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func newSession(t testing.TB) *workstate.Session {
	t.Helper()
	s := workstate.NewSession()
	must(t,
		workstate.Slice[Plan](s).Register(workstate.PolicyState),
		workstate.Slice[Operation](s).Register(workstate.PolicyLog),
		workstate.Slice[Digested](s).Register(workstate.PolicyCache))
	workstate.Reduce(s, func(plans []Plan, e AddStep) []Plan {
		p := plans[len(plans)-1]
		p.Steps = append(slices.Clone(p.Steps), e.Step)
		return append(plans[:len(plans)-1:len(plans)-1], p)
	})
	return s
}

func all[T any](t testing.TB, s *workstate.Session) []T {
	t.Helper()
	items, err := workstate.Slice[T](s).All()
	must(t, err)
	return items
}

func objective(t testing.TB, s *workstate.Session) string {
	t.Helper()
	p, ok, err := workstate.Slice[Plan](s).Latest()
	must(t, err)
	if !ok {
		return ""
	}
	return p.Objective
}

func TestReducersMakeTheNextItems(t *testing.T) {
	s := newSession(t)
	must(t, workstate.Slice[Plan](s).Seed(Plan{Objective: "ship"}), s.Dispatch(AddStep{"test"}), s.Dispatch(AddStep{"release"}))
	if got := all[Plan](t, s); len(got) != 1 || !slices.Equal(got[0].Steps, []string{"test", "release"}) {
		t.Errorf("plan is %+v", got)
	}
	if err := s.Dispatch(struct{}{}); !errors.Is(err, tga.NotFound) {
		t.Errorf("an event without reducers: %v, want NOT_FOUND", err)
	}
	snap := s.Snapshot(workstate.SnapshotOptions{})
	must(t, s.Dispatch(AddStep{"regret"}), s.Restore(snap, workstate.RestoreOptions{}), s.Dispatch(AddStep{"rest"}))
	if got := all[Plan](t, s); !slices.Equal(got[0].Steps, []string{"test", "release", "rest"}) {
		t.Errorf("after a restore the reducers made %+v", got)
	}
}

func TestItemsAreNobodysToChange(t *testing.T) {
	s := newSession(t)
	plan := Plan{Objective: "ship", Steps: []string{"test"}}
	must(t, workstate.Slice[Plan](s).Append(plan))
	plan.Steps[0] = "skip"
	all[Plan](t, s)[0].Steps[0] = "skip"
	if got := all[Plan](t, s)[0].Steps[0]; got != "test" {
		t.Errorf("an item was changed from outside to %q", got)
	}
}

func TestItemsWithoutAFaithfulFormAreRefused(t *testing.T) {
	s := newSession(t)
	for name, err := range map[string]error{
		"a function": workstate.Slice[func()](s).Append(func() {}),
		"not UTF-8":  workstate.Slice[Plan](s).Append(Plan{Objective: "a\xffb"}),
	} {
		if !errors.Is(err, tga.ValidationError) {
			t.Errorf("%s: %v, want VALIDATION_ERROR", name, err)
		}
	}
	must(t, workstate.Slice[Plan](s).Append(Plan{Objective: `a real � and a written \ufffd`}))
	if got := objective(t, s); got != `a real � and a written \ufffd` {
		t.Errorf("read back %q", got)
	}
	if n := workstate.Slice[Plan](s).Len(); n != 1 {
		t.Errorf("%d items, want the one that has a form", n)
	}
}

func TestLogsAreOnlyAppendedTo(t *testing.T) {
	s := newSession(t)
	must(t, workstate.Slice[Operation](s).Append(Operation{"a"}))
	if err := workstate.Slice[Operation](s).Replace(); !errors.Is(err, tga.ValidationError) {
		t.Errorf("replace of a log: %v", err)
	}
	if err := workstate.Slice[Operation](s).Seed(Operation{"b"}); !errors.Is(err, tga.ValidationError) {
		t.Errorf("seed of a slice that has items: %v", err)
	}
}

// TestRestoreByPolicy walks what a restore does to slices of each policy.
func TestRestoreByPolicy(t *testing.T) {
	all3 := workstate.SnapshotOptions{IncludeAll: true}
	for _, c := range []struct {
		name             string
		snapshot         workstate.SnapshotOptions
		o                workstate.RestoreOptions
		plan, ops, cache string
	}{
		{"default", workstate.SnapshotOptions{}, workstate.RestoreOptions{}, "before", "before after", ""},
		{"default, logs not preserved", workstate.SnapshotOptions{}, workstate.RestoreOptions{DropLogs: true}, "before", "before after", ""},
		{"all", all3, workstate.RestoreOptions{}, "before", "before after", ""},
		{"all, logs not preserved", all3, workstate.RestoreOptions{DropLogs: true}, "before", "before", ""},
		{"logs alone", workstate.SnapshotOptions{Policies: []workstate.Policy{workstate.PolicyLog}}, workstate.RestoreOptions{DropLogs: true}, "before after", "before", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSession(t)
			put := func(text string) {
				must(t, workstate.Slice[Plan](s).Append(Plan{Objective: text}), workstate.Slice[Operation](s).Append(Operation{text}), workstate.Slice[Digested](s).Append(Digested{text}))
			}
			put("before")
			snap := s.Snapshot(c.snapshot)
			put("after")
			must(t, s.Restore(snap, c.o))
			var plan, ops, cache []string
			for _, p := range all[Plan](t, s) {
				plan = append(plan, p.Objective)
			}
			for _, o := range all[Operation](t, s) {
				ops = append(ops, o.Path)
			}
			for _, d := range all[Digested](t, s) {
				cache = append(cache, d.Sum)
			}
			for _, got := range []struct {
				what, want string
				items      []string
			}{{"STATE", c.plan, plan}, {"LOG", c.ops, ops}, {"CACHE", c.cache, cache}} {
				if text := strings.Join(got.items, " "); text != got.want {
					t.Errorf("%s slice holds %q, want %q", got.what, text, got.want)
				}
			}
		})
	}
}

func TestRestoreEmptiesWhatTheSnapshotHasNot(t *testing.T) {
	s := newSession(t)
	snap := s.Snapshot(workstate.SnapshotOptions{})
	must(t, workstate.Slice[Plan](s).Append(Plan{Objective: "new"}), s.Restore(snap, workstate.RestoreOptions{}))
	if n := workstate.Slice[Plan](s).Len(); n != 0 {
		t.Errorf("%d items in a slice that was empty", n)
	}
}

func TestRestoreOfUnknownSlicesChangesNothing(t *testing.T) {
	s := newSession(t)
	must(t, workstate.Slice[Plan](s).Append(Plan{Objective: "ship"}))
	snap := s.Snapshot(workstate.SnapshotOptions{})
	other := workstate.NewSession()
	must(t, workstate.Slice[Operation](other).Append(Operation{"a"}))
	err := other.Restore(snap, workstate.RestoreOptions{})
	if !errors.Is(err, tga.SnapshotMismatch) || !strings.Contains(err.Error(), workstate.Slice[Plan](s).Name()) {
		t.Errorf("%v, want SNAPSHOT_MISMATCH naming the slice", err)
	}
	if got := all[Operation](t, other); len(got) != 1 {
		t.Errorf("the session was changed: %v", got)
	}
}

// TestRecordedPolicyWins: the policy that a slice had when the snapshot was taken decides.
func TestRecordedPolicyWins(t *testing.T) {
	s := newSession(t)
	must(t, workstate.Slice[Plan](s).Append(Plan{Objective: "then"}))
	snap := s.Snapshot(workstate.SnapshotOptions{IncludeAll: true})
	other := workstate.NewSession()
	must(t, workstate.Slice[Plan](other).Register(workstate.PolicyLog), workstate.Slice[Plan](other).Append(Plan{Objective: "now"}),
		other.Restore(snap, workstate.RestoreOptions{}))
	if got := objective(t, other); got != "then" {
		t.Errorf("a slice recorded as state holds %q after the restore", got)
	}
	if err := workstate.Slice[Plan](other).Register(workstate.PolicyState); !errors.Is(err, tga.ValidationError) {
		t.Errorf("another policy for a slice in use: %v", err)
	}
}

func TestSessionSnapshotHoldsWhatItWasTakenOf(t *testing.T) {
	s := newSession(t)
	must(t, workstate.Slice[Plan](s).Append(Plan{Objective: "<&> \u2028 9007199254740993"}), workstate.Slice[Operation](s).Append(Operation{"a"}, Operation{"b"}))
	type big struct{ N int64 }
	must(t, workstate.Slice[big](s).Append(big{9007199254740993}))
	snap := s.Snapshot(workstate.SnapshotOptions{IncludeAll: true, Tags: map[string]string{"b": "2", "a": "1"}})
	raw, err := snap.ToJSON()
	must(t, err)
	for _, want := range []string{`{"N":9007199254740993}`, `"tags":{"a":"1","b":"2"}`, `<&> `} {
		if !strings.Contains(string(raw), want) {
			t.Errorf("%s is not in %s", want, raw)
		}
	}
	other := newSession(t)
	must(t, workstate.Slice[big](other).Register(workstate.PolicyState), other.Restore(snap, workstate.RestoreOptions{DropLogs: true}))
	if got := all[big](t, other); len(got) != 1 || got[0].N != 9007199254740993 {
		t.Errorf("a number over 2^53 came back as %v", got)
	}
	if objective(t, other) != objective(t, s) || len(all[Operation](t, other)) != 2 {
		t.Error("the session did not come back")
	}
}

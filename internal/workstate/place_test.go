package workstate_test

import (
	"testing"

	"github.com/tgad/tgad/internal/workstate"
	"github.com/tgad/tgad/schemas/tga"
)

const machineName = "*github.com/tgad/tgad/internal/workstate_test.machine"

// placedMachine is a machine that has a place.
type placedMachine struct {
	*machine
	place workstate.Place
}

func (m placedMachine) Place() workstate.Place { return m.place }

// TestRollbackNeedsNoTypes: a program that has none of a state's types, but the places of its
// outside resources, rolls back everything that the program with the tools would.
func TestRollbackNeedsNoTypes(t *testing.T) {
	w := inStore(t, workstate.Options{})
	w.do("good", `{"text":"a","tokens":2}`, tga.StatusSuccess)
	want := w.seen()
	id := w.do("good", `{"text":"b","tokens":3}`, tga.StatusSuccess)
	w.state.Close()
	if got := w.state.Places(); len(got) != 1 || got[machineName].Kind != "" {
		t.Fatalf("places %+v, want that of the machine, which nobody else can open", got)
	}
	r := &workstate.Registry{}
	place := workstate.Place{Kind: "machine", Path: "/dev/m"}
	must(t, r.AddAs(machineName, placedMachine{w.machine, place}))
	wantCode(t, r.AddAs(machineName, w.machine), tga.ValidationError)
	bare, err := workstate.Open(bg, w.db, w.id, workstate.NewSession(), r, workstate.Options{})
	must(t, err)
	plan, err := bare.RollbackTo(bg, id)
	must(t, err)
	if len(plan.Undone) != 1 || len(plan.Restored) == 0 {
		t.Errorf("plan %+v", plan)
	}
	undo := bare.List()[2].ID
	bare.Close()
	seen, err := workstate.Inspect(bg, w.db, w.id, 0, workstate.Options{})
	must(t, err)
	if got := seen.Places()[machineName]; got.Path != "/dev/m" {
		t.Errorf("the newest program's place is not kept: %+v", got)
	}
	w.reopen()
	want.Logged, want.Cache = 2, "" // LOG slices stay, CACHE slices are emptied
	w.want(want)
	_, err = w.state.RollbackTo(bg, undo)
	must(t, err)
	want = after("b", 2, 2, workstate.Usage{Calls: 2, Tokens: 5})
	want.Cache = ""
	w.want(want)
}

// TestForkDoesNotInheritPlaces: the content at the first state's places does not belong to the fork.
func TestForkDoesNotInheritPlaces(t *testing.T) {
	w := inStore(t, workstate.Options{})
	id := w.do("good", `{"text":"a"}`, tga.StatusSuccess)
	w.state.Close()
	r := &workstate.Registry{}
	must(t, r.AddAs(machineName, placedMachine{w.machine, workstate.Place{Kind: "machine", Path: "/dev/m"}}))
	s, err := workstate.Open(bg, w.db, w.id, workstate.NewSession(), r, workstate.Options{})
	must(t, err)
	defer s.Close()
	fork, err := s.Fork(bg, id, workstate.NewSession(), &workstate.Registry{}, workstate.Options{})
	must(t, err)
	seen, err := workstate.Inspect(bg, w.db, w.id, fork.Number(), workstate.Options{})
	must(t, err)
	if got, ok := seen.Places()[machineName]; !ok || got.Kind != "" {
		t.Errorf("places of the fork: %+v", seen.Places())
	}
	if got := s.Places()[machineName]; got.Path != "/dev/m" {
		t.Errorf("places of the first state: %+v", s.Places())
	}
	if w.machine.get() != "a" {
		t.Errorf("the fork restored the first state's machine: %q", w.machine.get())
	}
}

package workstate_test

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tgad/tgad/internal/workstate"
	"github.com/tgad/tgad/internal/workstate/memfs"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// cells are the model of a state: named values. A name's first letter says where it is
// kept: a key of the map, a file, or the slice of plans.
type cells map[string]string

var cellNames = []string{"k0", "k1", "fsrc/0", "p"}

// modelCall is the model of a call in progress.
type modelCall struct {
	parent        *modelCall
	base, view    cells
	read, written map[string]bool
}

func (m *modelCall) get(name string) string {
	m.read[name] = true
	return m.view[name]
}

func (m *modelCall) set(name, value string) {
	if m.written[name] = true; name[0] == 'f' {
		m.read[name] = true // memfs looks for the file that it replaces
	}
	m.view[name] = value
}

// fail ends the call without its writes. What the enclosing call does next follows from what the
// call has read.
func (m *modelCall) fail() {
	if m.parent != nil {
		maps.Copy(m.parent.read, m.read)
	}
}

// end commits the call into the enclosing call or state, and reports whether that was possible.
func (m *modelCall) end(into *cells) bool {
	for name := range union(m.read, m.written) {
		if (*into)[name] != m.base[name] {
			return false
		}
	}
	next := maps.Clone(*into)
	for name := range m.written {
		next[name] = m.view[name]
	}
	*into = next
	if m.parent != nil {
		maps.Copy(m.parent.read, m.read)
		maps.Copy(m.parent.written, m.written)
	}
	return true
}

func union(a, b map[string]bool) map[string]bool {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}

// getCell and setCell read and write a cell of the model in a state.
func getCell(tx *workstate.Tx, name string) (string, error) {
	switch name[0] {
	case 'k':
		kv, err := workstate.Use[*workstate.KV](tx)
		if err != nil {
			return "", err
		}
		v, _ := kv.Get(name)
		return string(v), nil
	case 'f':
		f, err := workstate.Use[*memfs.FS](tx)
		if err != nil {
			return "", err
		}
		b, err := fs.ReadFile(f, name[1:])
		if err != nil {
			return "", nil // there is none
		}
		return string(b), nil
	}
	p, _, err := workstate.Slice[Plan](tx.Session()).Latest()
	return p.Objective, err
}

func setCell(tx *workstate.Tx, name, value string) error {
	switch name[0] {
	case 'k':
		kv, err := workstate.Use[*workstate.KV](tx)
		if err == nil {
			kv.Set(name, []byte(value))
		}
		return err
	case 'f':
		f, err := workstate.Use[*memfs.FS](tx)
		if err != nil {
			return err
		}
		return f.WriteFile(name[1:], []byte(value), 0o644)
	}
	return workstate.Slice[Plan](tx.Session()).Replace(Plan{Objective: value})
}

// running is a call that a scheduler steps.
type running struct {
	model *modelCall
	do    chan func(ctx context.Context) error // the next step
	done  chan error                           // of a step
	end   chan runtime.Reply                   // what its tool answers

	answers chan runtime.Reply // what the caller is told
}

func (r *running) step(f func(context.Context) error) error {
	r.do <- f
	return <-r.done
}

// TestRandomProgramsAgreeWithTheModel runs programs of nested and overlapping calls, step by
// step in a random order, and compares them with a model in which a call is a copy of the
// state. The results of reads, the conflicts, and the state after each step must agree. So the
// committed calls are equivalent to the same calls in some serial order.
func TestRandomProgramsAgreeWithTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		session, registry, files := workstate.NewSession(), &workstate.Registry{}, memfs.New()
		rmust(t, files.MkdirAll("src", 0o755), workstate.Add(registry, files), workstate.Add(registry, workstate.NewKV()))
		state, err := workstate.New(bg, session, registry, workstate.Options{})
		rmust(t, err)

		now, logged, value := cells{}, 0, 0
		var calls []*running
		next := runtime.DispatcherFunc(func(ctx context.Context, c runtime.Call) (runtime.Reply, error) {
			r := ctx.Value(runningKey{}).(*running)
			for f := range r.do {
				r.done <- f(ctx)
			}
			return <-r.end, nil
		})
		sent := workstate.Transact(next, state)
		start := func(parent *running, ctx context.Context) {
			r := &running{do: make(chan func(context.Context) error), done: make(chan error), end: make(chan runtime.Reply, 1), answers: make(chan runtime.Reply, 1)}
			base, in := now, (*modelCall)(nil)
			if parent != nil {
				base, in = parent.model.view, parent.model
			}
			r.model = &modelCall{parent: in, base: maps.Clone(base), view: maps.Clone(base), read: map[string]bool{}, written: map[string]bool{}}
			go func() {
				reply, err := sent.Dispatch(context.WithValue(ctx, runningKey{}, r), runtime.Call{TraceID: newID(), ToolCallID: newID(), Server: "s", Tool: "t"})
				if err != nil {
					panic(err)
				}
				r.answers <- reply
			}()
			rmust(t, r.step(func(context.Context) error { return nil })) // it has begun
			calls = append(calls, r)
		}
		busy := func(r *running) bool { // a call inside it is in progress
			return slices.ContainsFunc(calls, func(o *running) bool { return o.model.parent == r.model })
		}
		for range rapid.IntRange(10, 80).Draw(t, "steps") {
			var free []*running
			for _, r := range calls {
				if !busy(r) {
					free = append(free, r)
				}
			}
			if len(free) == 0 || len(calls) < 4 && rapid.IntRange(0, 4).Draw(t, "new") == 0 {
				start(nil, bg)
				continue
			}
			r := rapid.SampledFrom(free).Draw(t, "call")
			name := rapid.SampledFrom(cellNames).Draw(t, "cell")
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0, 1:
				want := r.model.get(name)
				rmust(t, r.step(func(ctx context.Context) error {
					if got, err := getCell(workstate.FromContext(ctx), name); err != nil || got != want {
						return fmt.Errorf("%s reads as %q (%v), want %q", name, got, err, want)
					}
					return nil
				}))
			case 2, 3:
				value++
				text := fmt.Sprint(value % 3) // values come back
				r.model.set(name, text)
				rmust(t, r.step(func(ctx context.Context) error { return setCell(workstate.FromContext(ctx), name, text) }))
			case 4:
				var inside context.Context
				rmust(t, r.step(func(ctx context.Context) error { inside = ctx; return nil }))
				start(r, inside)
			case 5:
				succeed := rapid.IntRange(0, 3).Draw(t, "succeed") > 0
				status, want := tga.StatusFailure, ""
				if succeed {
					status = tga.StatusSuccess
				}
				into := &now
				if r.model.parent != nil {
					into = &r.model.parent.view
				}
				if succeed && !r.model.end(into) {
					want = string(tga.StateConflict)
				}
				if !succeed || want != "" {
					r.model.fail()
				}
				logged++
				r.end <- runtime.Reply{Status: status}
				close(r.do)
				reply := <-r.answers
				if reply.ErrorCode != want || (reply.Status == tga.StatusSuccess) != (succeed && want == "") {
					t.Fatalf("a call ended %s %s, want %q", reply.Status, reply.ErrorCode, want)
				}
				calls = slices.DeleteFunc(calls, func(o *running) bool { return o == r })
			}
			inMemory := cells{}
			rmust(t, state.View(bg, func(tx *workstate.Tx) error {
				for _, name := range cellNames {
					v, err := getCell(tx, name)
					rmust(t, err)
					if v != "" {
						inMemory[name] = v
					}
				}
				return nil
			}))
			if !maps.Equal(inMemory, nonEmpty(now)) {
				t.Fatalf("the state is %v, want %v", inMemory, now)
			}
		}
		for len(calls) > 0 { // innermost first
			r := calls[len(calls)-1]
			r.end <- runtime.Reply{Status: tga.StatusFailure}
			close(r.do)
			<-r.answers
			calls = calls[:len(calls)-1]
			logged++
		}
		rmust(t, state.View(bg, func(tx *workstate.Tx) error {
			if n := workstate.Slice[workstate.ToolInvoked](tx.Session()).Len(); n != logged {
				t.Fatalf("%d calls are logged, want %d", n, logged)
			}
			return nil
		}))
	})
}

type runningKey struct{}

func nonEmpty(c cells) cells {
	out := maps.Clone(c)
	maps.DeleteFunc(out, func(_, v string) bool { return v == "" })
	return out
}

func rmust(t *rapid.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

package turn_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/internal/crashtest/crashmem"
	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/internal/turn/message"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// lending is a world in which "helper" lends its state to "expert" and, if deep is set, "expert"
// to "sage". The calls of "late" count, and wait for an approval.
func lending(deep bool) func(*world) {
	return func(w *world) {
		w.supervisor = asks("late")
		w.tool("late", count)
		delegating(turn.Delegation{Type: turn.Supervisor, WithState: true})(w)
		if deep {
			w.agents = append(w.agents, &turn.Agent{Name: "sage", Model: turn.ModelSpec{Provider: "local", Model: "sage"}})
			further := w.defs[len(w.defs)-1]
			d := *further.Delegation
			d.Target = "sage"
			further.Name, further.Delegation = "further", &d
			w.defs = append(w.defs, further)
		}
		// The expert asks for "late" in its second turn. Its changes in the first turn are stored
		// apart from those.
		w.say = func(q turn.Question) (turn.Answer, error) {
			last := q.Messages[len(q.Messages)-1]
			if q.Model == "expert" && last.Role == message.Tool && last.Plain() == `{"n":2}` {
				q.Messages = []message.Message{message.TextMessage(message.User, "call late {\"x\":3}", message.FromUser, 0)}
				if deep {
					q.Messages[0].Content[0].Text = `call further {"message":"call late {\"x\":3}"}`
				}
			}
			return obedient(q)
		}
	}
}

const lends = "call count {\"x\":1}\ncall ask {\"message\":\"call count {\\\"x\\\":2}\"}\ncall count {\"x\":4}"

// TestApprovedCallWorksOnLentState: it sees the lender's changes and those of the agent's own
// earlier turn, however the approval arrives, in one process and after each restart.
func TestApprovedCallWorksOnLentState(t *testing.T) {
	for how, approve := range approvals {
		for _, deep := range []bool{false, true} {
			for _, restart := range []bool{false, true} {
				t.Run(fmt.Sprint(how, deep, restart), func(t *testing.T) {
					w := newWorld(t, lending(deep))
					res := w.run(lends)
					if res.Status != turn.Waiting || res.Waiting.Code != tga.EscalationRequired || res.Waiting.TraceID.IsZero() {
						t.Fatalf("%+v", res)
					}
					if restart {
						w.restart()
					}
					if err := approve(w, res.Waiting); err != nil {
						t.Fatal(err)
					}
					made, err := w.r.Runtime().Result(t.Context(), res.Waiting.TraceID)
					if err != nil || string(made.Value) != `{"n":3}` {
						t.Errorf("%+v, %v", made, err)
					}
					if got := w.read("n"); got["n"] != nil {
						t.Errorf("n is %s before the turn has ended", got["n"])
					}
					if restart {
						w.restart()
					}
					end, err := w.r.Resume(t.Context(), res.InteractionID)
					if err != nil || end.Status != turn.Completed || !strings.HasSuffix(end.Text, `{"n":4}`) {
						t.Errorf("%+v, %v", end, err)
					}
					if got := w.read("n", "log"); string(got["n"]) != "4" || string(got["log"]) != `[{"x":1},{"x":2},{"x":3},{"x":4}]` {
						t.Errorf("state %s", got)
					}
					if len(w.out.sends) != 4 || sum(w.out.sends) != 4 {
						t.Errorf("sent %v", w.out.sends)
					}
				})
			}
		}
	}
}

// TestApprovedCallOfTheRuntimeWorksOnItsTurnsState: the approval need not be given through the
// turn.
func TestApprovedCallOfTheRuntimeWorksOnItsTurnsState(t *testing.T) {
	for _, restart := range []bool{false, true} {
		w := newWorld(t, lending(false))
		res := w.run("call count {\"x\":1}\ncall late {\"x\":2}\ncall count {\"x\":3}")
		if restart {
			w.restart()
		}
		if err := approvals["runtime"](w, res.Waiting); err != nil {
			t.Fatal(err)
		}
		if restart {
			w.restart()
		}
		end, err := w.r.Resume(t.Context(), res.InteractionID)
		if err != nil || end.Text != `tools said {"n":1}, {"n":2}, {"n":3}` {
			t.Errorf("%+v, %v", end, err)
		}
		if got := w.read("n", "log"); string(got["n"]) != "3" || string(got["log"]) != `[{"x":1},{"x":2},{"x":3}]` {
			t.Errorf("state %s", got)
		}
	}
}

// TestCrashAroundAnApproval cuts the power anywhere between a person's approval and the end of
// the turn. The turn comes to the same end: each call has its effect once, on the state that it
// was to have.
func TestCrashAroundAnApproval(t *testing.T) {
	serial.Test(t)
	for how, approve := range approvals {
		t.Run(how, func(t *testing.T) {
			disk := crashmem.New()
			var images []image
			w := newWorld(t, lending(false), func(w *world) { w.disk = disk }, func(w *world) {
				w.wrap = func(s runtime.Store) runtime.Store { return &hooked{s, func(where string) { w.hook(where) }} }
			})
			res := w.run(lends)
			w.hook = func(where string) {
				images = append(images, image{fmt.Sprintf("%s %d", where, len(images)), res.InteractionID, disk.CrashClone(vfs.CrashCloneCfg{}), w.out.clone()})
			}
			if err := approve(w, res.Waiting); err != nil {
				t.Fatal(err)
			}
			if end, err := w.r.Resume(t.Context(), res.InteractionID); err != nil || end.Status != turn.Completed {
				t.Fatalf("%+v, %v", end, err)
			}
			w.hook = func(string) {}
			for i, c := range images {
				if testing.Short() && i%4 != 0 {
					continue // without the race detector all points are tried
				}
				w := newWorld(t, lending(false), func(w *world) { w.disk, w.out = c.disk, c.out })
				end, err := w.r.Resume(t.Context(), c.id)
				if err == nil && end.Status == turn.Waiting {
					if err = approve(w, end.Waiting); err == nil {
						end, err = w.r.Resume(t.Context(), c.id)
					}
				}
				if err != nil || end.Status != turn.Completed || !strings.HasSuffix(end.Text, `{"n":4}`) {
					t.Errorf("%s: %+v, %v", c.where, end, err)
				}
				if got := w.read("n", "log"); string(got["n"]) != "4" || string(got["log"]) != `[{"x":1},{"x":2},{"x":3},{"x":4}]` {
					t.Errorf("%s: state %s", c.where, got)
				}
				if len(w.out.effects) != 4 {
					t.Errorf("%s: effects %v", c.where, w.out.effects)
				}
				w.stop()
			}
			t.Logf("%d crash images", len(images))
		})
	}
}

// TestResumeBesideAnApproval: a turn is resumed after its call was approved, and before the
// call's effect is recorded. The call's changes of the state are not lost.
func TestResumeBesideAnApproval(t *testing.T) {
	w := newWorld(t, lending(false))
	res := w.run("call count {\"x\":1}\ncall late {\"x\":2}\ncall count {\"x\":3}")
	taken, recorded := make(chan struct{}), make(chan struct{})
	type end struct {
		res turn.Result
		err error
	}
	resumed := make(chan end, 1)
	armed, once := false, false
	w.wrap = func(s runtime.Store) runtime.Store {
		return &hooked{s, func(where string) {
			if armed && where == "append before" {
				armed = false
				go func() {
					res, err := w.r.Resume(context.Background(), res.InteractionID)
					resumed <- end{res, err}
				}()
				<-taken
			}
		}}
	}
	w.options = func(o *turn.Options) {
		o.Observe = func(p turn.Progress) {
			if p.State == "tool" && strings.HasPrefix(p.Detail, "late") && !once {
				once = true
				close(taken) // its state is rebuilt
				<-recorded
			}
		}
	}
	w.tool("late", func(ctx context.Context, args string) (string, error) {
		armed = true // the next append is this call's effect
		return count(ctx, args)
	})
	w.restart()
	if err := approvals["runtime"](w, res.Waiting); err != nil {
		t.Fatal(err)
	}
	close(recorded)
	got := <-resumed
	if got.err != nil || got.res.Text != `tools said {"n":1}, {"n":2}, {"n":3}` {
		t.Errorf("%+v, %v", got.res, got.err)
	}
	if got := w.read("n", "log"); string(got["n"]) != "3" || string(got["log"]) != `[{"x":1},{"x":2},{"x":3}]` {
		t.Errorf("state %s", got)
	}
}

// TestAnotherResumeOfALentTurnDoublesNothing: the power is cut anywhere in a delegation. While the
// lender goes on with its delegate, somebody else resumes the delegate and ends its first turn. The
// delegate's second turn works on the lent state too.
func TestAnotherResumeOfALentTurnDoublesNothing(t *testing.T) {
	serial.Test(t)
	const text = "call count {\"x\":1}\ncall ask {\"message\":\"call count {}\"}\ncall count {\"x\":3}"
	set := func(w *world) {
		delegating(turn.Delegation{Type: turn.Supervisor, WithState: true})(w)
		w.say = func(q turn.Question) (turn.Answer, error) {
			if last := q.Messages[len(q.Messages)-1]; q.Model == "expert" && last.Plain() == `{"n":2}` {
				q.Messages = []message.Message{message.TextMessage(message.User, "call count {\"y\":2}", message.FromUser, 0)}
			}
			return obedient(q)
		}
	}
	resumed := 0
	for _, c := range crashImages(t, text, set) {
		var s *beside
		w := newWorld(t, set, func(w *world) {
			w.disk, w.out = c.disk, c.out
			w.wrap = func(store runtime.Store) runtime.Store { s = &beside{Store: store}; return s }
		})
		open, err := turn.ListOpen(t.Context(), w.db)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range open {
			if o.Agent == "expert" {
				s.id, s.do = o.InteractionID, func() {
					if _, err := w.r.Resume(t.Context(), o.InteractionID); err == nil || tga.CodeOf(err) == tga.StateInvalidTransition {
						resumed++
					} else {
						t.Errorf("%s: %v", c.where, err)
					}
				}
			}
		}
		w.goOn(c.id, c.where, text)
		if got := w.read("n", "log"); string(got["n"]) != "4" || string(got["log"]) != `[{"x":1},{},{"y":2},{"x":3}]` {
			t.Errorf("%s: state %s", c.where, got)
		}
		w.stop()
	}
	if resumed == 0 {
		t.Error("nobody else resumed")
	}
}

// TestCallOfATurnThatHasGoneOnIsNotMade: a person approves the call after the turn has failed or
// went on without it, or when the turn works for a turn that is over. Nobody needs the call any
// more.
func TestCallOfATurnThatHasGoneOnIsNotMade(t *testing.T) {
	end := func(action turn.Strategy, of func(turn.Result) tga.ID) func(*world, turn.Result) error {
		return func(w *world, res turn.Result) error {
			if err := w.r.Decide(t.Context(), of(res), turn.Decision{Who: "ann", Action: action}); err != nil {
				return err
			}
			_, err := w.r.Resume(t.Context(), res.InteractionID)
			return err
		}
	}
	self := func(res turn.Result) tga.ID { return res.InteractionID }
	for name, c := range map[string]struct {
		text string
		end  func(*world, turn.Result) error
	}{
		"aborted": {"call late {}", end(turn.Abort, self)},
		"skipped": {"call late {}", end(turn.Skip, self)},
		"decided": {"call late {}", func(w *world, res turn.Result) error {
			return w.r.Decide(t.Context(), res.InteractionID, turn.Decision{Who: "ann", Action: turn.Skip})
		}},
		"no agent": {`call ask {"message":"call late {}"}`, end(turn.Abort, self)},
	} {
		w := newWorld(t, lending(false))
		res := w.run(c.text)
		if res.Status != turn.Waiting {
			t.Fatalf("%s: %+v", name, res)
		}
		wait := *res.Waiting
		if err := c.end(w, res); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if name == "no agent" {
			_, err := w.r.Settle(t.Context(), wait.InteractionID, turn.Settlement{Who: "ann", Action: turn.Approve, Note: note})
			if tga.CodeOf(err) != tga.StateInvalidTransition {
				t.Errorf("%s: %v", name, err)
			}
		}
		made, err := w.r.Runtime().Decide(t.Context(), wait.TraceID, runtime.Vote{Who: "bob", Approve: true, Rationale: note})
		if err != nil || made.State != tga.Failed || made.ErrorCode != tga.StateInvalidTransition || sum(w.out.sends) != 0 {
			t.Errorf("%s: %+v, %v, sent %v", name, made, err, w.out.sends)
		}
	}
}

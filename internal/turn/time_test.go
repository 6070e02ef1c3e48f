package turn_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

const aDay = int64(24 * time.Hour / time.Millisecond)

// working is a world with a clock of its own, and a tool that takes time by that clock: "work"
// with {"s":seconds}. The calls of "approve" wait for an approval.
func working(now *atomic.Int64, limit time.Duration) func(*world) {
	now.Store(time.Now().Add(-1000 * time.Hour).UnixMilli())
	return func(w *world) {
		ageing(now)(w)
		w.agents[0].Constraints.Timeout = limit
		w.supervisor = asks("approve")
		w.tool("approve", func(context.Context, string) (string, error) { return `"yes"`, nil })
		w.tool("work", func(_ context.Context, args string) (string, error) {
			var in struct{ S int64 }
			if err := json.Unmarshal([]byte(args), &in); err != nil {
				return "", err
			}
			now.Add(in.S * 1000)
			return "{}", nil
		})
	}
}

// approvals are the ways in which a person's approval reaches a call.
var approvals = map[string]func(w *world, wait *turn.Wait) error{
	"settle": func(w *world, wait *turn.Wait) error {
		_, err := w.r.Settle(context.Background(), wait.InteractionID, turn.Settlement{Who: "ann", Action: turn.Approve, Note: note})
		return err
	},
	"runtime": func(w *world, wait *turn.Wait) error {
		_, err := w.r.Runtime().Decide(context.Background(), wait.TraceID, runtime.Vote{Who: "ann", Approve: true, Rationale: note})
		return err
	},
}

// TestTimeStandsStillWhileATurnWaits: a turn has an hour. It works for 50 minutes and waits for
// two approvals, each of which takes a day. Only the time that it works counts: after ten more
// minutes a third approval comes too late.
func TestTimeStandsStillWhileATurnWaits(t *testing.T) {
	serial.Test(t)
	for how, approve := range approvals {
		for _, restart := range []bool{false, true} {
			for _, c := range []struct {
				more  int // minutes
				sends int // of the third call
			}{{9, 1}, {10, 0}} {
				t.Run(fmt.Sprint(how, restart, c.more), func(t *testing.T) {
					var now atomic.Int64
					w := newWorld(t, working(&now, time.Hour), func(w *world) {
						for i := range w.defs {
							w.defs[i].Timeout = 5 * time.Minute // the tool's own time is paused too
						}
					})
					res := w.run(fmt.Sprintf("call work {\"s\":1200}\ncall approve {\"n\":1}\ncall work {\"s\":1800}\ncall approve {\"n\":2}\ncall work {\"s\":%d}\ncall approve {\"n\":3}", 60*c.more))
					for n := range 3 {
						if res.Status != turn.Waiting || res.Waiting.CallID != fmt.Sprint("c", 2*n+1) {
							t.Fatalf("approval %d: %+v", n+1, res)
						}
						now.Add(aDay)
						if restart {
							w.restart()
						}
						err := approve(w, res.Waiting)
						if n == 2 && c.sends == 0 {
							break
						}
						if err != nil {
							t.Fatalf("approval %d: %v", n+1, err)
						}
						now.Add(aDay) // time in which nobody resumes it does not count either
						if restart {
							w.restart()
						}
						if res, err = w.r.Resume(t.Context(), res.InteractionID); err != nil {
							t.Fatal(err)
						}
					}
					if c.sends == 0 {
						var err error
						if res, err = w.r.Resume(t.Context(), res.InteractionID); err != nil || res.Status != turn.Unsuccessful || res.Failure.Code != tga.ToolTimeout {
							t.Errorf("%+v, %v", res, err)
						}
					} else if res.Status != turn.Completed {
						t.Errorf("%+v", res)
					}
					if got := sum(w.out.sends); got != 5+c.sends {
						t.Errorf("%d sends: %v", got, w.out.sends)
					}
				})
			}
		}
	}
}

// TestTimeOfATurnThatGoesOnRuns: the record that ends a wait ends it for good. A turn that goes
// on and is then left alone gets no more time for that.
func TestTimeOfATurnThatGoesOnRuns(t *testing.T) {
	for _, left := range []int64{0, aDay} {
		var now atomic.Int64
		w := newWorld(t, working(&now, time.Minute))
		ctx, cancel := context.WithCancel(t.Context())
		w.tool("leave", func(context.Context, string) (string, error) { cancel(); return "{}", nil })
		res := w.run("call approve {}\ncall leave {}\ncall echo {}")
		now.Add(aDay)
		if err := approvals["settle"](w, res.Waiting); err != nil {
			t.Fatal(err)
		}
		if _, err := w.r.Resume(ctx, res.InteractionID); err == nil {
			t.Fatal("it has ended")
		}
		w.restart()
		now.Add(left)
		end, err := w.r.Resume(t.Context(), res.InteractionID)
		if err != nil || (end.Status == turn.Completed) != (left == 0) || left > 0 && end.Failure.Code != tga.ToolTimeout {
			t.Errorf("left for %d: %+v, %v", left, end, err)
		}
	}
}

// TestTimeOfATurnThatGoesOnByItself: nobody has settled its call in doubt, but a new licence
// permits sending it again. The turn's time runs from then on.
func TestTimeOfATurnThatGoesOnByItself(t *testing.T) {
	for _, c := range []struct {
		more   int
		status turn.Status
	}{{29, turn.Completed}, {30, turn.Unsuccessful}} {
		var now atomic.Int64
		w := newWorld(t, working(&now, time.Hour), func(w *world) { w.licence = ledger.Park })
		w.fails["echo"] = func(n int) (runtime.Reply, error) {
			if n > 1 {
				return runtime.Reply{}, nil
			}
			return runtime.Reply{}, errors.New("connection reset")
		}
		res := w.run(fmt.Sprintf("call echo {}\ncall work {\"s\":1800}\ncall approve {\"n\":1}\ncall work {\"s\":%d}\ncall approve {\"n\":2}", 60*c.more))
		if res.Status != turn.Waiting || res.Waiting.Code != tga.EffectInDoubt {
			t.Fatalf("%+v", res)
		}
		now.Add(aDay)
		w.licence = ledger.DedupeArgs
		w.restart()
		for range 3 {
			var err error
			if res, err = w.r.Resume(t.Context(), res.InteractionID); err != nil {
				t.Fatal(err)
			}
			if res.Status == turn.Waiting {
				now.Add(aDay)
				if err := approvals["settle"](w, res.Waiting); err != nil && tga.CodeOf(err) != tga.ToolTimeout {
					t.Fatal(err)
				}
			}
		}
		if res.Status != c.status {
			t.Errorf("%d minutes more: %+v", c.more, res)
		}
	}
}

// TestApprovedCallHasTheTimeThatIsLeft: it has the second that is left, and is told so, not the
// thirty seconds that a call may take otherwise.
func TestApprovedCallHasTheTimeThatIsLeft(t *testing.T) {
	for how, approve := range approvals {
		var now atomic.Int64
		w := newWorld(t, working(&now, time.Hour), func(w *world) {
			w.licence, w.supervisor = ledger.Park, asks("hang")
			w.tool("hang", nil)
			w.slow = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		})
		res := w.run("call work {\"s\":3599}\ncall hang {}")
		began := time.Now()
		if err := approve(w, res.Waiting); tga.CodeOf(err) != tga.EffectInDoubt {
			t.Errorf("%s: %v", how, err)
		}
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("%s: it took %v", how, took)
		}
	}
}

// TestTimeOfADecision: the turn's time is also paused while a person decides about the turn
// itself.
func TestTimeOfADecision(t *testing.T) {
	var now atomic.Int64
	w := newWorld(t, working(&now, time.Minute), func(w *world) { w.agents[0].Constraints.MaxTurns = 1 })
	w.run("done x")
	res := w.run("done y")
	now.Add(aDay)
	if err := w.r.Decide(t.Context(), res.InteractionID, turn.Decision{Who: "ann", Action: turn.Retry}); err != nil {
		t.Fatal(err)
	}
	w.restart()
	now.Add(aDay)
	if end, err := w.r.Resume(t.Context(), res.InteractionID); err != nil || end.Status != turn.Completed || end.Text != "y" {
		t.Errorf("%+v, %v", end, err)
	}
}

// TestTimeStandsStillForWhoHandedOver: a delegate waits, and so does the agent that delegated to
// it. The time of both turns and of the delegation is paused.
func TestTimeStandsStillForWhoHandedOver(t *testing.T) {
	serial.Test(t)
	for how, approve := range approvals {
		for _, state := range []bool{false, true} {
			var now atomic.Int64
			w := newWorld(t, working(&now, time.Minute), delegating(turn.Delegation{Type: turn.Supervisor, Timeout: 40 * time.Second, WithState: state}), func(w *world) {
				w.agents[1].Constraints.Timeout = 30 * time.Second
			})
			res := w.run(`call ask {"message":"call work {\"s\":10}\ncall approve {\"n\":1}\ncall approve {\"n\":2}"}`)
			for n := range 2 {
				if res.Status != turn.Waiting || res.Waiting.InteractionID == res.InteractionID {
					t.Fatalf("wait %d: %+v", n+1, res)
				}
				now.Add(aDay)
				w.restart()
				if err := approve(w, res.Waiting); err != nil {
					t.Fatalf("%s: %v", how, err)
				}
				w.restart()
				now.Add(aDay)
				var err error
				if res, err = w.r.Resume(t.Context(), res.InteractionID); err != nil {
					t.Fatal(err)
				}
			}
			if res.Status != turn.Completed || res.Text != `tools said tools said {}, yes, yes` || sum(w.out.sends) != 3 {
				t.Errorf("%s: %+v", how, res)
			}
		}
	}
}

// initOf reads what INIT recorded of a turn.
func (w *world) initOf(id tga.ID) (init struct{ StartedAt, Deadline tga.Millis }) {
	w.t.Helper()
	records, err := w.r.Records(context.Background(), id)
	if err != nil {
		w.t.Fatal(err)
	}
	var b struct {
		StartedAt tga.Millis `json:"started_at"`
		Deadline  tga.Millis `json:"deadline"`
	}
	if err := json.Unmarshal(records[0].Body, &b); err != nil {
		w.t.Fatal(err)
	}
	return struct{ StartedAt, Deadline tga.Millis }{b.StartedAt, b.Deadline}
}

// TestTimeOfADelegationBoundsAllItsTurns: each turn of the delegate has its own time, and the
// delegation's time bounds all of them, even if the first turn's own time is shorter.
func TestTimeOfADelegationBoundsAllItsTurns(t *testing.T) {
	var now atomic.Int64
	w := newWorld(t, working(&now, 0), delegating(turn.Delegation{Type: turn.Supervisor, Timeout: 90 * time.Second}), func(w *world) {
		w.agents[1].Constraints.Timeout = time.Minute
	})
	var turns []tga.ID
	w.say = func(q turn.Question) (turn.Answer, error) {
		if q.Model == "expert" {
			_, id, _ := strings.Cut(q.Key, "turn/")
			id, _, _ = strings.Cut(id, "/")
			turns = append(turns, must(tga.ParseID(id)))
		}
		return obedient(q)
	}
	if res := w.run(`call ask {"message":"call work {\"s\":50}"}`); res.Status != turn.Completed || len(turns) != 2 {
		t.Fatalf("%+v, %d turns", res, len(turns))
	}
	one, two := w.initOf(turns[0]), w.initOf(turns[1])
	if one.Deadline != one.StartedAt+60_000 || two.StartedAt < one.StartedAt+50_000 || two.Deadline != one.StartedAt+90_000 {
		t.Errorf("the first has %d ms, and the second ends %d ms after the first began", one.Deadline-one.StartedAt, two.Deadline-one.StartedAt)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// soon is a context whose deadline passes when over is closed.
type soon struct {
	context.Context
	over chan struct{}
}

func (s soon) Deadline() (time.Time, bool) { return time.Now().Add(time.Hour), true }
func (s soon) Done() <-chan struct{}       { return s.over }
func (s soon) Err() error {
	select {
	case <-s.over:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// TestDeadlineOfTheCallerIsNotTheTurns: a caller that stops waiting does not end the turn, and is
// no failure of the model. An approval after the caller's deadline is still in time.
func TestDeadlineOfTheCallerIsNotTheTurns(t *testing.T) {
	for _, limit := range []time.Duration{0, time.Hour} {
		for _, where := range []string{"model", "tool"} {
			var w *world
			over := make(chan struct{})
			w = newWorld(t, func(w *world) {
				w.agents[0].Constraints.Timeout = limit
				w.tool("slow", nil)
				w.slow = func(ctx context.Context) error { close(over); <-ctx.Done(); return ctx.Err() }
				w.options = func(o *turn.Options) {
					o.Models["local"] = modelFunc(func(ctx context.Context, q turn.Question) (turn.Answer, error) {
						if where == "model" {
							where = ""
							close(over)
							<-ctx.Done()
							return turn.Answer{}, ctx.Err()
						}
						return obedient(q)
					})
				}
			})
			id := newID()
			if res, err := w.r.Run(soon{t.Context(), over}, turn.Request{Agent: "helper", InteractionID: id, SessionID: "s", Message: []byte("call slow {}")}); err == nil {
				t.Fatalf("%s: it has ended: %+v", where, res)
			}
			w.tool("slow", func(context.Context, string) (string, error) { return `"done"`, nil })
			res, err := w.r.Resume(t.Context(), id)
			if err != nil || res.Status != turn.Completed || res.Text != "tools said done" {
				t.Errorf("%q, limit %v: %+v, %v", where, limit, res, err)
			}
			if len(w.slept) != 0 {
				t.Errorf("limit %v: something is taken to have failed, and was tried again after %v", limit, w.slept)
			}
		}
	}
	w := newWorld(t, func(w *world) { w.supervisor = asks("echo") })
	now := time.Now()
	w.options = func(o *turn.Options) { o.Runtime.Clock = func() time.Time { return now } }
	w.restart()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	res, err := w.r.Run(ctx, turn.Request{Agent: "helper", SessionID: "s", Message: []byte("call echo {}")})
	if err != nil || res.Status != turn.Waiting {
		t.Fatalf("%+v, %v", res, err)
	}
	now = now.Add(2 * time.Hour)
	if err := approvals["settle"](w, res.Waiting); err != nil {
		t.Error(err)
	}
}

// TestTimeOfAnInvocation: the limit on execution covers all turns that a message leads to
// together. It ends in the third of three turns of 20 minutes.
func TestTimeOfAnInvocation(t *testing.T) {
	for seconds, status := range map[int]turn.Status{1199: turn.Completed, 1200: turn.Unsuccessful} {
		var now atomic.Int64
		w := newWorld(t, working(&now, 0), func(w *world) { w.agents[0].Constraints.MaxExecution = time.Hour })
		work := fmt.Sprintf(`call work {"s":%d}`, seconds)
		asked := 0
		w.say = func(q turn.Question) (turn.Answer, error) {
			if asked++; asked <= 3 {
				q.Messages = q.Messages[:1]
				q.Messages[0].Content[0].Text = work
			}
			return obedient(q)
		}
		res := w.run(work)
		if res.Status != status || status == turn.Completed && res.Turns != 4 {
			t.Errorf("%d s: %+v", seconds, res)
		}
		now.Add(3600_000)
		if res := w.run("done x"); res.Status != turn.Completed {
			t.Errorf("the next message has its own time: %+v", res)
		}
	}
}

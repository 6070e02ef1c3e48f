package turn_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/internal/turn/state"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// meeting lets the calls of one group wait for each other after their last operation and before
// they end.
type meeting struct {
	mu   sync.Mutex
	left int
	all  chan struct{}
}

func meet(n int) *meeting { return &meeting{left: n, all: make(chan struct{})} }

func (m *meeting) wait() {
	m.mu.Lock()
	if m.left--; m.left == 0 {
		close(m.all)
	}
	over := m.left < 0
	m.mu.Unlock()
	if !over {
		<-m.all
	}
}

// together is a world with a tool whose calls run at once. Each call does what its arguments say:
// {"read":[keys],"set":{key:value},"add":{key:value},"then":[keys]}; a key "n+1" is set to one
// more than n.
func together(m *meeting, level state.Isolation) func(*world) {
	return func(w *world) {
		w.agents[0].State.Isolation = level
		w.tool("do", func(ctx context.Context, args string) (string, error) {
			var in struct {
				Read []string
				Set  map[string]json.RawMessage
				Add  map[string]json.RawMessage
				Then []string // read after all that
			}
			if err := json.Unmarshal([]byte(args), &in); err != nil {
				return "", err
			}
			v, _ := turn.StateFrom(ctx)
			got, err := v.GetMany(in.Read)
			if err != nil {
				return "", err
			}
			for key, value := range in.Set {
				if key == "n+1" {
					n := 0
					if raw := got["n"]; raw != nil {
						if err := json.Unmarshal(raw, &n); err != nil {
							return "", err
						}
					}
					key, value = "n", json.RawMessage(fmt.Sprint(n+1))
				}
				if err := v.Set(key, value, 0); err != nil {
					return "", err
				}
			}
			for key, value := range in.Add {
				if err := v.Append(key, value); err != nil {
					return "", err
				}
			}
			_, err = v.GetMany(in.Then)
			m.wait()
			return "{}", err
		})
		w.defs[len(w.defs)-1].Parallel = true
	}
}

const raises = `call do {"read":["n"],"set":{"n+1":0},"add":{"log":1},"x":1}` + "\n" +
	`call do {"read":["n"],"set":{"n+1":0},"add":{"log":2},"x":2}` + "\n" +
	`call do {"read":["n"],"set":{"n+1":0},"add":{"log":3},"x":3}`

// TestCallsAtOnceLoseNoUpdateUnseen: if calls have read what another call has changed, the
// changes of one are kept, and the results of the others say that theirs are not, at every level.
// Each call was made once.
func TestCallsAtOnceLoseNoUpdateUnseen(t *testing.T) {
	const conflict, none = true, false
	for _, c := range []struct {
		name  string
		calls string
		level state.Isolation
		lost  bool // one of the two
	}{
		{"read and set", `{"read":["n"],"set":{"n+1":0}}|{"read":["n"],"set":{"n+1":0}}`, state.Serializable, conflict},
		{"read and set", `{"read":["n"],"set":{"n+1":0}}|{"read":["n"],"set":{"n+1":0}}`, state.RepeatableRead, conflict},
		{"read and set", `{"read":["n"],"set":{"n+1":0}}|{"read":["n"],"set":{"n+1":0}}`, state.ReadCommitted, conflict},
		{"read and set", `{"read":["n"],"set":{"n+1":0}}|{"read":["n"],"set":{"n+1":0}}`, state.ReadUncommitted, conflict},
		{"write skew", `{"read":["a","b"],"set":{"a":1}}|{"read":["a","b"],"set":{"b":1}}`, state.Serializable, conflict},
		{"write skew", `{"read":["a","b"],"set":{"a":1}}|{"read":["a","b"],"set":{"b":1}}`, state.RepeatableRead, none},
		{"blind", `{"set":{"a":1}}|{"set":{"a":2}}`, state.Serializable, none},
		{"appends", `{"add":{"a":1}}|{"add":{"a":2}}`, state.Serializable, none},
		{"reads what it appends to", `{"read":["a"],"add":{"a":1}}|{"read":["a"],"add":{"a":2}}`, state.RepeatableRead, none},
		{"reads what it appends to", `{"read":["a"],"add":{"a":1}}|{"read":["a"],"add":{"a":2}}`, state.Serializable, conflict},
		{"reads its own", `{"set":{"a":1},"then":["a"]}|{"set":{"a":2},"then":["a"]}`, state.Serializable, none},
		{"other keys", `{"read":["a"],"set":{"a":1}}|{"read":["b"],"set":{"b":1}}`, state.Serializable, none},
		{"one only reads", `{"read":["n"],"set":{"n+1":0}}|{"read":["n"]}`, state.Serializable, none},
	} {
		t.Run(c.name+" "+string(c.level), func(t *testing.T) {
			w := newWorld(t, together(meet(2), c.level))
			one, two, _ := strings.Cut(c.calls, "|")
			res := w.run("call do " + one + "\ncall do " + two)
			if res.Status != turn.Completed || len(res.Effects) != 2 {
				t.Fatalf("%+v", res)
			}
			lost := 0
			for _, e := range res.Effects {
				if e.Failure == nil {
					continue
				}
				lost++
				if e.Status != turn.ToolFailed || e.Failure.Code != tga.StateConflict || e.Output != "{}" || !strings.Contains(res.Text, "STATE_CONFLICT: the call was made and its effect stands") {
					t.Errorf("%+v: %q", e, res.Text)
				}
			}
			if lost > 1 || (lost == 1) != c.lost {
				t.Errorf("%d are refused, want one: %v", lost, c.lost)
			}
			for key, n := range w.out.sends {
				if n != 1 {
					t.Errorf("%s was called %d times", key, n)
				}
			}
		})
	}
}

// TestWhatComesAfterAGroupIsNoConflict: consecutive calls build on each other, and the model may
// ask again for a call whose changes were refused.
func TestWhatComesAfterAGroupIsNoConflict(t *testing.T) {
	w := newWorld(t, together(meet(3), ""))
	res := w.run(raises + "\ncall count {\"x\":9}")
	if res.Effects[3].Failure != nil {
		t.Fatalf("%+v", res.Effects[3])
	}
	if got := w.read("n"); string(got["n"]) != "2" {
		t.Errorf("n is %s after one of three, and one more", got["n"])
	}
	if res := w.run(`call do {"read":["n"],"set":{"n+1":0}}`); res.Effects[0].Failure != nil {
		t.Errorf("%+v", res.Effects[0])
	}
	if got := w.read("n"); string(got["n"]) != "3" {
		t.Errorf("n is %s", got["n"])
	}
}

// TestCrashAmongCallsAtOnce: the power fails anywhere in a turn whose calls run at once and
// change the same keys. At the end the state has the changes of the calls whose results say that
// they were kept, each once.
func TestCrashAmongCallsAtOnce(t *testing.T) {
	serial.Test(t)
	images := crashImages(t, raises, together(meet(3), ""))
	seen := map[int]int{}
	for _, c := range images {
		w := newWorld(t, together(meet(1), ""), func(w *world) { w.disk, w.out = c.disk, c.out })
		res := w.goOn(c.id, c.where, raises)
		if res.Status != turn.Completed || len(res.Effects) != 3 || len(w.out.effects) != 3 {
			t.Fatalf("%s: %+v", c.where, res)
		}
		kept := 0
		for _, e := range res.Effects {
			if e.Failure == nil {
				kept++
			} else if e.Failure.Code != tga.StateConflict {
				t.Errorf("%s: %+v", c.where, e)
			}
		}
		seen[kept]++
		got := w.read("n", "log")
		var log []int
		if err := json.Unmarshal(got["log"], &log); err != nil || string(got["n"]) != fmt.Sprint(kept) || len(log) != kept {
			t.Errorf("%s: %d kept, and the state is %s, %v", c.where, kept, got, err)
		}
		// Asked again, it says the same.
		again, err := w.r.Run(t.Context(), turn.Request{Agent: "helper", InteractionID: c.id, SessionID: "s", Message: []byte(raises)})
		if err != nil || again.Text != res.Text {
			t.Errorf("%s: first %q, then %q, %v", c.where, res.Text, again.Text, err)
		}
		w.stop()
	}
	t.Logf("%d crash images, calls kept: %v", len(images), seen)
	if seen[1] == 0 || len(seen) < 2 {
		t.Errorf("kept %v: no crash came after the conflict, or none before", seen)
	}
}

// TestAnotherReadsOnlyWhatIsDurable: a call sees the changes of a call beside it only once that
// call's effect is recorded. Otherwise, after a crash in between, a recorded call would build on
// changes that never existed.
func TestAnotherReadsOnlyWhatIsDurable(t *testing.T) {
	appending, reading, read := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var held atomic.Bool
	recorded := false // the first call's effect; written before the gate opens, read behind it
	w := newWorld(t, func(w *world) {
		w.tool("first", func(ctx context.Context, _ string) (string, error) {
			<-reading // the other call is reserved, so the next append is this call's effect
			held.Store(true)
			v, _ := turn.StateFrom(ctx)
			return "{}", v.Set("n", json.RawMessage("1"), 0)
		})
		w.tool("second", func(ctx context.Context, _ string) (string, error) {
			close(reading)
			<-appending
			v, _ := turn.StateFrom(ctx)
			raw, err := v.Get("n")
			if err == nil && (string(raw) != "1" || !recorded) {
				err = fmt.Errorf("it reads %q, recorded: %v", raw, recorded)
			}
			close(read)
			return "{}", err
		})
		for i := range w.defs {
			w.defs[i].Parallel = true
		}
		w.wrap = func(s runtime.Store) runtime.Store {
			return &hooked{s, func(where string) {
				if where == "append before" && held.CompareAndSwap(true, false) {
					close(appending)
					select {
					case <-read: // too early
					case <-time.After(50 * time.Millisecond): // it waits, as it must
					}
					recorded = true
				}
			}}
		}
	})
	res := w.run("call first {}\ncall second {}")
	for _, e := range res.Effects {
		if e.Failure != nil {
			t.Errorf("%+v", e)
		}
	}
}

// TestToolThatReadsOnAfterItsAnswer: a tool leaves a goroutine behind that goes on reading the
// state. The turn neither waits for it nor is stopped by it.
func TestToolThatReadsOnAfterItsAnswer(t *testing.T) {
	stop := make(chan struct{})
	var left sync.WaitGroup
	w := newWorld(t)
	w.tool("do", func(ctx context.Context, args string) (string, error) {
		v, _ := turn.StateFrom(ctx)
		reads := make(chan struct{})
		left.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := v.Get("n"); err != nil {
					return
				}
				if n == 100 {
					close(reads)
				}
			}
		})
		<-reads
		return "{}", v.Set("n", json.RawMessage("1"), 0)
	})
	w.defs[len(w.defs)-1].Parallel = true
	done := make(chan turn.Result, 1)
	go func() { done <- w.run("call do {\"x\":1}\ncall do {\"x\":2}\ncall do {\"x\":3}\ncall do {\"x\":4}") }()
	select {
	case res := <-done:
		if res.Status != turn.Completed {
			t.Errorf("%+v", res)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the turn stands still")
	}
	close(stop)
	left.Wait()
}

// TestRefusedChangeTakesTheOthersWithIt: if one change of a call cannot be made, none of its
// changes is kept, at every level.
func TestRefusedChangeTakesTheOthersWithIt(t *testing.T) {
	for _, level := range []state.Isolation{state.ReadUncommitted, state.ReadCommitted, state.RepeatableRead, state.Serializable} {
		w := newWorld(t, func(w *world) { w.agents[0].State.Isolation = level })
		w.tool("number", func(ctx context.Context, _ string) (string, error) {
			v, _ := turn.StateFrom(ctx)
			return "{}", v.Set("n", json.RawMessage("5"), 0)
		})
		w.tool("both", func(ctx context.Context, _ string) (string, error) {
			v, _ := turn.StateFrom(ctx)
			if err := v.Set("a", json.RawMessage("1"), 0); err != nil {
				return "", err
			}
			return "{}", v.Append("n", json.RawMessage("6")) // which is no list
		})
		res := w.run("call number {}\ncall both {}")
		if len(res.Effects) != 2 || res.Effects[0].Status != turn.ToolSucceeded || res.Effects[1].Status != turn.ToolFailed {
			t.Errorf("%s: %+v", level, res.Effects)
		}
		if got := w.read("n", "a"); string(got["n"]) != "5" || got["a"] != nil {
			t.Errorf("%s: state %s", level, got)
		}
	}
}

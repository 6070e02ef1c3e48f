package turn_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/internal/crashtest/crashmem"
	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/internal/turn/state"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

const value = "nobody-reads-this-anywhere"

// talk makes the helper and its delegate, the expert, each keep a value in their states.
const talk = "call count {\"s\":\"" + value + "\"}\ncall ask {\"message\":\"call count {\\\"s\\\":\\\"" + value + "\\\"}\"}"

func (w *world) exists(ctx context.Context, id tga.ID) (bool, error) {
	_, err := w.db.Load(ctx, id)
	if errors.Is(err, tga.NotFound) {
		return false, nil
	}
	return err == nil, err
}

func (w *world) say2(agent, session, text string) turn.Result {
	w.t.Helper()
	res, err := w.r.Run(context.Background(), turn.Request{Agent: agent, SessionID: session, Message: []byte(text)})
	if err != nil || res.Status != turn.Completed {
		w.t.Fatalf("%+v, %v", res, err)
	}
	return res
}

// whole returns everything that is to be erased with a session or, without an id, with an agent.
func (w *world) whole(s turn.Session) (what engine.Erasure) {
	w.t.Helper()
	var found turn.Whole
	var err error
	if s.ID != "" {
		found, err = turn.WholeSession(context.Background(), w.db, s, w.exists)
	} else {
		found, err = turn.WholeAgent(context.Background(), w.db, s.Agent, w.exists)
	}
	if err != nil || len(found.Unread) > 0 {
		w.t.Fatal(err, found.Unread)
	}
	what = engine.Erasure{Turns: found.Turns, Traces: found.Traces, Who: "operator", Reason: "r"}
	for _, s := range found.States {
		what.Agents = append(what.Agents, engine.AgentState{Agent: s.Agent, Session: s.ID})
	}
	return what
}

// TestErasedSession: all parts of a session are found, with the states of its delegates. After
// the erasure none of it is in the store, nor what the state had before. The session goes on with
// an empty state, no question or call is made again, and another session of the agent stays.
func TestErasedSession(t *testing.T) {
	for _, ring := range []engine.Keyring{nil, new(chaintest.Ring)} {
		for _, d := range []turn.Delegation{{Type: turn.Supervisor}, {Type: turn.Supervisor, NoSession: true}, {Type: turn.Supervisor, WithState: true}} {
			if ring == nil && d.NoSession {
				continue // finding states does not depend on how they are stored
			}
			t.Run(fmt.Sprintf("sealed %v, session %v, state %v", ring != nil, !d.NoSession, d.WithState), func(t *testing.T) {
				erasedSession(t, ring, d)
			})
		}
	}
}

func erasedSession(t *testing.T, ring engine.Keyring, d turn.Delegation) {
	w := newWorld(t, delegating(d), func(w *world) {
		w.ring = ring
		w.tool("forget", func(ctx context.Context, _ string) (string, error) {
			v, _ := turn.StateFrom(ctx)
			return "{}", v.Delete("log")
		})
	})
	first := w.say2("helper", "s", talk)
	w.say2("helper", "s", "call forget {}")
	w.say2("helper", "s", "done "+value) // a single turn
	w.say2("helper", "t", "call count {\"s\":\"this stays\"}")
	if found := filesWith(t, w.disk, "store", value); (found == nil) != (ring != nil) {
		t.Errorf("it stands in %v", found)
	}
	what := w.whole(turn.Session{Agent: "helper", ID: "s"})
	states := 2
	if d.WithState {
		states = 1 // the helper's state is lent
	}
	if len(what.Agents) != states || len(what.Turns) != 7 {
		t.Errorf("states %+v, %d turns", what.Agents, len(what.Turns))
	}
	done, err := w.db.Erase(t.Context(), what)
	if err != nil || done.States != states || done.Turns != len(what.Turns) || done.Traces != len(what.Traces) {
		t.Fatalf("erased %+v, %v", done, err)
	}
	asked, sent := sum(w.out.requests), sum(w.out.sends)
	for n := range 2 {
		if found := filesWith(t, w.disk, "store", value); found != nil {
			t.Errorf("it stands in %v", found)
		}
		if n == 0 {
			if got := w.read("n", "log"); len(got) > 0 {
				t.Errorf("the state is %s", got)
			}
			if done, err := w.db.Erase(t.Context(), w.whole(turn.Session{Agent: "helper", ID: "s"})); err != nil || done.Turns+done.States+done.Traces > 0 {
				t.Errorf("again: %+v, %v", done, err)
			}
		}
		_, err = w.r.Run(t.Context(), turn.Request{Agent: "helper", SessionID: "s", InteractionID: first.InvocationID, Message: []byte(talk)})
		if tga.CodeOf(err) != tga.IdempotencyKeyExpired || sum(w.out.requests) != asked || sum(w.out.sends) != sent {
			t.Errorf("begun again: %v, %d questions, %d sends", err, sum(w.out.requests)-asked, sum(w.out.sends)-sent)
		}
		if res := w.say2("helper", "s", "call count {}"); !strings.HasSuffix(res.Text, fmt.Sprintf(`{"n":%d}`, n+1)) || n == 0 && res.Text != `tools said {"n":1}` {
			t.Errorf("its session goes on with %q", res.Text)
		}
		if res := w.say2("helper", "t", "call count {}"); !strings.HasSuffix(res.Text, fmt.Sprintf(`{"n":%d}`, n+2)) {
			t.Errorf("another session goes on with %q", res.Text)
		}
		asked, sent = sum(w.out.requests), sum(w.out.sends)
		w.restart()
	}
}

// TestErasedAgent: all sessions of an agent are erased with what it keeps across them. The
// sessions of another agent stay, also of one to which it never delegated. A turn that has not
// ended prevents the erasure.
func TestErasedAgent(t *testing.T) {
	w := newWorld(t, delegating(turn.Delegation{Type: turn.Supervisor}), func(w *world) {
		w.ring = new(chaintest.Ring)
		w.agents[0].State.Mode = state.Persistent
		w.agents[0].Retry = turn.RetryPolicy{MaxRetries: -1}
		w.agents = append(w.agents, &turn.Agent{Name: "helper-2", Model: w.agents[0].Model})
		w.fails["down"] = nil
	})
	w.say2("helper", "s", talk)
	if res := w.say2("helper", "t", "call count {\"s\":\""+value+"\"}"); res.Text != `tools said {"n":2}` {
		t.Errorf("the agent goes on with %q", res.Text)
	}
	w.say2("helper-2", "s", "call count {}")
	w.say2("expert", "x", "call count {}")
	what := w.whole(turn.Session{Agent: "helper"})
	if want := []engine.AgentState{{Agent: "helper"}, {Agent: "expert", Session: "s"}}; !slices.Equal(what.Agents, want) {
		t.Errorf("states %+v, want %+v", what.Agents, want)
	}
	if done, err := w.db.Erase(t.Context(), what); err != nil || done.States != 2 || done.Turns != 6 {
		t.Fatalf("erased %+v, %v", done, err)
	}
	for _, c := range []struct {
		agent, session string
		n              int
	}{{"helper", "t", 1}, {"helper-2", "s", 2}, {"expert", "x", 2}, {"expert", "s", 1}} {
		if res := w.say2(c.agent, c.session, "call count {}"); !strings.HasSuffix(res.Text, fmt.Sprintf(`{"n":%d}`, c.n)) {
			t.Errorf("%s, %s goes on with %q, want %d", c.agent, c.session, res.Text, c.n)
		}
	}
	if found := filesWith(t, w.disk, "store", value); found != nil {
		t.Errorf("it stands in %v", found)
	}
	// The state of a session is found even if its turns were erased before, one by one.
	what = w.whole(turn.Session{Agent: "helper-2", ID: "s"})
	what.Agents = nil
	if _, err := w.db.Erase(t.Context(), what); err != nil {
		t.Fatal(err)
	}
	what = w.whole(turn.Session{Agent: "helper-2"})
	if done, err := w.db.Erase(t.Context(), what); err != nil || done.States != 1 {
		t.Errorf("erased %+v, %v", done, err)
	}
	if res := w.say2("helper-2", "s", "call count {}"); res.Text != `tools said {"n":1}` {
		t.Errorf("the session goes on with %q", res.Text)
	}
	if _, err := turn.WholeAgent(t.Context(), w.db, "nobody", w.exists); tga.CodeOf(err) != tga.NotFound {
		t.Errorf("of nobody: %v", err)
	}
	if _, err := turn.WholeSession(t.Context(), w.db, turn.Session{Agent: "helper", ID: "nowhere"}, w.exists); tga.CodeOf(err) != tga.NotFound {
		t.Errorf("of no session: %v", err)
	}
}

// TestCrashInTheErasureOfASession: the power fails at every write of the erasure of a whole
// sealed session. Then either nothing of it is erased, or the open finishes the erasure. The same
// erasure again finds everything done, nothing is readable, and the session goes on with an empty
// state. Nothing is asked or sent again.
func TestCrashInTheErasureOfASession(t *testing.T) {
	serial.Test(t)
	type crash struct {
		fs        *crashmem.FS
		destroyed map[chain.KeyID]bool
		op        string
	}
	var (
		mu      sync.Mutex
		crashes []crash
		on      bool
	)
	ring := new(chaintest.Ring)
	disk, rng := crashmem.New(), rand.New(rand.NewPCG(5, 8))
	recording := errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		mu.Lock()
		defer mu.Unlock()
		if on && op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			for _, kept := range []int{0, 100} {
				crashes = append(crashes, crash{disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: kept, RNG: rng}), maps.Clone(ring.Destroyed), fmt.Sprintf("write %d on %s, %d%% kept", len(crashes)/2, op.Path, kept)})
			}
		}
		return nil
	}))
	set := func(w *world) { w.ring = ring }
	life := newWorld(t, delegating(turn.Delegation{Type: turn.Supervisor}), set, func(w *world) { w.disk = recording })
	first := life.say2("helper", "s", talk)
	what := life.whole(turn.Session{Agent: "helper", ID: "s"})
	mu.Lock()
	on = true
	mu.Unlock()
	done, err := life.db.Erase(t.Context(), what)
	mu.Lock()
	on = false
	mu.Unlock()
	if err != nil || done.States != 2 {
		t.Fatalf("erased %+v, %v", done, err)
	}
	keys, whole, step := len(ring.Destroyed), 0, 11
	if serial.Whole() {
		step = 1
	}
	for i := 0; i < len(crashes); i += step {
		c := crashes[i]
		ring := &chaintest.Ring{Destroyed: maps.Clone(c.destroyed)}
		for range 100 { // the new keys differ from those that the store has used
			if _, err := ring.Key("", ""); err != nil {
				t.Fatal(err)
			}
		}
		w := newWorld(t, delegating(turn.Delegation{Type: turn.Supervisor}), func(w *world) { w.disk, w.out, w.ring = c.fs, life.out.clone(), ring })
		state := w.read("n")
		_, err := w.r.Records(t.Context(), first.InteractionID)
		switch {
		case err == nil && len(state) == 1 && len(c.destroyed) == 0:
			whole++
		case tga.CodeOf(err) != tga.IdempotencyKeyExpired || len(state) > 0 || len(ring.Destroyed) != keys:
			t.Errorf("%s: the state is %s, the turn %v, %d keys destroyed, want %d", c.op, state, err, len(ring.Destroyed), keys)
		}
		if _, err := w.db.Erase(t.Context(), w.whole(turn.Session{Agent: "helper", ID: "s"})); err != nil {
			t.Errorf("%s: again: %v", c.op, err)
		}
		if found := filesWith(t, w.disk, "store", value); found != nil || len(ring.Destroyed) != keys {
			t.Errorf("%s: it stands in %v, %d keys destroyed", c.op, found, len(ring.Destroyed))
		}
		if _, err := w.r.Run(t.Context(), turn.Request{Agent: "helper", SessionID: "s", InteractionID: first.InvocationID, Message: []byte(talk)}); tga.CodeOf(err) != tga.IdempotencyKeyExpired {
			t.Errorf("%s: begun again: %v", c.op, err)
		}
		if sum(w.out.sends) != sum(life.out.sends) || sum(w.out.requests) != sum(life.out.requests) {
			t.Errorf("%s: %d sends and %d questions, before %d and %d", c.op, sum(w.out.sends), sum(w.out.requests), sum(life.out.sends), sum(life.out.requests))
		}
		if res := w.say2("helper", "s", "call count {}"); res.Text != `tools said {"n":1}` {
			t.Errorf("%s: the session goes on with %q", c.op, res.Text)
		}
		w.stop()
		if t.Failed() {
			return
		}
	}
	t.Logf("%d writes, %d times whole", len(crashes)/2, whole)
	if whole == 0 || whole == (len(crashes)+step-1)/step {
		t.Error("the test crashes at the wrong moments")
	}
}

package turn_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/internal/turn/state"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// ageing is a world with a clock that can be advanced, and a tool that sets keys for a second:
// "keep" with {"n":how many}.
func ageing(now *atomic.Int64) func(*world) {
	return func(w *world) {
		w.options = func(o *turn.Options) {
			o.Runtime.Clock = func() time.Time { return time.UnixMilli(now.Load()) }
		}
		w.tool("keep", func(ctx context.Context, args string) (string, error) {
			var in struct{ N int }
			if err := json.Unmarshal([]byte(args), &in); err != nil {
				return "", err
			}
			v, _ := turn.StateFrom(ctx)
			for i := range in.N {
				if err := v.Set(fmt.Sprint("short", i), json.RawMessage("1"), time.Second); err != nil {
					return "", err
				}
			}
			return "{}", nil
		})
	}
}

// expired counts the expired values of the session that are still in the store, and drops them.
func (w *world) expired(now *atomic.Int64) int {
	w.t.Helper()
	space := state.Open(w.db, state.Options{Clock: func() time.Time { return time.UnixMilli(now.Load()) }})
	n, err := space.Collect(context.Background(), state.Scope{Mode: state.Session, ID: "helper\x00s"})
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

// TestTurnsCollectWhatHasExpired: the next turns of the session drop expired values, a bounded
// number of keys each, whatever else they do.
func TestTurnsCollectWhatHasExpired(t *testing.T) {
	for _, c := range []struct{ keys, left int }{{1, 0}, {64, 0}, {65, 1}} {
		var now atomic.Int64
		now.Store(time.Now().Add(-time.Hour).UnixMilli())
		w := newWorld(t, ageing(&now))
		w.run(fmt.Sprintf("call keep {\"n\":%d}", c.keys))
		now.Add(1000)
		w.run("done nothing to do with it")
		left := w.expired(&now)
		if c.left == 0 && left != 0 || c.left > 0 && (left == 0 || left == c.keys) {
			t.Errorf("%d keys: %d are left", c.keys, left)
		}
	}
}

// TestResumeCollectsNothing: Resume ends what was begun, and does no more.
func TestResumeCollectsNothing(t *testing.T) {
	var now atomic.Int64
	now.Store(time.Now().Add(-time.Hour).UnixMilli())
	w := newWorld(t, ageing(&now))
	w.run("call keep {\"n\":3}")
	now.Add(1000)
	ctx, cancel := context.WithCancel(t.Context())
	w.say = func(turn.Question) (turn.Answer, error) {
		cancel()
		return turn.Answer{}, ctx.Err()
	}
	id := newID()
	if _, err := w.r.Run(ctx, turn.Request{Agent: "helper", InteractionID: id, SessionID: "s", Message: []byte("call echo {}")}); err == nil {
		t.Fatal("it has ended")
	}
	w.say = obedient
	if _, err := turn.ListOpen(t.Context(), w.db); err != nil {
		t.Error(err)
	}
	if res, err := w.r.Resume(t.Context(), id); err != nil || res.Status != turn.Completed || res.Turns != 2 {
		t.Fatalf("%+v, %v", res, err)
	}
	if got := w.expired(&now); got != 3 {
		t.Errorf("%d of 3 are left", got)
	}
}

// TestCrashWhileTurnsCollect: the power fails anywhere in a turn that collects. The turn comes to
// the same end, unexpired values are unchanged, and expired ones can be collected.
func TestCrashWhileTurnsCollect(t *testing.T) {
	serial.Test(t)
	const text = "call count {\"x\":2}"
	var now atomic.Int64
	now.Store(time.Now().Add(-time.Hour).UnixMilli())
	set := func(w *world) {
		ageing(&now)(w)
		w.prepare = func(w *world) {
			w.run("call count {\"x\":1}\ncall keep {\"n\":3}")
			now.Add(1000)
		}
	}
	images := crashImages(t, text, set)
	left := map[int]int{}
	for _, c := range images {
		w := newWorld(t, set, func(w *world) { w.disk, w.out = c.disk, c.out })
		res := w.goOn(c.id, c.where, text)
		if res.Status != turn.Completed || res.Turns != 2 || len(res.Effects) != 1 || res.Effects[0].Output != `{"n":2}` {
			t.Errorf("%s: %+v", c.where, res)
		}
		if got := w.read("n", "log", "short0"); string(got["n"]) != "2" || string(got["log"]) != `[{"x":1},{"x":2}]` || got["short0"] != nil {
			t.Errorf("%s: state %s", c.where, got)
		}
		left[w.expired(&now)]++
		if got := w.expired(&now); got != 0 {
			t.Errorf("%s: collected, and %d are left", c.where, got)
		}
		w.stop()
	}
	t.Logf("%d crash images, expired values left after it went on: %v", len(images), left)
	// A cut before the collection leaves all or nothing of a batch.
	if left[0] == 0 || left[3] == 0 || left[0]+left[3] != len(images) {
		t.Errorf("left: %v", left)
	}
}

// TestCollectionNeverFailsATurn: if the store refuses a collection, the next turn collects.
func TestCollectionNeverFailsATurn(t *testing.T) {
	var now atomic.Int64
	now.Store(time.Now().Add(-time.Hour).UnixMilli())
	w := newWorld(t, ageing(&now))
	w.run("call keep {\"n\":3}")
	now.Add(1000)
	scope, err := w.db.Acquire(t.Context(), streamOfScope(t, w))
	if err != nil {
		t.Fatal(err)
	}
	if res := w.run("done"); res.Status != turn.Completed {
		t.Errorf("%+v", res)
	}
	w.db.Release(scope)
	if got := w.expired(&now); got != 3 {
		t.Errorf("%d of 3 are left: somebody else had the lease", got)
	}
}

// streamOfScope finds the stream of the session's state: the one whose head says so.
func streamOfScope(t *testing.T, w *world) tga.ID {
	t.Helper()
	for a, err := range w.db.Attachments(t.Context(), chain.AttachStream, nil) {
		if err != nil {
			t.Fatal(err)
		}
		var head struct{ Mode, ID string }
		if json.Unmarshal(a.Value, &head) == nil && head.Mode == string(state.Session) && head.ID == "helper\x00s" {
			return tga.ID(a.Key[:16])
		}
	}
	t.Fatal("there is no state")
	return tga.ID{}
}

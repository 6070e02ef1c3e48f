package turn_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/internal/turn/message"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// TestCallInDoubtParksTheTurn: a tool that may have run is not called again, whatever the table
// of strategies says, and the model is not told to try again either.
func TestCallInDoubtParksTheTurn(t *testing.T) {
	w := newWorld(t, func(w *world) { w.licence = ledger.Park })
	w.fails["echo"] = func(int) (runtime.Reply, error) { return runtime.Reply{}, errors.New("connection reset") }
	res := w.run(`call echo {"a":1}`)
	if res.Status != turn.Waiting || res.Waiting.Code != tga.EffectInDoubt || res.Waiting.TraceID.IsZero() {
		t.Fatalf("%+v", res)
	}
	again, err := w.r.Resume(t.Context(), res.InteractionID)
	if err != nil || again.Status != turn.Waiting {
		t.Fatalf("%+v, %v", again, err)
	}
	w.restart()
	if err := w.r.Decide(t.Context(), res.InteractionID, turn.Decision{Who: "ann", Action: turn.Retry}); !errors.Is(err, tga.StateInvalidTransition) {
		t.Errorf("a retry of a call in doubt: %v", err)
	}
	if _, err := w.r.Runtime().Resolve(t.Context(), res.Waiting.TraceID, runtime.Resolution{Who: "ann", Reply: runtime.Reply{Status: tga.StatusSuccess, Result: []byte(`{"a":1}`)}, Evidence: []byte(`{"seen":true}`)}); err != nil {
		t.Fatal(err)
	}
	end, err := w.r.Resume(t.Context(), res.InteractionID)
	if err != nil || end.Status != turn.Completed || end.Text != `tools said {"a":1}` {
		t.Fatalf("%+v, %v", end, err)
	}
	for key, n := range w.out.sends {
		if n != 1 {
			t.Errorf("%s was sent %d times", key, n)
		}
	}
}

// TestSkippedDoubtIsATimeout: if a person decides to go on without the answer, the result of the
// call says so, and the call stays in doubt.
func TestSkippedDoubtIsATimeout(t *testing.T) {
	w := newWorld(t, func(w *world) { w.licence = ledger.Park })
	w.fails["echo"] = func(int) (runtime.Reply, error) { return runtime.Reply{}, errors.New("connection reset") }
	res := w.run(`call echo {"a":1}`)
	if err := w.r.Decide(t.Context(), res.InteractionID, turn.Decision{Who: "ann", Action: turn.Skip}); err != nil {
		t.Fatal(err)
	}
	end, err := w.r.Resume(t.Context(), res.InteractionID)
	if err != nil || end.Status != turn.Completed || len(end.Effects) != 1 || end.Effects[0].Status != turn.ToolTimedOut {
		t.Fatalf("%+v, %v", end, err)
	}
}

// TestQuestionInDoubtUnderPark waits for a person, who may resolve the question's call, give it
// up, or go on without an answer.
func TestQuestionInDoubtUnderPark(t *testing.T) {
	for _, c := range []struct {
		name   string
		act    func(w *world, res turn.Result) error
		status turn.Status
		text   string
	}{
		{"skip", func(w *world, res turn.Result) error {
			return w.r.Decide(t.Context(), res.InteractionID, turn.Decision{Who: "ann", Action: turn.Skip})
		}, turn.Completed, ""},
		{"resolve", func(w *world, res turn.Result) error {
			answer, err := json.Marshal(turn.Answer{Model: "m1", Finish: turn.FinishStop, Said: message.TextMessage(message.Assistant, "by mail", message.FromModel, 1)})
			if err != nil {
				return err
			}
			_, err = w.r.Runtime().Resolve(t.Context(), res.Waiting.TraceID, runtime.Resolution{Who: "ann", Reply: runtime.Reply{Status: tga.StatusSuccess, Result: answer}, Evidence: []byte(`{}`)})
			return err
		}, turn.Completed, "by mail"},
		{"abort", func(w *world, res turn.Result) error {
			return w.r.Decide(t.Context(), res.InteractionID, turn.Decision{Who: "ann", Action: turn.Abort})
		}, turn.Unsuccessful, ""},
	} {
		set := func(w *world) {
			w.options = func(o *turn.Options) { o.ModelLicence = &ledger.Licence{Kind: ledger.Park} }
		}
		images := crashImages(t, "done x", set)
		i := slices.IndexFunc(images, func(i image) bool { return strings.HasPrefix(i.where, "model answered") })
		w := newWorld(t, set, func(w *world) { w.disk, w.out = images[i].disk, images[i].out })
		all, err := w.r.Recover(t.Context())
		if err != nil || len(all) != 1 || all[0].Status != turn.Waiting || all[0].Waiting.Code != tga.EffectInDoubt || sum(w.out.requests) != 1 {
			t.Fatalf("%s: %+v, %v", c.name, all, err)
		}
		if err := c.act(w, all[0]); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		res, err := w.r.Resume(t.Context(), all[0].InteractionID)
		if err != nil || res.Status != c.status || res.Text != c.text || sum(w.out.requests) != 1 {
			t.Errorf("%s: %+v, %v", c.name, res, err)
		}
	}
}

// TestDoubtIsSettledAfterItsTurn: a person has ended the turn, and its time is over too. Its call
// in doubt is nevertheless sent again once its licence, which was taken back for a while, permits
// it.
func TestDoubtIsSettledAfterItsTurn(t *testing.T) {
	var now atomic.Int64
	w := newWorld(t, working(&now, time.Minute), func(w *world) { w.licence = ledger.DedupeArgs })
	w.fails["slow"] = func(n int) (runtime.Reply, error) {
		if n > 1 {
			return runtime.Reply{}, nil
		}
		w.licence = ledger.Park
		return runtime.Reply{}, errors.New("connection reset")
	}
	w.tool("slow", func(ctx context.Context, _ string) (string, error) { return `"done"`, ctx.Err() })
	res := w.run("call slow {}")
	if err := w.r.Decide(t.Context(), res.InteractionID, turn.Decision{Who: "ann", Action: turn.Abort}); err != nil {
		t.Fatal(err)
	}
	if end, err := w.r.Resume(t.Context(), res.InteractionID); err != nil || end.Status != turn.Unsuccessful || end.Effects[0].Status != turn.ToolTimedOut {
		t.Fatalf("%+v, %v", end, err)
	}
	now.Add(aDay)
	w.licence = ledger.DedupeArgs
	w.restart()
	all, err := w.r.Runtime().RecoverAll(t.Context(), 1)
	if err != nil || len(all) != 1 || all[0].Err != nil || string(all[0].Result.Value) != `"done"` {
		t.Errorf("%+v, %v", all, err)
	}
}

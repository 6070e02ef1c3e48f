package workstate_test

import (
	"context"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/workstate"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// TestPersonWaitsForTheChangesOfACall: a person gives a call up, or says that it ran, while the call is changing the state.
// The word waits until the call has made its changes, and is refused then: the call has its own answer.
func TestPersonWaitsForTheChangesOfACall(t *testing.T) {
	w := inStore(t, workstate.Options{})
	inTool, goOn := make(chan struct{}), make(chan struct{})
	w.tools["slow"] = workstate.Func(func(ctx context.Context, e edit) (any, error) {
		close(inTool)
		<-goOn
		return map[string]bool{"ok": true}, apply(ctx, e)
	})
	trace := newID()
	done := make(chan runtime.Result, 1)
	go func() {
		res, err := w.rt.Call(bg, runtime.Request{TraceID: trace, Server: "s", Tool: "slow", Key: "k", Args: []byte(`{"text":"changed"}`)})
		if err != nil {
			t.Error(err)
		}
		done <- res
	}()
	<-inTool
	said := make(chan error, 1)
	go func() {
		_, err := w.rt.Abandon(bg, trace, "ann", "it takes too long")
		said <- err
	}()
	select {
	case err := <-said:
		close(goOn)
		<-done
		t.Fatalf("the word did not wait: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	close(goOn)
	if res := <-done; res.State != tga.Completed {
		t.Errorf("the call: %+v", res)
	}
	if err := <-said; tga.CodeOf(err) != tga.StateInvalidTransition {
		t.Errorf("the word: %v", err)
	}
	if got := w.machine.get(); got != "changed" {
		t.Errorf("the state is %q", got)
	}
}

package turn_test

import (
	"testing"
	"time"

	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// TestCallOfATurnIsNotMadeAfterIt: the operator lets the runtime make new attempts of a tool that
// was busy. A turn makes its own, and then its model is told. No timer is left by which another
// process on the store would make the call after that.
func TestCallOfATurnIsNotMadeAfterIt(t *testing.T) {
	busy := runtime.Reply{Status: tga.StatusFailure, Class: ledger.ClassRetryable, ErrorCode: "TOOL_ERROR", ErrorMessage: "busy"}
	policy := func(string, string) runtime.Policy {
		return runtime.Policy{Licence: ledger.Licence{Kind: ledger.Park}, LicenceSet: true, Retry: runtime.Backoff{First: time.Millisecond, Attempts: 5}}
	}
	w := newWorld(t, func(w *world) {
		w.fails["echo"] = func(int) (runtime.Reply, error) { return busy, nil }
		w.options = func(o *turn.Options) { o.Runtime.Policy = policy }
	})
	res := w.run("call echo {}")
	if res.Status != turn.Completed || len(res.Effects) != 1 || res.Effects[0].Status != turn.ToolFailed || sum(w.out.sends) != 4 {
		t.Errorf("sent %v, %+v", w.out.sends, res)
	}
	for a, err := range w.db.Attachments(t.Context(), chain.AttachTimer, nil) {
		t.Errorf("a timer is left: %s, %v", a.Value, err)
	}
}

package attempt

import (
	"context"
	"fmt"

	"github.com/tgad/tgad/internal/mcpfront/toolcall"
	"github.com/tgad/tgad/runtime"
)

// A call that is the repeat of one which may have run is run again where the person at the
// client says so. The model that makes the call has no part in it: the question goes to the
// client's person by the ways of an approval, and the daemon writes into the new call which
// one it repeats (meta again_of).

// runAgain asks the person at the client whether a call runs again, once an attempt. later says
// that the message is answered with the question, and the person's word comes with the next.
func (a *Attempt) runAgain(ctx context.Context, b runtime.Begun) (yes, later bool) {
	q := a.q
	if a.posed || q.Posed || a.Tasked.Load() {
		return false, false
	}
	a.posed = true
	question := q.Params.Form(q.By.Agreed(), a.againWords(b), `"run_again":{"type":"boolean","title":"Run it again","default":false}`, "run_again")
	if q.Params.InRequest() {
		if b.Standing == runtime.BeginInDoubt {
			a.inDoubt(b.Cause.Error()) // for whoever waits for the same call and cannot be asked
		}
		a.Out.Asks = toolcall.AskAgain(question, b.Result.TraceID)
		a.Out.Trace = b.Result.TraceID
		return false, true
	}
	if !q.By.Elicits() {
		return false, false
	}
	a.say("asking the person at the client whether the call runs again")
	ctx, cancel := a.lonely.Ends(ctx)
	defer cancel()
	result, err := q.By.Elicit(ctx, question, func() {})
	if err != nil {
		a.s.Log.Debug("the client did not ask its person", "trace", b.Result.TraceID, "error", err)
	}
	return err == nil && toolcall.SaysAgain(result), false
}

// againWords says to a person what is known of the identical call.
func (a *Attempt) againWords(b runtime.Begun) string {
	when := "just now"
	if b.Since != 0 { // else this very attempt made it
		when = "at " + b.Since.String()
	}
	known := fmt.Sprintf("may have run %s, and nobody knows whether it did", when)
	if b.Result.ResolvedVia == runtime.ViaModel {
		known = fmt.Sprintf("may have run before %s; a model has settled it, and nobody else knows whether it did", b.Since)
	}
	if b.Standing == runtime.BeginStale {
		known = fmt.Sprintf("ran at %s, and its answer never reached its client", b.Since)
	}
	return fmt.Sprintf("An identical call of the tool %s of %s %s (trace %s). Run it again? If it did run, this does it twice. Arguments: %s",
		a.q.Params.Tool, a.s.o.Server, known, b.Result.TraceID, toolcall.Shown(a.q.Args))
}

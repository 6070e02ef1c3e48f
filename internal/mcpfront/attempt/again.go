package attempt

import (
	"context"
	"fmt"

	"github.com/tgad/tgad/internal/mcpfront/toolcall"
	"github.com/tgad/tgad/runtime"
)

// A repeat of a call that may have run is run again only if the person at the client says so.
// The model that makes the call has no say in it: the question goes to the client's person in
// the same way as the question of an approval. The daemon writes into the new call which call
// it repeats (meta again_of).

// runAgain asks the person at the client whether a call runs again, once an attempt. later says
// that the message is answered with the question, and that the next message brings the answer.
func (a *Attempt) runAgain(ctx context.Context, b runtime.Begun) (yes, later bool) {
	q := a.q
	if a.posed || q.Posed || a.Tasked.Load() {
		return false, false
	}
	a.posed = true
	question := q.Params.Form(q.By.Agreed(), a.againWords(b), `"run_again":{"type":"boolean","title":"Run it again","default":false}`, "run_again")
	if q.Params.InRequest() {
		if b.Standing == runtime.BeginInDoubt {
			a.inDoubt(b.Cause.Error()) // the outcome for other calls that wait here and cannot be asked
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

// againWords tells a person what is known of the identical call.
func (a *Attempt) againWords(b runtime.Begun) string {
	when := "just now"
	if b.Since != 0 { // else this attempt made the send itself
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

package turn

import (
	"context"
	"encoding/json"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// Settlement is what a person says about the call that a parked turn waits for.
type Settlement struct {
	Who    string // required, 1..255 characters
	Action SettleAction
	// Result is the tool's answer as JSON, if Action is Ran and the answer is known.
	Result json.RawMessage
	// Note is required. It is the rationale of a vote (10..1000 characters), the evidence for a
	// resolution, or the reason for giving up (at most 200).
	Note string
}

// SettleAction is what a person decides about a call.
type SettleAction string

// The actions. The first two are for a call that waits for an approval, the others for one
// that is in doubt.
const (
	Approve   SettleAction = "approve"
	Deny      SettleAction = "deny"
	Ran       SettleAction = "ran"     // it was executed, and succeeded
	RanFailed SettleAction = "failed"  // it was executed or refused, and failed for good
	NotRun    SettleAction = "not-run" // it was not executed and never will be
	GiveUp    SettleAction = "abandon" // nobody can find out
)

// SettleActions lists all actions.
var SettleActions = []SettleAction{Approve, Deny, Ran, RanFailed, NotRun, GiveUp}

// Settle settles the governed call that a parked turn waits for; [Runner.Resume] then goes on
// with the turn. An approved call is made at once, on the turn's own state, and its answer is
// there when the turn is resumed.
//
// Settle returns the result of the call, or an error that says why the call has not ended:
// ESCALATION_REQUIRED if more votes are needed, STATE_INVALID_TRANSITION if the turn waits for no
// call or the call waits for something else, VALIDATION_ERROR for an invalid settlement.
func (r *Runner) Settle(ctx context.Context, interaction tga.ID, s Settlement) (runtime.Result, error) {
	if s.Note == "" {
		return runtime.Result{}, tga.Errorf(tga.ValidationError, "a note is required: the evidence or the reason").At("/note")
	}
	if s.Result != nil && (s.Action != Ran || !json.Valid(s.Result)) {
		return runtime.Result{}, tga.Errorf(tga.ValidationError, "a result is the JSON answer of a call that ran").At("/result")
	}
	t, err := r.open(ctx, interaction)
	if err != nil {
		return runtime.Result{}, err
	}
	defer r.release(t)
	w := t.waits
	if w == nil || w.TraceID == nil {
		return runtime.Result{}, tga.Errorf(tga.StateInvalidTransition, "turn %s waits for no call: if it was cut off, resume it first", interaction)
	}
	resolve := func(status string, class ledger.Class) (runtime.Result, error) {
		reply := runtime.Reply{Status: status, Class: class, Result: s.Result}
		if t.inferred != nil { // a tool's answer, not a model's
			if reply, err = r.redact(t.agent, reply); err != nil {
				return runtime.Result{}, err
			}
		}
		return r.rt.Resolve(ctx, *w.TraceID, runtime.Resolution{Who: s.Who, Evidence: []byte(s.Note), Reply: reply})
	}
	switch s.Action {
	case Approve, Deny:
		return r.vote(ctx, t, runtime.Vote{Who: s.Who, Approve: s.Action == Approve, Rationale: s.Note})
	case Ran:
		return resolve(tga.StatusSuccess, ledger.ClassNone)
	case RanFailed:
		return resolve(tga.StatusFailure, ledger.ClassPermanent)
	case NotRun:
		return resolve(tga.StatusFailure, ledger.ClassRetryable)
	case GiveUp:
		return r.rt.Abandon(ctx, *w.TraceID, s.Who, s.Note)
	}
	return runtime.Result{}, tga.Errorf(tga.ValidationError, "action %q: not one of %v", s.Action, SettleActions).At("/action")
}

// vote records a person's vote on the call of a parked turn. If the vote lets the call go on, the
// call is made as the turn would make it, in the time that the turn has left. Its changes of the
// state are stored with its effect, and repeated when the turn is resumed.
func (r *Runner) vote(ctx context.Context, t *turn, v runtime.Vote) (runtime.Result, error) {
	ctx, cancel := r.timed(ctx, t)
	defer cancel()
	phase, _ := t.phase()
	if v.Approve {
		if err := r.wanted(ctx, t, phase); err != nil {
			return runtime.Result{}, err
		}
	}
	if phase == Execute && v.Approve {
		for i, c := range t.inferred.Answer.Said.ToolCalls {
			if c.ID != t.waits.Subject {
				continue
			}
			done, err := r.atHand(ctx, t)
			if err != nil {
				return runtime.Result{}, err
			}
			defer done()
			w := &work{turn: t, tool: t.tool(c), index: i}
			defer w.end()
			ctx = context.WithValue(ctx, workKey{}, w)
		}
	}
	return r.rt.Decide(ctx, *t.waits.TraceID, v)
}

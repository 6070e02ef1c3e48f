package turn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/tgad/tgad/internal/turn/state"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// step runs one phase. It does not run INIT: a turn exists only once its INIT record is durable
// ([Runner.begin]).
//
// A phase stages its record when it ends. The record becomes durable before anything outside the
// turn depends on it. Until then it waits, and is committed together with what follows: INIT with
// NORM, RESOL with the question to the model, EXEC with PERSIST, EMIT with the INIT and NORM of
// the turn that follows.
func (r *Runner) step(ctx context.Context, t *turn, p Phase) error {
	if t.aborted != nil && p != Emit {
		return t.aborted
	}
	switch p {
	case Resolve:
		return r.resolve(ctx, t)
	case Infer:
		return r.infer(ctx, t)
	case Execute:
		return r.execute(ctx, t)
	case Persist:
		return r.persist(ctx, t)
	case Emit:
		return r.emit(ctx, t)
	}
	return tga.Errorf(tga.StateRecoveryFailed, "turn %s is in phase %q", t.id(), p)
}

// errParked says that the turn waits for a person. The journal says for what.
var errParked = errors.New("the turn waits for a person")

// run takes a turn from the phase it is in to its end. A fresh turn and one that goes on
// after a crash run this same loop; they differ in the records they enter with.
func (r *Runner) run(ctx context.Context, t *turn) error {
	if err := r.goOn(ctx, t); err != nil {
		return err
	}
	caller := ctx
	ctx, cancel := r.timed(ctx, t)
	defer cancel()
	for {
		phase, ok := t.phase()
		if !ok {
			return nil
		}
		if phase == Emit {
			ctx = caller // the turn's time bounds its work only: EMIT is recorded, and the next turn begun, after it too
		}
		r.tell(t, phase, "started", "")
		err := r.step(ctx, t, phase)
		var f *Failure
		switch {
		case err == nil:
			r.tell(t, phase, "done", "")
		case errors.As(err, &f):
			r.tell(t, phase, "failed", f.Error())
			if err := r.fail(ctx, t, phase, f); err != nil {
				return err
			}
		default:
			if errors.Is(err, errParked) {
				r.tell(t, phase, "waiting", t.waits.Failure.Error())
			}
			return err
		}
	}
}

// fail records that the turn failed. The turn's state is discarded when the turn is released. The
// effects of its tools stand, and the record lists them.
func (r *Runner) fail(ctx context.Context, t *turn, phase Phase, f *Failure) error {
	if phase == Emit { // EMIT cannot fail a turn
		return f
	}
	body := failedBody{Failure: *f}
	if t.executed != nil {
		body.Effects = t.executed.Executions
	} else {
		body.Effects = r.effects(ctx, t)
	}
	err := t.stage(r.now(), phase, Failed, body)
	if errors.Is(err, tga.LimitExceeded) { // leave the answers out: the traces of the calls have them
		for i := range body.Effects {
			body.Effects[i].Input, body.Effects[i].Output = "", ""
		}
		err = t.stage(r.now(), phase, Failed, body)
	}
	if err != nil {
		return err
	}
	return t.j.commit(ctx)
}

// settle decides about a failure for which no retry is left or possible. It returns the decision
// of the person who was asked, [errParked] while the turn waits for that decision, or the failure
// itself.
func (r *Runner) settle(ctx context.Context, t *turn, phase Phase, p plan, body parkedBody) (decidedBody, error) {
	f := body.Failure
	if p.strategy != Escalate {
		return decidedBody{}, &f
	}
	if d, ok := t.decision[subject(phase, body.Subject, f.Code)]; ok {
		if d.Action == Abort {
			return d, &f
		}
		return d, nil
	}
	if t.waits.same(body) && (t.paused != 0 || t.init.Deadline == 0) {
		return decidedBody{}, errParked // it waits for the same thing as before
	}
	body.Target = p.target
	if err := t.stage(r.now(), phase, Parked, body); err != nil {
		return decidedBody{}, err
	}
	if err := t.j.commit(ctx); err != nil {
		return decidedBody{}, err
	}
	return decidedBody{}, errParked
}

// same says that w and v are the same thing to wait for. Another attempt of a call, or another
// turn of an agent, is a different thing: a person who was told of the first one finds it
// settled.
func (w *parkedBody) same(v parkedBody) bool {
	return w != nil && w.Subject == v.Subject && w.Failure.Code == v.Failure.Code && sameID(w.TraceID, v.TraceID) && sameID(w.Child, v.Child)
}

func sameID(a, b *tga.ID) bool { return a == b || a != nil && b != nil && *a == *b }

// Decision is a person's answer to a parked turn.
type Decision struct {
	Who    string   // required
	Action Strategy // Retry, Fallback (with Value), Skip or Abort
	Value  json.RawMessage
	Note   string
}

// Decide answers what a parked turn waits for; [Runner.Resume] then goes on. Retry tries again
// once or, if a limit stopped the turn, lets it exceed the limit. Skip goes on without an answer.
// Fallback takes Value as the answer. Abort fails the turn.
//
// It does not decide about a governed call. Resolve or abandon a call that is in doubt, and vote
// on a call that needs approval, through [Runner.Runtime]; then resume the turn.
// STATE_INVALID_TRANSITION if the turn does not wait, and for Retry of a failed call or delegation
// whose effect stands.
func (r *Runner) Decide(ctx context.Context, interaction tga.ID, d Decision) error {
	switch d.Action {
	case Retry, Skip, Abort:
	case Fallback:
		if !json.Valid(d.Value) {
			return tga.Errorf(tga.ValidationError, "a fallback needs a JSON value").At("/value")
		}
	default:
		return tga.Errorf(tga.ValidationError, "action %q: not one of retry, fallback, skip, abort", d.Action).At("/action")
	}
	if d.Who == "" {
		return tga.Errorf(tga.ValidationError, "who is required: the person who decides").At("/who")
	}
	t, err := r.open(ctx, interaction)
	if err != nil {
		return err
	}
	defer r.release(t)
	w := t.waits
	if w == nil {
		return tga.Errorf(tga.StateInvalidTransition, "turn %s does not wait for anybody", interaction)
	}
	if w.TraceID != nil && d.Action != Abort && d.Action != Skip {
		return tga.Errorf(tga.StateInvalidTransition, "turn %s waits for its call in trace %s: resolve, abandon or vote on that", interaction, *w.TraceID)
	}
	if d.Action == Retry && w.Failure.Details[effectStands] == true {
		return tga.Errorf(tga.StateInvalidTransition, "turn %s waits because of call %s, whose effect stands or may stand, so it is not made again: skip it, give its answer, or abort", interaction, w.Subject)
	}
	if d.Action == Retry && w.expired(r.now()) {
		return tga.Errorf(tga.ApprovalExpired, "what turn %s waits for could be approved until %s", interaction, w.Expires)
	}
	phase, ok := t.phase()
	if !ok {
		return tga.Errorf(tga.StateInvalidTransition, "turn %s is over", interaction)
	}
	if err := t.stage(r.now(), phase, Decided, decidedBody(d)); err != nil {
		return err
	}
	return t.j.commit(ctx)
}

// load begins the turn's transaction, unless it has begun. A turn that works on lent state gets a
// handle of its caller's transaction.
func (r *Runner) load(ctx context.Context, t *turn) error {
	if t.tx != nil {
		return nil
	}
	if t.init.Lent {
		if t.caller == nil || t.caller.tx == nil {
			return tga.Errorf(tga.StateInvalidTransition, "turn %s works on the state of turn %s: resume that", t.id(), t.init.Parent.InteractionID)
		}
		t.tx = t.caller.tx.ForCall()
		return nil
	}
	t.loaded[0] = r.wall()
	tx, err := r.space.Begin(ctx, state.Scope{Mode: t.init.Mode, ID: t.init.ScopeID}, t.init.Isolation)
	if err != nil {
		return stateFailure(ctx, err)
	}
	t.tx, t.loaded[1] = tx, r.wall()
	return nil
}

// stateFailure makes a failure of an error of the state. An error that says nothing about the turn
// stays as it is: the store is not at hand, or the caller has left.
func stateFailure(ctx context.Context, err error) error {
	switch {
	case tga.CodeOf(err) == tga.StoreUnavailable:
		return err
	case ctx.Err() != nil:
		return ended(ctx, tga.ToolTimeout, err)
	}
	return &Failure{Code: tga.GenericStateError, Message: err.Error(), Err: err}
}

// persist commits the turn's changes of the state in one batch with the records of EXEC and
// PERSIST.
func (r *Runner) persist(ctx context.Context, t *turn) error {
	if err := r.load(ctx, t); err != nil {
		return err
	}
	t.saved[0] = r.wall()
	var body persistBody
	commit := func(ctx context.Context, values []chain.Attachment) error {
		t.saved[1] = r.wall()
		body.Timing = PhaseTiming{Persist, t.saved[0], t.saved[1]}
		var err error
		if body.Transaction, err = t.tx.Transaction(); err != nil {
			return err
		}
		before := t.j.mark()
		if err := t.stage(r.now(), Persist, Done, body); err != nil {
			return err
		}
		err = t.j.commit(ctx, values...)
		if err != nil { // its record must not go out with the failure's
			t.j.backTo(before)
			t.persisted = nil
		}
		return err
	}
	if t.init.Lent {
		// The caller commits these changes with its own. Until then they are as pending as the
		// caller's.
		body.Timing = r.timing(Persist, t.saved[0])
		if err := t.stage(r.now(), Persist, Done, body); err != nil {
			return err
		}
		return t.j.commit(ctx)
	}
	err := t.tx.Commit(context.WithoutCancel(ctx), commit)
	if err != nil && tga.CodeOf(err) != tga.StoreUnavailable && t.tx.Status() != state.Committed {
		// EXEC's record stays staged and is committed with the record of the failure: its effects
		// stand.
		return &Failure{Code: tga.GenericStateError, Message: "state of the turn: " + err.Error(), Err: err, Details: map[string]any{"cause": string(tga.CodeOf(err))}}
	}
	if err == nil {
		t.tx = nil
		r.tidy(ctx, t)
	}
	return err
}

// mostTidied bounds the keys that one turn checks for expired values.
const mostTidied = 64

// tidy drops some of the expired values of the turn's state, once all of the turn is durable. A
// turn that is resumed does not tidy: Resume ends what was begun, and no more. If tidy fails, the
// next collection finds the expired values again.
func (r *Runner) tidy(ctx context.Context, t *turn) {
	if !t.tidies {
		return
	}
	if _, err := r.space.CollectSome(ctx, state.Scope{Mode: t.init.Mode, ID: t.init.ScopeID}, mostTidied); err != nil {
		r.opts.Logger.WarnContext(ctx, "expired state is not collected", "error", err, "interaction_id", t.id().String())
	}
}

// tell tells the observer. Its panic is only logged: parallel calls tell it in goroutines of their own,
// where a panic would end the process.
func (r *Runner) tell(t *turn, phase Phase, what, detail string) {
	defer func() {
		if p := recover(); p != nil {
			r.opts.Logger.Error("the observer of turns panicked", "error", fmt.Sprint(p), "interaction_id", t.id().String(), "stack", string(debug.Stack()))
		}
	}()
	r.opts.Observe(Progress{
		InteractionID: t.id(), Agent: t.init.AgentName, TurnNumber: t.init.TurnNumber, Phase: phase, State: what, Detail: detail,
	})
}

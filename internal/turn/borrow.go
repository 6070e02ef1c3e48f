package turn

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/tgad/tgad/internal/turn/state"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// A call of a turn may be made while nobody runs the turn: a person approves the call while the
// turn waits, or calls are recovered before turns. The call works on the turn's state
// nevertheless. The dispatcher takes the turn's lease for as long as the call takes, and rebuilds
// the turn's state from what is stored, as for a turn that goes on after a crash. If another turn
// lent that state, its lease is taken too. The changes of the call are stored with its effect,
// and the turn repeats them when it goes on.

// atHand rebuilds the state of a turn that is held under its lease and that nobody runs. done
// releases the turns that lent the state.
func (r *Runner) atHand(ctx context.Context, t *turn) (done func(), err error) {
	done = func() {}
	var before []state.Op
	if t.init.Lent {
		lender, err := r.open(ctx, t.init.Parent.InteractionID)
		if err != nil {
			return done, err
		}
		more, err := r.atHand(ctx, lender)
		done = func() {
			r.release(lender)
			more()
		}
		if err == nil {
			t.caller = lender
			before, err = r.opsBefore(ctx, t)
		}
		if err != nil {
			done()
			return func() {}, err
		}
	}
	if err = r.load(ctx, t); err == nil {
		if err = t.tx.Apply(before); err == nil {
			err = r.redo(ctx, t)
		}
	}
	if err != nil {
		done()
		return func() {}, err
	}
	return done, nil
}

// wanted refuses to begin something for a turn that has gone on without it, that is over, or that
// has no time left: STATE_INVALID_TRANSITION, TOOL_TIMEOUT.
func (r *Runner) wanted(ctx context.Context, t *turn, in Phase) error {
	for {
		if phase, ok := t.phase(); !ok || phase != in {
			return tga.Errorf(tga.StateInvalidTransition, "turn %s has gone on without this call", t.id())
		}
		if r.overdue(t) {
			return tga.Errorf(tga.ToolTimeout, "the time of turn %s is over", t.id())
		}
		if t.init.Parent == nil {
			return nil
		}
		parent, err := r.fold(ctx, t.init.Parent.InteractionID)
		if err != nil {
			return err
		}
		t, in = parent, Execute
	}
}

// needs refuses a call if a person let the turn go on without it while it waited for votes:
// STATE_INVALID_TRANSITION.
func (t *turn) needs(index int) error {
	d, decided := t.decision[subject(Execute, t.inferred.Answer.Said.ToolCalls[index].ID, tga.EscalationRequired)]
	if decided && d.Action != Retry {
		return tga.Errorf(tga.StateInvalidTransition, "turn %s goes on without the call", t.id())
	}
	return nil
}

// callOf parses the key of a tool call into the turn and the index of the call.
func callOf(key string) (turn tga.ID, index int, ok bool) {
	rest, mine := strings.CutPrefix(key, "turn/")
	id, number, found := strings.Cut(rest, "/tool/")
	index, err := strconv.Atoi(number)
	turn, idErr := tga.ParseID(id)
	return turn, index, mine && found && err == nil && idErr == nil && index >= 0
}

// borrow takes up the turn of a call that the turn does not make itself; nil if the call belongs
// to no turn. If the turn has gone on, a call that was sent before is sent again without the
// turn's state: nobody would use the changes it makes.
func (d *dispatcher) borrow(ctx context.Context, call runtime.Call) (*work, error) {
	id, index, ok := callOf(call.Key)
	if !ok {
		return nil, nil // a caller's own key that resembles a turn's
	}
	t, err := d.r.fold(ctx, id)
	if errors.Is(err, tga.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if t.agent == nil {
		return nil, tga.Errorf(tga.NotFound, "turn %s belongs to agent %q, whose manifest is not loaded", id, t.init.AgentName)
	}
	w := &work{turn: t, index: index, giveBack: func() {}}
	if t.inferred == nil || index >= len(t.inferred.Answer.Said.ToolCalls) {
		return w, nil
	}
	if w.tool = t.tool(t.inferred.Answer.Said.ToolCalls[index]); w.tool == nil {
		return w, nil
	}
	refused := d.r.wanted(ctx, t, Execute)
	if refused == nil {
		refused = t.needs(index)
	}
	if refused != nil {
		if call.Attempt > 1 {
			return w, nil
		}
		return nil, refused
	}
	if t.waits == nil {
		ctx = untimed{ctx} // a running turn makes its calls itself: do not wait for its lease
	}
	if w.turn, err = d.r.open(ctx, id); err != nil {
		return nil, err
	}
	done, err := d.r.atHand(ctx, w.turn)
	if err != nil {
		d.r.release(w.turn)
		return nil, err
	}
	w.giveBack = func() {
		w.end()
		d.r.release(w.turn)
		done()
	}
	return w, nil
}

// learn applies the state changes of a served call that somebody else made after the turn was
// read.
func (j *journals) learn(ctx context.Context, t *turn, w *work) error {
	if w.view != nil || t.tx == nil || t.redone[w.index] {
		return nil
	}
	raw, err := j.store.Attachment(context.WithoutCancel(ctx), chain.AttachStream, keyspace.StreamKey(t.id(), keyspace.OpsItem|uint64(w.index)))
	if err != nil || raw == nil {
		return err
	}
	o, err := readOps(t.id(), raw)
	if err != nil {
		return err
	}
	t.merges.mu.Lock()
	defer t.merges.mu.Unlock()
	if len(o.Conflict) > 0 {
		t.merges.refuse(o.Index, o.Conflict)
		return nil
	}
	if err := t.tx.Apply(o.Ops); err != nil {
		return stateFailure(ctx, err)
	}
	var list []change
	for _, op := range o.Ops {
		if op.Op == state.Set || op.Op == state.Delete || op.Op == state.Append {
			list = append(list, change{op: op.Op, key: op.Key})
		}
	}
	t.merges.add(list)
	return nil
}

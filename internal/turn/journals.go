package turn

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/tgad/tgad/internal/turn/message"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// journals reads the turns of a store from their records.
type journals struct {
	store  runtime.Store
	agents map[string]*Agent // of this runner, by name
	recent recent
}

// fold reads a turn without its lease.
func (j *journals) fold(ctx context.Context, id tga.ID) (*turn, error) {
	t, err := foldFrom(ctx, j.store, id)
	if err != nil {
		return nil, err
	}
	t.j.store = j.store
	t.agent = j.agents[t.init.AgentName]
	return t, nil
}

func foldFrom(ctx context.Context, store runtime.AttachmentReader, id tga.ID) (*turn, error) {
	records, ops, err := readStream(ctx, store, id)
	if err != nil {
		return nil, err
	}
	if len(records) == 0 {
		return nil, tga.Errorf(tga.NotFound, "no turn %s", id)
	}
	return foldRecords(id, records, ops)
}

// foldRecords makes a turn of its records and of the stored state changes of its tools.
func foldRecords(id tga.ID, records []Record, ops []storedOps) (*turn, error) {
	t := &turn{j: &journal{id: id}, decision: map[string]decidedBody{}, retries: map[string]int{}, ops: ops, redone: map[int]bool{}, returned: map[tga.ID]bool{}}
	for _, rec := range records {
		if err := t.apply(rec); err != nil {
			return nil, err
		}
		t.j.number, t.j.head = rec.Number, rec.Digest
	}
	for _, o := range ops {
		t.redone[o.Index] = true
		if len(o.Conflict) > 0 {
			t.merges.refuse(o.Index, o.Conflict)
		}
	}
	return t, nil
}

// open reads a turn under its lease.
func (j *journals) open(ctx context.Context, id tga.ID) (*turn, error) {
	lease, err := j.store.Acquire(ctx, id)
	if err != nil {
		return nil, err
	}
	t, err := j.fold(ctx, id)
	if err == nil && t.agent == nil {
		err = tga.Errorf(tga.NotFound, "turn %s belongs to agent %q, whose manifest is not loaded", id, t.init.AgentName)
	}
	if err != nil {
		j.store.Release(lease)
		return nil, err
	}
	t.j.lease = lease
	return t, nil
}

func (j *journals) release(t *turn) {
	if t.tx != nil && !t.init.Lent {
		t.tx.Discard()
	}
	j.store.Release(t.j.lease)
}

// waiting sets what the turn waits for. If the turn waits for another agent, that is what the
// other agent waits for.
func (j *journals) waiting(ctx context.Context, t *turn, res *Result) error {
	for t.waits != nil {
		w := t.waits
		phase, _ := t.phase()
		res.Status = Waiting
		res.Waiting = &Wait{InteractionID: t.id(), Phase: phase, Code: w.Failure.Code, Reason: w.Failure.Message, Target: w.Target, CallID: strings.TrimPrefix(w.Subject, approvalPrefix)}
		if w.TraceID != nil {
			res.Waiting.TraceID = *w.TraceID
		}
		if w.Child == nil {
			return nil
		}
		child, err := j.fold(ctx, *w.Child)
		if err != nil {
			return err
		}
		t = child
	}
	return nil
}

// history returns the messages of the session before this turn, oldest first, as many as the
// agent's memory could use. Turns that failed or did not end are not part of the conversation, except
// for what [turn.messages] says. The turns of this turn's own invocation come last and without a gap: others may have ended between
// them, and a model that does not see what its tools answered asks for the calls again.
func (j *journals) history(ctx context.Context, t *turn) ([]message.Message, error) {
	own, mine, err := j.invocation(ctx, t)
	if err != nil {
		return nil, err
	}
	most := t.agent.Memory.Reach()
	var turns [][]message.Message
	var failed error
	n := len(own)
	for number, item := range backwards(ctx, j.store, sessionStream(t.init.AgentName, t.init.SessionID), &failed) {
		if n >= most {
			break
		}
		if number >= t.init.TurnNumber || !item.Ended || mine[item.InteractionID] {
			continue
		}
		m, err := j.said(ctx, item.InteractionID)
		if isErased(err) {
			continue // the conversation goes on without it
		}
		if err != nil {
			return nil, err
		}
		turns = append(turns, m)
		n += len(m)
	}
	var out []message.Message
	for _, m := range slices.Backward(turns) {
		out = append(out, m...)
	}
	return append(out, own...), failed
}

// invocation returns the messages of the turns before t in its chain, oldest first, and the ids of
// these turns. All of them count, however small the agent's memory is.
func (j *journals) invocation(ctx context.Context, t *turn) (own []message.Message, mine map[tga.ID]bool, err error) {
	mine = map[tga.ID]bool{}
	var turns [][]message.Message
	for id := t.init.Previous; id != nil; {
		m, err := j.said(ctx, *id)
		if err != nil {
			return nil, nil, err
		}
		turns, mine[*id] = append(turns, m), true
		raw, err := j.store.Attachment(ctx, chain.AttachStream, keyspace.StreamKey(*id, 1))
		if err != nil {
			return nil, nil, err
		}
		first, err := readRecord(*id, 1, tga.Digest{}, raw)
		if err != nil {
			return nil, nil, err
		}
		var init initBody
		if err := first.read(&init); err != nil {
			return nil, nil, err
		}
		id = init.Previous
	}
	for _, m := range slices.Backward(turns) {
		own = append(own, m...)
	}
	return own, mine, nil
}

// said returns the messages that an ended turn added to its conversation. Remembered messages are
// returned only if the turn was not erased since.
func (j *journals) said(ctx context.Context, id tga.ID) ([]message.Message, error) {
	if m, known := j.recent.get(id); known {
		first, err := j.store.Attachment(ctx, chain.AttachStream, keyspace.StreamKey(id, 1))
		if err == nil && len(first) == 0 {
			err = erasedTurn(id)
		}
		return m, err
	}
	t, err := j.fold(ctx, id)
	if err != nil {
		return nil, err
	}
	m := t.messages()
	j.recent.put(id, m)
	return m, nil
}

// callerOf finds the agent and the tool of a turn's call by its key; nil if the key is not that
// of a turn's tool call.
func (j *journals) callerOf(ctx context.Context, key string) (*Agent, *Tool, error) {
	id, index, ok := callOf(key)
	if !ok {
		return nil, nil, nil
	}
	if w, ok := ctx.Value(workKey{}).(*work); ok && w.tool != nil && w.turn.id() == id && w.index == index {
		return w.turn.agent, w.tool, nil
	}
	t, err := j.fold(ctx, id)
	if errors.Is(err, tga.NotFound) {
		return nil, nil, nil // a caller's own key that resembles a turn's
	}
	if err != nil {
		return nil, nil, err
	}
	if t.agent == nil {
		return nil, nil, tga.Errorf(tga.NotFound, "turn %s belongs to agent %q, whose manifest is not loaded: nobody knows what it may do", id, t.init.AgentName)
	}
	if t.inferred == nil || index >= len(t.inferred.Answer.Said.ToolCalls) {
		return nil, nil, nil
	}
	tool := t.tool(t.inferred.Answer.Said.ToolCalls[index])
	if tool == nil {
		return nil, nil, nil
	}
	return t.agent, tool, nil
}

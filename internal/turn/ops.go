package turn

import (
	"context"
	"errors"

	"github.com/tgad/tgad/internal/turn/state"
	"github.com/tgad/tgad/schemas/tga"
)

// opsBefore returns the state operations of the turns before t in its chain.
func (j *journals) opsBefore(ctx context.Context, t *turn) (ops []state.Op, err error) {
	for id := t.init.InvocationID; id != t.id(); {
		p, err := j.fold(ctx, id)
		if err != nil {
			return nil, err
		}
		if p.ended == nil || p.ended.Next == nil {
			return nil, tga.Errorf(tga.StateRecoveryFailed, "turn %s ends the chain that turn %s is of", id, t.id())
		}
		if ops, err = j.opsOf(ctx, p, ops); err != nil {
			return nil, err
		}
		id = *p.ended.Next
	}
	return ops, nil
}

// opsOf appends to the list the state operations of a turn's tools, and of the delegates that
// worked on its state and succeeded.
func (j *journals) opsOf(ctx context.Context, t *turn, to []state.Op) ([]state.Op, error) {
	for _, o := range t.ops {
		to = append(to, o.Ops...)
	}
	if t.inferred == nil {
		return to, nil
	}
	for i, c := range t.inferred.Answer.Said.ToolCalls {
		tool := t.tool(c)
		if tool == nil || tool.Delegation == nil || !tool.Delegation.WithState {
			continue
		}
		var last []state.Op
		for n := 1; ; n++ {
			id := derived(t.id(), "delegation", i, n)
			ops, good, err := j.opsOfChain(ctx, id)
			if errors.Is(err, tga.NotFound) {
				break
			}
			if err != nil {
				return nil, err
			}
			if last = nil; good { // a try that failed was rolled back
				last, t.returned[id] = ops, true
			}
		}
		to = append(to, last...)
	}
	return to, nil
}

// opsOfChain collects the operations of a chain of turns. good is false if the chain failed or
// has not ended.
func (j *journals) opsOfChain(ctx context.Context, id tga.ID) (ops []state.Op, good bool, err error) {
	for {
		t, err := j.fold(ctx, id)
		if err != nil {
			return nil, false, err
		}
		if t.ended == nil || t.failed != nil {
			return nil, false, nil
		}
		if ops, err = j.opsOf(ctx, t, ops); err != nil {
			return nil, false, err
		}
		if t.ended.Next == nil {
			return ops, true, nil
		}
		id = *t.ended.Next
	}
}

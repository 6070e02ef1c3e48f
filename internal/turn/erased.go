package turn

import (
	"context"
	"errors"
	"slices"

	"github.com/tgad/tgad/internal/turn/state"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// erasedTurn returns the error for a turn whose journal was erased. Such a turn is neither read
// nor begun again.
func erasedTurn(id tga.ID) error {
	return tga.Errorf(tga.IdempotencyKeyExpired, "turn %s was erased", id)
}

func isErased(err error) bool { return errors.Is(err, tga.IdempotencyKeyExpired) }

// Parts returns the parts of the invocation that the turn id belongs to: its turns, the turns of
// its delegates, and the governed calls of all of them that exist. NOT_FOUND: there is no such
// turn.
func Parts(ctx context.Context, store runtime.AttachmentReader, id tga.ID, exists Exists) (turns, traces []tga.ID, err error) {
	p := parts{store: store, exists: exists}
	err = p.invocation(ctx, id)
	return p.turns, p.traces, err
}

// Exists says whether a store has a trace.
type Exists func(context.Context, tga.ID) (bool, error)

// invocation adds the parts of the invocation that a turn belongs to.
func (p *parts) invocation(ctx context.Context, id tga.ID) error {
	named, err := foldFrom(ctx, p.store, id)
	if isErased(err) {
		p.turns = append(p.turns, id)
		return nil
	}
	if err != nil {
		return err
	}
	for next := []tga.ID{named.init.InvocationID}; len(next) > 0; next = next[1:] {
		t, err := foldFrom(ctx, p.store, next[0])
		if errors.Is(err, tga.NotFound) || isErased(err) {
			continue
		}
		if err == nil {
			p.turns = append(p.turns, t.id())
			p.states(t)
			err = p.of(ctx, t)
		}
		if err != nil {
			return err
		}
		next = append(next, p.children...)
		p.children = nil
	}
	return nil
}

type parts struct {
	store    runtime.AttachmentReader
	exists   Exists
	turns    []tga.ID
	traces   []tga.ID
	sessions []Session // sessions on whose states the turns worked
	children []tga.ID  // turns that are still to be visited
}

// states adds the session whose state a turn worked on. State that an agent keeps across its
// sessions belongs to no session.
func (p *parts) states(t *turn) {
	if t.init.Mode == state.Session && !t.init.Lent {
		p.add(Session{t.init.AgentName, t.init.SessionID})
	}
}

func (p *parts) add(s Session) {
	if !slices.Contains(p.sessions, s) {
		p.sessions = append(p.sessions, s)
	}
}

// of adds the questions, tool calls and delegations of a turn.
func (p *parts) of(ctx context.Context, t *turn) error {
	for _, a := range t.asked {
		if _, err := p.trace(ctx, derived(t.id(), a.What, a.Attempt)); err != nil {
			return err
		}
	}
	if t.ended != nil && t.ended.Next != nil {
		p.children = append(p.children, *t.ended.Next)
	}
	if t.inferred == nil {
		return nil
	}
	for i := range t.inferred.Answer.Said.ToolCalls {
		for n, there := 1, true; there; n++ {
			var err error
			if there, err = p.trace(ctx, derived(t.id(), "tool", i, n)); err != nil {
				return err
			}
		}
		for n := 1; ; n++ {
			child := derived(t.id(), "delegation", i, n)
			_, err := foldFrom(ctx, p.store, child)
			if errors.Is(err, tga.NotFound) {
				break
			}
			if err != nil && !isErased(err) {
				return err
			}
			p.children = append(p.children, child)
		}
	}
	return nil
}

// trace adds a call if it exists.
func (p *parts) trace(ctx context.Context, id tga.ID) (bool, error) {
	there, err := p.exists(ctx, id)
	if there {
		p.traces = append(p.traces, id)
	}
	return there, err
}

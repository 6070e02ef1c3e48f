package turn

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/tgad/tgad/internal/turn/state"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Session names a conversation of an agent. Without an ID it stands for the state that the agent
// keeps across its sessions.
type Session struct{ Agent, ID string }

// Whole is what is erased together: turns, calls, and states.
type Whole struct {
	Turns, Traces []tga.ID
	States        []Session
	// Unread are turns whose journals cannot be read, with the reasons. Nobody knows which agent
	// or session they belong to.
	Unread []Listed
}

// WholeSession returns all parts of a session: its turns and the turns of its delegates, their
// calls, and the states of the sessions on which all of these worked. NOT_FOUND: there is no such
// session.
func WholeSession(ctx context.Context, store runtime.AttachmentReader, s Session, exists Exists) (Whole, error) {
	p := parts{store: store, exists: exists}
	p.add(s)
	stream := sessionStream(s.Agent, s.ID)
	last, err := newest(ctx, store, stream)
	if err != nil {
		return Whole{}, err
	}
	for n := uint32(1); n <= last; n++ {
		it, err := readItem(ctx, store, stream, n)
		if err == nil {
			err = p.missing(ctx, it.InteractionID)
		}
		if err != nil {
			return Whole{}, err
		}
	}
	w, err := p.whole(ctx)
	if err == nil && len(w.Turns)+len(w.States) == 0 {
		err = tga.Errorf(tga.NotFound, "agent %s has no session %q", s.Agent, s.ID)
	}
	return w, err
}

// WholeAgent returns all that a store has of an agent: each of its sessions as [WholeSession]
// returns it, and the state that it keeps across them. It reads every stream of the store.
// NOT_FOUND: the store has nothing of the agent.
func WholeAgent(ctx context.Context, store runtime.AttachmentReader, agent string, exists Exists) (Whole, error) {
	p := parts{store: store, exists: exists}
	p.add(Session{Agent: agent})
	scopes, err := state.Stored(ctx, store)
	if err != nil {
		return Whole{}, err
	}
	for _, s := range scopes {
		if of, id, ok := strings.Cut(s.ID, "\x00"); ok && of == agent && s.Mode == state.Session {
			p.add(Session{of, id})
		}
	}
	all, err := List(ctx, store)
	if err != nil {
		return Whole{}, err
	}
	var unread []Listed
	for _, t := range all {
		switch {
		case t.Err != nil:
			unread = append(unread, t)
		case t.Agent == agent:
			err = p.missing(ctx, t.InteractionID)
		}
		if err != nil {
			return Whole{}, err
		}
	}
	w, err := p.whole(ctx)
	if w.Unread = unread; err == nil && len(w.Turns)+len(w.States)+len(unread) == 0 {
		err = tga.Errorf(tga.NotFound, "there is nothing of an agent %s", agent)
	}
	return w, err
}

// missing adds the invocation of a turn unless it was added already.
func (p *parts) missing(ctx context.Context, id tga.ID) error {
	if slices.Contains(p.turns, id) {
		return nil
	}
	err := p.invocation(ctx, id)
	if errors.Is(err, tga.NotFound) {
		return nil // its session names the turn, but the turn never began
	}
	return err
}

// whole returns everything that was added. Of the states, it returns only those to which
// something was ever written.
func (p *parts) whole(ctx context.Context) (Whole, error) {
	w := Whole{Turns: p.turns, Traces: p.traces}
	for _, s := range p.sessions {
		head, err := p.store.Attachment(ctx, chain.AttachStream, keyspace.StreamKey(keyspace.AgentStream(s.Agent, s.ID), 0))
		if err != nil {
			return w, err
		}
		if head != nil {
			w.States = append(w.States, s)
		}
	}
	return w, nil
}

package turn

import (
	"context"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// OpenTurn is a turn that has not ended.
type OpenTurn struct {
	InteractionID tga.ID     `json:"interaction_id"`
	InvocationID  tga.ID     `json:"invocation_id"`
	Agent         string     `json:"agent"`
	SessionID     string     `json:"session_id"`
	TurnNumber    uint32     `json:"turn_number"`
	Phase         Phase      `json:"phase"`
	Since         tga.Millis `json:"since"`
	// Waiting is the code of what the turn waits for a person to decide. If it is "", the turn
	// does not wait, and it goes on when it is resumed. If the turn's journal cannot be read,
	// Waiting says why and only the turn's id is known. TraceID is the call at issue.
	Waiting tga.Code `json:"waiting,omitempty"`
	Reason  string   `json:"reason,omitempty"`
	TraceID tga.ID   `json:"trace_id,omitzero"`
}

// ListOpen returns the turns of a store that have not ended, oldest first.
func ListOpen(ctx context.Context, store runtime.AttachmentReader) ([]OpenTurn, error) {
	ids, err := openTurns(ctx, store)
	if err != nil {
		return nil, err
	}
	var out []OpenTurn
	for _, id := range ids {
		t, err := foldFrom(ctx, store, id)
		if code := tga.CodeOf(err); code != "" && code != tga.StoreUnavailable {
			// It was erased, in a backup from before, or its journal is damaged or of a later version.
			// That hides no other turn.
			out = append(out, OpenTurn{InteractionID: id, Waiting: code, Reason: err.Error()})
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, t.listed())
	}
	return out, nil
}

// Of finds a turn by an id, which may be the turn's own or that of the call that an open turn
// waits for: a person who settles a call has seen one of the two. NOT_FOUND if there is neither.
func Of(ctx context.Context, store runtime.AttachmentReader, id tga.ID) (tga.ID, error) {
	_, err := foldFrom(ctx, store, id)
	if tga.CodeOf(err) != tga.NotFound {
		return id, err
	}
	open, failed := ListOpen(ctx, store)
	if failed != nil {
		return id, failed
	}
	for _, o := range open {
		if o.TraceID == id {
			return o.InteractionID, nil
		}
	}
	return id, err
}

// listed returns what a list shows of the turn.
func (t *turn) listed() OpenTurn {
	phase, _ := t.phase()
	o := OpenTurn{
		InteractionID: t.id(), InvocationID: t.init.InvocationID, Agent: t.init.AgentName, SessionID: t.init.SessionID,
		TurnNumber: t.init.TurnNumber, Phase: phase, Since: t.init.StartedAt,
	}
	if w := t.waits; w != nil {
		o.Waiting, o.Reason = w.Failure.Code, w.Failure.Message
		if w.TraceID != nil {
			o.TraceID = *w.TraceID
		}
	}
	return o
}

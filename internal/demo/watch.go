//go:build unix

package demo

import (
	"context"
	"encoding/json"
	"time"

	"github.com/tgad/tgad/internal/payments/journal"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// await waits until the trigger of a point has happened to a call. It returns false if ctx
// ends before that.
func (w *world) await(ctx context.Context, on trigger, tool, key string, traces ...tga.ID) bool {
	switch on {
	case asked, anytime:
		return true
	case received:
		return w.awaitJournal(ctx, tool, key, func(c journal.Count) bool { return c.Received > 0 })
	case charged:
		return w.awaitJournal(ctx, tool, key, func(c journal.Count) bool { return c.Charges > 0 })
	case pending:
		return w.awaitState(ctx, traces[0], tga.Pending)
	case executing:
		return w.awaitState(ctx, traces[0], tga.Executing)
	case recorded:
		return w.awaitState(ctx, traces[0], tga.Completed)
	case queued:
		return w.awaitState(ctx, traces[1], tga.Authorized)
	}
	panic("demo: no such trigger: " + string(on))
}

func (w *world) awaitJournal(ctx context.Context, tool, key string, enough func(journal.Count) bool) bool {
	for ctx.Err() == nil {
		if c, err := w.charges(tool, key); err == nil && enough(c) {
			return true
		}
		time.Sleep(200 * time.Microsecond)
	}
	return false
}

// awaitState follows the log until a trace is in a state.
func (w *world) awaitState(ctx context.Context, trace tga.ID, state tga.State) bool {
	for ctx.Err() == nil {
		for e, err := range w.client.Entries(ctx, trace, 0, true) {
			if err != nil {
				break // not there yet, or the stream ended: ask again
			}
			if toState(e) == state.String() {
				return true
			}
		}
		select {
		case <-time.After(500 * time.Microsecond):
		case <-ctx.Done():
		}
	}
	return false
}

func toState(e wire.Entry) string {
	var entry struct {
		To string `json:"to_state"`
	}
	if json.Unmarshal(e.Entry, &entry) != nil {
		return "" // the caller looks for a state that this is not
	}
	return entry.To
}

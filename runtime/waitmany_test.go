package runtime_test

import (
	"testing"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// TestEveryWaitingCallIsContinued: a person's answer about a record continues every call that waits for it. A call that
// the answer would not continue, because 100 others wait, is refused, and nothing of it is written.
func TestEveryWaitingCallIsContinued(t *testing.T) {
	const most = 100
	p := park
	p.Replay = runtime.ReplayHuman
	b, w := changing(t, p)
	origin := b.mustCall(charge("k"))
	w.set("a", runtime.Gone)
	var waiting []tga.ID
	for range most {
		res, err := b.call(replay("k"))
		wantCode(t, err, tga.ConfirmationRequired)
		waiting = append(waiting, res.TraceID)
	}
	over := replay("k")
	over.TraceID = newID()
	_, err := b.call(over)
	wantCode(t, err, tga.LimitExceeded)
	b.wantNothing(over.TraceID)
	again := replay("k")
	again.TraceID = waiting[0]
	_, err = b.call(again) // it waits already
	wantCode(t, err, tga.ConfirmationRequired)
	if _, err := b.rt.Decide(t.Context(), origin.TraceID, vote("ann", true)); err != nil {
		t.Fatal(err)
	}
	for _, id := range waiting {
		b.wantState(id, tga.Completed)
	}
	if res := b.mustCall(over); res.ServedFrom != origin.TraceID {
		t.Errorf("after the answer: %+v", res)
	}
	b.wantSends(1)
}

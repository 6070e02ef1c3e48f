package runtime_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// beforeCall calls once, before the first append with a tool_call goes on to the store.
type beforeCall struct {
	runtime.Store
	once func()
}

func (s *beforeCall) Append(ctx context.Context, l chain.Lease, b chain.Batch) (chain.Appended, error) {
	for _, a := range b.Artifacts {
		if once := s.once; a.Artifact.Type == tga.CallType && once != nil {
			s.once = nil
			once()
		}
	}
	return s.Store.Append(ctx, l, b)
}

// TestBeginThatLosesTheKeyIsToldToAskAgain: two executors begin calls with the same key. The second
// takes the key after the first has read its record and before the first appends. The first does not
// wait until the permit of the second goes stale. It is told to ask again, and then learns what
// happened to the key.
func TestBeginThatLosesTheKeyIsToldToAskAgain(t *testing.T) {
	for name, c := range map[string]struct {
		then func(*bench, runtime.Begun) error // what the executor that got the key does
		want runtime.Standing                  // of the next question
	}{
		"nothing yet": {func(*bench, runtime.Begun) error { return nil }, runtime.BeginWait},
		"finished": {func(b *bench, g runtime.Begun) error {
			_, err := b.finish(g, ok(`"paid"`))
			return err
		}, runtime.BeginServe},
		"not sent": {func(b *bench, g runtime.Begun) error {
			_, err := b.rt.NotSent(context.Background(), g.Result.TraceID, g.Permit, "was not sent", 0)
			return err
		}, runtime.BeginSend},
		"gave up": {func(b *bench, g runtime.Begun) error {
			return b.rt.GiveUp(context.Background(), g.Result.TraceID, g.Permit, "", 0)
		}, runtime.BeginInDoubt},
		"permit over": {func(b *bench, _ runtime.Begun) error {
			b.advance(time.Hour)
			return nil
		}, runtime.BeginInDoubt},
	} {
		t.Run(name, func(t *testing.T) {
			policy := park
			policy.PermitTime = time.Hour
			b := setup(t, policy)
			var winner runtime.Begun
			b.store = &beforeCall{Store: b.db, once: func() { winner = b.begin("order-1", "second") }}
			b.start()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			lost, err := b.rt.Begin(ctx, runtime.BeginRequest{Request: charge("order-1"), BeginID: "first"})
			if err != nil || ctx.Err() != nil {
				t.Fatalf("%+v, %v: the begin waited for the other executor", lost, errors.Join(err, ctx.Err()))
			}
			b.wantStanding(winner, runtime.BeginSend)
			b.wantStanding(lost, runtime.BeginWait)
			wantCode(t, lost.Cause, tga.IdempotencyKeyInFlight)
			b.wantState(lost.Result.TraceID, tga.Authorized)
			if err := c.then(b, winner); err != nil {
				t.Fatal(err)
			}
			again := b.begin("order-1", "first")
			b.wantStanding(again, c.want)
			if again.Result.TraceID != lost.Result.TraceID {
				t.Errorf("the same begin id leads to %s, first to %s", again.Result.TraceID, lost.Result.TraceID)
			}
		})
	}
}

package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// TestApprovedCallThatNobodySendsIsGivenUp: a person gives up an approved call that waits for its executor, or for a caller who
// brings its redacted arguments. It ends as one that was never sent, its key is free, and whoever comes back is told.
func TestApprovedCallThatNobodySendsIsGivenUp(t *testing.T) {
	ctx := context.Background()
	for _, by := range []string{"executor", "caller"} {
		b := setup(t, park, needsApproval(1, 0), redacting)
		req := runtime.BeginRequest{Request: charge("k"), BeginID: "one"}
		if by == "caller" {
			req.Request = secretCharge("k")
		}
		req.TraceID = newID()
		again := func(id string) (runtime.Result, error) {
			if by == "caller" {
				return b.rt.Call(ctx, req.Request)
			}
			req := req
			req.BeginID = id
			begun, err := b.rt.Begin(ctx, req)
			if begun.Cause != nil {
				err = begun.Cause
			}
			if begun.Standing == runtime.BeginSend {
				return b.finish(begun, ok(`1`))
			}
			return begun.Result, err
		}
		_, err := again("one")
		wantCode(t, err, tga.EscalationRequired)
		_, err = b.rt.Abandon(ctx, req.TraceID, "ann", "nobody wants it")
		wantCode(t, err, tga.StateInvalidTransition) // it waits for votes: deny it
		if _, err := b.rt.Decide(ctx, req.TraceID, vote("ann", true)); by == "executor" && err != nil {
			t.Fatal(err)
		}
		b.wantState(req.TraceID, tga.Authorized)
		_, err = b.rt.Abandon(ctx, req.TraceID, "", "nobody wants it")
		wantCode(t, err, tga.ValidationError)
		_, err = b.rt.Resolve(ctx, req.TraceID, evidence(ok(`1`)))
		wantCode(t, err, tga.StateInvalidTransition) // it did not run
		res, err := b.rt.Abandon(ctx, req.TraceID, "bob", "nobody wants it")
		if err != nil || res.State != tga.Failed || res.ErrorCode != tga.PolicyViolation || res.ErrorMessage != "nobody wants it" || res.ResolvedBy != "person" || res.Sent != 0 {
			t.Errorf("%s: %+v, %v", by, res, err)
		}
		b.reopen()
		trace, err := b.db.Load(ctx, req.TraceID)
		if err != nil {
			t.Fatal(err)
		}
		if w, who, ok := runtime.EndedBy(trace); !ok || w != runtime.ByPerson || who != "bob" {
			t.Errorf("%s: ended by %v %q", by, w, who)
		}
		if res, err := again("one"); err != nil || res.State != tga.Failed || res.TraceID != req.TraceID {
			t.Errorf("%s: who comes back gets %+v, %v", by, res, err)
		}
		_, err = b.rt.Abandon(ctx, req.TraceID, "bob", "")
		wantCode(t, err, tga.StateInvalidTransition)
		b.wantSends(0)
		b.sup = runtime.AllowAll
		b.reopen()
		req.TraceID = tga.ID{}
		if res, err := again("two"); err != nil || res.State != tga.Completed {
			t.Errorf("%s: the key is not free: %+v, %v", by, res, err)
		}
		b.close()
	}
}

// TestGivenUpAndSentAtOnce: a call that is given up while its executor asks for it is either, not both.
func TestGivenUpAndSentAtOnce(t *testing.T) {
	ctx := t.Context()
	b := setup(t, park, needsApproval(1, 0))
	for i := range 40 {
		req := runtime.BeginRequest{Request: charge(fmt.Sprint("k", i)), BeginID: fmt.Sprint("b", i)}
		req.TraceID = newID()
		if _, err := b.rt.Begin(ctx, req); err != nil {
			t.Fatal(err)
		}
		if _, err := b.rt.Decide(ctx, req.TraceID, vote("ann", true)); err != nil {
			t.Fatal(err)
		}
		var begun runtime.Begun
		var wg sync.WaitGroup
		wg.Go(func() { begun, _ = b.rt.Begin(ctx, req) })
		res, err := b.rt.Abandon(ctx, req.TraceID, "bob", "nobody wants it")
		wg.Wait()
		switch {
		case begun.Standing != runtime.BeginSend && err != nil && !errors.Is(err, tga.StateConcurrentExecution):
			t.Errorf("not sent, and not given up: %v", err)
		case begun.Standing == runtime.BeginSend && err == nil && res.ErrorCode != tga.EffectInDoubt:
			t.Errorf("sent, and given up as not sent: %+v", res)
		}
	}
}

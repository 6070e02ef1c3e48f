package attempt

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tgad/tgad/internal/clip"
	"github.com/tgad/tgad/internal/mcpfront/asklog"
	"github.com/tgad/tgad/internal/mcpfront/toolcall"
	"github.com/tgad/tgad/internal/mcpfront/wait"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// A call that waits for people can ask the person at the client. A client of a revision with
// a handshake is sent elicitation/create; a client of a revision without one is answered
// input_required. The log decides whether that person's vote counts: by default it refuses
// the vote of whoever submitted the call. Then the call goes on waiting for other people.

// questionFor makes the params of an elicitation about a call, for the client of q.
func (a *Attempt) questionFor(q *Call) []byte {
	said := ""
	if a.needs != nil {
		said = a.needs.Error()
	}
	words := fmt.Sprintf("May the tool %s of %s be called? It needs an approval (%s). Arguments: %s",
		a.q.Params.Tool, a.s.o.Server, clip.Runes(said, 200), toolcall.Shown(a.q.Args))
	return q.Params.Form(q.By.Agreed(), words, `"approve":{"type":"boolean","title":"Approve this call"},"reason":{"type":"string","title":"Why"}`, "approve")
}

// wantPeople tells the calls that wait for the attempt that people have to decide.
func (a *Attempt) wantPeople(b runtime.Begun) {
	if !a.People.Is() { // only the goroutine of the attempt sets it
		a.needs, a.barred = b.Cause, b.Barred
	}
	a.say("waiting for an approval: " + a.needs.Error() + ". Who may give it types: " + a.s.approveVerb(b.Result.TraceID))
	a.People.Set() // after say: the calls that wait read the words now
}

// AskPeople asks the person at the client of q to approve the call. It asks once a message: a
// client that makes the call again is asked again, but the message that brings an answer which is
// neither yes nor no is not. It reports whether the message is to be answered with the question.
// Then the message ends, and the client repeats it with the person's answer.
func (a *Attempt) AskPeople(q *Call) (answered bool) {
	q.Posed = true
	if a.barred || a.s.voteless.Load() {
		return false // this person's vote does not count; progress and answer say who can decide
	}
	trace := a.Trace()
	if q.Params.InRequest() {
		q.Question = toolcall.AskVote(a.questionFor(q), trace)
		return true
	}
	if !q.By.Elicits() || !a.Asking.CompareAndSwap(false, true) {
		return false
	}
	question := a.questionFor(q)
	a.s.Work.Go(func() {
		ctx, cancel := a.Done.Ends(a.s.Life) // ends if others decided, or the call was given up
		defer cancel()
		result, err := q.By.Elicit(ctx, question, func() { a.Asking.Store(false) })
		if err != nil {
			a.s.Log.Debug("the client did not ask its person", "trace", trace, "error", err)
			return
		}
		a.Cast(ctx, trace, toolcall.ReadVote(result))
	})
	return false
}

// Cast gives a vote to the log. While the log is away Cast tries again, so that the person need
// not be asked twice.
func (a *Attempt) Cast(ctx context.Context, trace tga.ID, v *toolcall.Vote) {
	if v == nil {
		return
	}
	err := asklog.WhileAway(a.s.o.LogTimeout, func(d time.Duration, _ error) bool { return wait.Rest(ctx, d) }, func() error {
		return asklog.Patient(ctx, func(ctx context.Context) error {
			_, err := a.s.o.Log.Decide(ctx, trace, wire.DecideRequest{Approve: v.Approve, Rationale: v.Words})
			return err
		})
	})
	switch {
	case errors.Is(err, tga.PermissionDenied), errors.Is(err, tga.PolicyViolation):
		a.s.voteless.Store(true)
		why := err.Error()
		a.unheard.Store(&why)
		a.s.Log.Warn("the log does not take the vote of the person at the client; people elsewhere decide", "trace", trace, "error", err)
	case err != nil && ctx.Err() == nil && tga.CodeOf(err) != tga.IdempotencyKeyInFlight:
		a.s.Log.Warn("a vote of the person at the client was not taken", "trace", trace, "error", err)
	}
}

package attempt

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpfront/wait"
	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// stage is what an attempt does next. The action depends on the stage alone, and the table
// moves gives the next stage, so a new call and one that is taken up run the same loop.
type stage uint8

const (
	starting  stage = iota + 1 // find the trace, and give the log the vote that the message brings
	asking                     // ask the log for a permit
	resuming                   // look for an unfinished call that this message continues
	posing                     // ask the person at the client whether the call runs again
	serving                    // serve what is recorded
	telling                    // answer why the call does not run
	approving                  // wait for people
	queueing                   // wait for another executor of the same call
	sending                    // make the send that the permit allows
	over                       // the attempt has its outcome
	stages
)

// result is the outcome of a stage.
type result uint8

const (
	ended    result = iota // the attempt has an outcome
	again                  // ask the log
	isOut                  // the log knows an earlier attempt of the call that is not from this loop
	mayAsk                 // the client's person may have the call run again
	isServed               // from here on the results are the log's answers: runtime.BeginServe, …
	isDenied
	isStale
	isConflict
	isInDoubt
	needsPeople
	mustWait
	maySend
	results
)

// moves gives the next stage for each stage and result; zero means that the move does not
// exist. Only the stage sending begins a send of its own, and only an answer of the log leads
// to it; resuming sends under the permit of an unfinished call.
var moves = [stages][results]stage{
	starting: {ended: over, again: asking},
	asking: {ended: over, isOut: resuming, mayAsk: posing, isServed: serving, isDenied: serving, isStale: telling, isConflict: telling,
		isInDoubt: telling, needsPeople: approving, mustWait: queueing, maySend: sending},
	resuming: {ended: over, mayAsk: posing, isServed: serving, isDenied: serving, isStale: telling, isConflict: telling,
		isInDoubt: telling, needsPeople: approving, mustWait: queueing, maySend: sending},
	posing: {ended: over, again: asking, isServed: serving, isDenied: serving, isStale: telling, isConflict: telling,
		isInDoubt: telling, needsPeople: approving, mustWait: queueing, maySend: sending},
	serving:   {ended: over, again: asking},
	telling:   {ended: over},
	approving: {ended: over, again: asking},
	queueing:  {ended: over, again: asking},
	sending:   {ended: over, again: asking},
}

// deeds gives the action of each stage.
var deeds = [stages]func(*loop, context.Context) result{
	starting: (*loop).open, asking: (*loop).inquire, resuming: (*loop).resume, posing: (*loop).pose, serving: (*loop).serveOr,
	telling: (*loop).tell, approving: (*loop).approve, queueing: (*loop).queue, sending: (*loop).dispatch,
}

// loop is the working state of an attempt. Only the attempt's goroutine uses it.
type loop struct {
	*Attempt
	beginID string
	said    runtime.Begun // the log's newest answer
	sends   int           // sends whose outcome is not known
	doubt   string        // why the newest of these sends has no answer
	rest    wait.Pause
}

// MaxSends bounds the licensed re-sends of one attempt, so that a tool server that dies of
// the call does not get it for ever.
const MaxSends = 3

// work runs the stages until the attempt has an outcome. It sends only if the log permits it.
func (a *Attempt) work(ctx context.Context) {
	ctx, end := a.traced(ctx)
	defer end()
	l := &loop{Attempt: a, beginID: frames.Nonce()}
	walk(func(at stage) result { return deeds[at](l, ctx) })
}

// walk goes through the stages until the attempt is over.
func walk(do func(stage) result) {
	for at := starting; at != over; {
		came := do(at)
		next := moves[at][came]
		if next == 0 {
			panic(fmt.Sprintf("attempt: stage %d has no move for result %d", at, came))
		}
		at = next
	}
}

// open finds the trace of the call.
func (l *loop) open(ctx context.Context) result {
	a := l.Attempt
	if err := a.ask(ctx, a.s.Shelf.Load); err != nil {
		a.refused(err)
		return ended
	}
	switch {
	case !a.q.Trace.IsZero():
		a.setTrace(a.q.Trace)
	case a.q.Derived && !a.q.VoteOn.IsZero():
		a.setTrace(a.q.VoteOn) // the call that the person was asked about
	case a.q.Derived:
		a.setTrace(NewID()) // the log remembers
	default:
		a.setTrace(a.remembered())
	}
	if a.q.VoteOn == a.Trace() {
		a.Cast(ctx, a.q.VoteOn, a.q.Vote)
	}
	a.conn.Again = a.q.Again
	return again
}

// inquire asks the log what to do with the call.
func (l *loop) inquire(ctx context.Context) result {
	b, err := l.Begin(ctx, l.beginID)
	switch {
	case l.Keyless && errors.Is(err, tga.IdempotencyKeyRequired):
		l.s.SetNeedsKey(l.q.Params.Tool)
		l.Out.Again = true
		return ended
	case err != nil:
		l.unsent(func() { l.refused(err) })
		return ended
	}
	l.said = b
	l.setTrace(b.Result.TraceID)
	l.learn(b)
	if b.Standing == runtime.BeginSend || b.Standing == runtime.BeginWait {
		l.name(b)
	}
	switch {
	case standings[b.Standing] == ended: // a newer log may have standings that are not known here: do not send
		l.unsent(func() {
			l.refused(tga.Errorf(tga.ValidationError, "the log answers %q, which this version does not know", b.Standing))
		})
		return ended
	case (b.Standing == runtime.BeginWait || b.Standing == runtime.BeginInDoubt || b.Attempt > 1) && l.sends == 0:
		return isOut
	}
	return l.askOr()
}

// askOr turns the log's answer into a result, if there is no unfinished call to continue.
func (l *loop) askOr() result {
	if l.said.Ask {
		return mayAsk
	}
	return standings[l.said.Standing]
}

// standings maps the log's answers to results.
var standings = map[runtime.Standing]result{
	runtime.BeginServe: isServed, runtime.BeginDenied: isDenied, runtime.BeginStale: isStale, runtime.BeginConflict: isConflict,
	runtime.BeginInDoubt: isInDoubt, runtime.BeginNeedsApproval: needsPeople, runtime.BeginWait: mustWait, runtime.BeginSend: maySend,
}

// resume continues an unfinished call if there is one.
func (l *loop) resume(ctx context.Context) result {
	if l.goOn(ctx, l.said) {
		return ended
	}
	return l.askOr()
}

// pose asks the person at the client whether the call runs again.
func (l *loop) pose(ctx context.Context) result {
	if l.sends > 0 {
		l.said.Since = 0 // this attempt made the send itself: the question says "just now"
	}
	yes, later := l.runAgain(ctx, l.said)
	switch {
	case later:
		return ended
	case !yes:
		return standings[l.said.Standing]
	}
	l.conn.Again, l.sends, l.doubt, l.beginID = l.said.Result.TraceID, 0, "", frames.Nonce()
	l.setTrace(NewID())
	return again
}

// serveOr serves the recorded outcome, or makes a new attempt if a person settled the call as not run.
func (l *loop) serveOr(context.Context) result {
	if l.StartsAnew(l.said.Result) {
		l.beginID = frames.Nonce()
		return again
	}
	l.serve(l.said.Result)
	return ended
}

// tell ends a call that does not run and has no effect to serve.
func (l *loop) tell(context.Context) result {
	switch b := l.said; b.Standing {
	case runtime.BeginStale:
		l.stale(b)
	case runtime.BeginConflict:
		l.Out = Outcome{Code: tga.IdempotencyKeyConflict, Trace: b.Result.TraceID, RPC: mcpraw.CodeInvalidParams,
			Words: "the key of this call belongs to another call: " + b.Cause.Error()}
	default:
		l.inDoubt(cmp.Or(l.doubt, b.Cause.Error()))
	}
	return ended
}

// approve waits for people. It ends the attempt when no call waits for it any more.
func (l *loop) approve(ctx context.Context) result {
	a := l.Attempt
	if !a.q.Derived {
		a.remember(l.said.Result.TraceID)
	}
	a.wantPeople(l.said)
	a.name(l.said)
	switch {
	case a.q.NoSend:
		l.unsent(func() {
			a.gone(tga.EscalationRequired, "The call was cancelled while it waited for an approval. It was not sent.")
		})
	case !a.pause(ctx, l.rest.Next()):
		l.unsent(func() { a.gone(tga.EscalationRequired, a.ApprovalWords()) })
	case a.unheard.Load() != nil:
		why := *a.unheard.Load()
		l.unsent(func() {
			a.gone(tga.EscalationRequired, "The answer of the person at the client does not count: "+why+". "+a.ApprovalWords())
		})
	default:
		return again
	}
	return ended
}

// unsent ends a call that is not sent, with the outcome that end sets. If an earlier send of
// this attempt may have run, the outcome is in doubt instead: the client must not be told that
// nothing has happened.
func (l *loop) unsent(end func()) {
	if l.doubt != "" {
		end = func() { l.inDoubt(l.doubt) }
	}
	end()
}

// queue waits for another executor.
func (l *loop) queue(ctx context.Context) result {
	l.say("waiting for another executor of the same call")
	if !l.pause(ctx, l.rest.Next()) {
		l.gone(tga.IdempotencyKeyInFlight, "The same call is under way elsewhere. Repeat it later to get its answer; it will not run twice.")
		return ended
	}
	return again
}

// dispatch makes the one send that the permit allows.
func (l *loop) dispatch(ctx context.Context) result {
	b := l.said
	if l.q.NoSend {
		l.NotSent(ctx, b, errors.New("it was cancelled"))
		if b.Attempt > 1 {
			l.inDoubt("it was cancelled after it was sent")
		}
		return ended
	}
	l.say("waiting for the tool server")
	done, doubt := l.send(ctx, b)
	if done {
		return ended
	}
	// The permit of this begin id now stands for a send that was not made, or whose outcome is not known.
	// A new begin id can get another permit; in the second case only if the licence allows a re-send.
	l.beginID, l.rest = frames.Nonce(), wait.Pause{}
	if doubt == "" {
		return again
	}
	l.GiveUp(ctx, b, doubt)
	l.doubt = doubt
	if l.sends++; l.sends >= MaxSends {
		l.inDoubt(doubt)
		return ended
	}
	return again
}

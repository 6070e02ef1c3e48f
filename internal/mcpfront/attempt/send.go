package attempt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tgad/tgad/internal/mcpanswer"
	"github.com/tgad/tgad/internal/mcpfront/asklog"
	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpfront/wait"
	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// send makes the one send that a permit allows. done says that the attempt has its outcome;
// otherwise doubt says why it is not known what happened. If doubt is "", nothing happened, and
// the call is to be sent again.
func (a *Attempt) send(ctx context.Context, b runtime.Begun) (done bool, doubt string) {
	q := a.q
	span := a.sendSpan(ctx, b)
	defer func() { span.end(errUnanswered) }()
	up, err := q.By.Await(ctx)
	if err == nil {
		a.noted(ctx)
		err = a.look(ctx, b)
	}
	if err == nil && a.lonely.Is() {
		err = errors.New("the client gave the call up")
	}
	if err == nil {
		strike := q.Permits.Note(b, a.Keyless)
		defer func() {
			if ctx.Err() == nil { // else the permit is still out, and the next shim gives it up
				strike()
			}
		}()
		err = q.send(up, b, span.own, func() error {
			switch {
			case b.Late(a.begunAt):
				return errors.New("the time in which it could be sent is over")
			case a.lonely.Is(): // or while the tool server took no byte
				return errors.New("the client gave the call up")
			}
			return ctx.Err()
		})
	}
	if errors.Is(err, runtime.ErrNotSent) || up == nil || (err != nil && !q.Sent.Load()) {
		a.NotSent(ctx, b, err)
		return true, ""
	}
	if err != nil {
		return false, "the call was cut off while it was written: " + err.Error()
	}
	var f *frames.Frame
	lonely, told := a.lonely.C, a.Told.C
	var grace <-chan time.Time
	for f == nil {
		select {
		case f = <-q.Arrivals:
		case <-up.Done():
			select {
			case f = <-q.Arrivals: // the tool server wrote its answer before it ended
			default:
				return false, "the tool server is gone before it answered: " + up.Why().Error()
			}
		case <-told:
			told, lonely = nil, nil
			grace = time.After(a.s.o.CancelGrace)
		case <-lonely:
			told, lonely = nil, nil
			grace = time.After(a.s.o.CancelGrace)
		case <-grace:
			q.lateTo(func(f *frames.Frame) { a.late(b, f) })
			const why = "it was cancelled and the tool server has not answered"
			a.Out = Outcome{Code: tga.EffectInDoubt, Trace: b.Result.TraceID, Words: a.doubtWords(b.Result.TraceID, why)}
			a.GiveUp(ctx, b, why)
			return true, ""
		case <-ctx.Done():
			return true, "" // the shim is closing: no client is left to tell; in the log the call is in doubt
		}
	}
	span.end(nil)
	a.after = f.After
	if f.Unsent != "" {
		f.Close()
		a.NotSent(ctx, b, errors.New(f.Unsent))
		return true, ""
	}
	return a.answered(ctx, b, f)
}

// errUnanswered ends the span of a send that has no answer.
var errUnanswered = tga.Errorf(tga.EffectInDoubt, "no answer")

// noted waits until the log has noted the deliveries of the answers that the client may have
// had before it made this call, or until no call waits for this attempt.
func (a *Attempt) noted(ctx context.Context) {
	for _, d := range a.q.Earlier {
		select {
		case <-d.over.C:
		case <-a.lonely.C:
		case <-ctx.Done():
		}
	}
}

// answered records the tool server's answer, and only then releases it to the client.
func (a *Attempt) answered(ctx context.Context, b runtime.Begun, f *frames.Frame) (done bool, doubt string) {
	var ans answer
	var err error
	if ans.Meaning, ans.Why = mcpraw.IsDoubt, f.Bad; f.Bad == "" {
		ans, err = ReadAnswer(f, a.s.turn(b), a.s.o.MaxKeepBytes)
	}
	if err != nil {
		f.Close()
		return false, err.Error()
	}
	switch ans.Meaning {
	case mcpraw.IsDoubt:
		f.Close()
		return false, "the tool server's answer does not say what happened: " + ans.Why
	case mcpraw.IsRefusal:
		if a.otherHeaders(ctx, ans) {
			f.Close()
			ended := !a.continues && a.s.turn(b) == 1
			a.NotSent(ctx, b, errors.New("the tool server wants other headers"))
			a.Out = Outcome{}
			if ended {
				a.setTrace(NewID()) // no send of the call may have run, so its trace has ended
			}
			return false, "" // send again
		}
		if a.s.turn(b) > 1 {
			f.Close()
			a.NotSent(ctx, b, fmt.Errorf("the tool server refused this attempt: %s", ans.Why))
			return true, ""
		}
	case mcpraw.WantsInput, mcpraw.IsTask:
		return a.unfinished(b, f, ans)
	case mcpraw.WantsURL:
		// The client needs the URLs of the answer, and its repeat needs the key. So the answer is handed over, and is no effect.
		a.NotSent(ctx, b, errors.New("the tool server has not run it: "+ans.Why))
		a.Out.Frame, a.Out.Value, a.Out.Fault, a.Out.Words = f, ans.value, true, ""
		return true, ""
	}
	if ans.Meaning == mcpraw.IsRefusal {
		ans.Reply.RetryAfter = f.After
	}
	a.lookAgain(ctx, cameOut(ans.Reply))
	res, err := a.Finish(ctx, b, ans.Reply)
	if err != nil {
		return a.unrecorded(ctx, b, f, err)
	}
	a.s.mu.Lock()
	delete(a.s.unsent, res.TraceID)
	a.s.mu.Unlock()
	a.Out = Outcome{Frame: f, Value: ans.value, Fault: ans.fault, Trace: res.TraceID, Own: res.TraceID, Digest: res.Digest, Final: true}
	return true, ""
}

// unrecorded ends an attempt whose answer the log does not accept.
func (a *Attempt) unrecorded(ctx context.Context, b runtime.Begun, f *frames.Frame, err error) (bool, string) {
	f.Close()
	if errors.Is(err, tga.EffectInDoubt) {
		// By a rule of the log the answer refuses this attempt, and an earlier one may have run.
		a.s.countUnsent(b.Result.TraceID)
		a.inDoubt("the tool server refused this attempt, and has not answered an earlier one")
		return true, ""
	}
	if errors.Is(err, tga.StateInvalidTransition) && ctx.Err() == nil {
		// Somebody settled the call meanwhile with another outcome. The recorded one counts.
		if again, beginErr := a.Begin(ctx, frames.Nonce()); beginErr == nil && again.Standing == runtime.BeginServe {
			a.serve(again.Result)
			return true, ""
		}
	}
	a.Out = Outcome{Code: tga.CodeOf(err), Trace: b.Result.TraceID,
		Words: a.doubtWords(b.Result.TraceID, "the tool server answered, and tgad could not record the answer: "+err.Error())}
	return true, ""
}

// Finish records an effect. While the log is away, Finish keeps the answer in memory and tries
// again: as long as the answer is here, the call is not in doubt.
func (a *Attempt) Finish(ctx context.Context, b runtime.Begun, reply runtime.Reply) (runtime.Result, error) {
	pause := wait.Pause{}
	for {
		res, err := a.s.finish(ctx, b, reply)
		if !errors.Is(err, tga.StoreUnavailable) {
			return res, err
		}
		a.say("the tool has answered; waiting for tgad's log to record it")
		a.Kept.Set()
		if !wait.Rest(ctx, pause.Next()) {
			return res, err
		}
	}
}

// finish makes the request that records an effect. If the log takes no reply of this length, finish has it record the
// length and digest.
func (s *Desk) finish(ctx context.Context, b runtime.Begun, reply runtime.Reply) (res runtime.Result, err error) {
	for {
		err = asklog.Patient(ctx, func(ctx context.Context) (err error) {
			res, err = s.o.Log.Finish(ctx, b.Result.TraceID, b.Permit, runtime.Finished{Reply: reply, Who: "tgad mcp"})
			return err
		})
		if !errors.Is(err, tga.LimitExceeded) || reply.Result == nil {
			return res, err
		}
		reply = cut(reply)
	}
}

// cut replaces a reply that is too long for the log: only its length and digest are recorded.
func cut(r runtime.Reply) runtime.Reply {
	t := mcpanswer.Truncated(int64(len(r.Result)), tga.Sum(r.Result), 0)
	t.ErrorMessage = fmt.Sprintf("answer of %d bytes is over what the log takes", t.ResultBytes)
	return t
}

// otherHeaders reports whether the tool server refused the call because its tool definitions
// have changed and now want other headers. It reads the definitions again, once an attempt.
// The call did not run.
func (a *Attempt) otherHeaders(ctx context.Context, ans answer) bool {
	var code int64
	if a.reread || !ans.fault || json.Unmarshal(mcpraw.At(ans.value, "/code"), &code) != nil || code != mcpraw.CodeHeaderMismatch {
		return false
	}
	a.reread = true
	return a.q.By.Reread(ctx)
}

package mcpshim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tgad/tgad/internal/mcpanswer"
	"github.com/tgad/tgad/internal/mcpfront/wire"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/mcp/mcpraw"
	"github.com/tgad/tgad/schemas/tga"
)

// maxSends bounds the licensed re-sends of one attempt: a tool server that dies of every
// call is not fed for ever.
const maxSends = 3

// work asks the log until it has an outcome, and sends where the log permits it.
func (a *attempt) work(ctx context.Context) {
	if err := a.ask(ctx, a.s.shelf.load); err != nil {
		a.refused(err)
		return
	}
	switch {
	case !a.q.trace.IsZero():
		a.setTrace(a.q.trace)
	case a.q.derived && !a.q.voteOn.IsZero():
		a.setTrace(a.q.voteOn) // the call that the person was asked about
	case a.q.derived:
		a.setTrace(newID()) // the log remembers
	default:
		a.setTrace(a.remembered())
	}
	if a.q.voteOn == a.trace() {
		a.cast(ctx, a.q.voteOn, a.q.vote)
	}
	a.conn.Again = a.q.again
	sends := 0
	var doubt string // why the newest send has no answer
	beginID := randomHex()
	pause := waitPause{}
	for {
		if sends > 0 && doubt != "" && sends >= maxSends {
			a.inDoubt(doubt)
			return
		}
		b, err := a.begin(ctx, beginID)
		switch {
		case a.keyless && errors.Is(err, tga.IdempotencyKeyRequired):
			a.s.setNeedsKey(a.q.params.tool)
			a.out.again = true
			return
		case err != nil:
			a.refused(err)
			return
		}
		a.setTrace(b.Result.TraceID)
		a.learn(b)
		if b.Standing == runtime.BeginSend || b.Standing == runtime.BeginWait {
			a.name(b)
		}
		if out := b.Standing == runtime.BeginWait || b.Standing == runtime.BeginInDoubt || b.Attempt > 1; out && sends == 0 && a.goOn(ctx, b) {
			return
		}
		if b.Ask {
			if sends > 0 {
				b.Since = 0 // this very attempt has sent it
			}
			yes, later := a.runAgain(ctx, b)
			if later {
				return
			}
			if yes {
				a.conn.Again, sends, doubt, beginID = b.Result.TraceID, 0, "", randomHex()
				a.setTrace(newID())
				continue
			}
		}
		switch b.Standing {
		case runtime.BeginServe, runtime.BeginDenied:
			if a.startsAnew(b.Result) {
				beginID = randomHex()
				continue
			}
			a.serve(b.Result)
			return
		case runtime.BeginStale:
			a.stale(b)
			return
		case runtime.BeginConflict:
			a.out = outcome{code: tga.IdempotencyKeyConflict, trace: b.Result.TraceID, rpc: mcpraw.CodeInvalidParams,
				words: "the key of this call belongs to another call: " + b.Cause.Error()}
			return
		case runtime.BeginInDoubt:
			if doubt == "" {
				doubt = b.Cause.Error()
			}
			a.inDoubt(doubt)
			return
		case runtime.BeginNeedsApproval:
			if !a.q.derived {
				a.remember(b.Result.TraceID)
			}
			a.wantPeople(b)
			a.say("waiting for an approval: " + a.needs.Error() + ". Who may give it types: " + a.s.approveVerb(b.Result.TraceID))
			a.name(b)
			if a.q.noSend {
				a.gone(tga.EscalationRequired, "The call was cancelled while it waited for an approval. It was not sent.")
				return
			}
			if !a.pause(ctx, pause.next()) {
				a.gone(tga.EscalationRequired, a.approvalWords())
				return
			}
			if why := a.unheard.Load(); why != nil {
				a.gone(tga.EscalationRequired, "The answer of the person at the client does not count: "+*why+". "+a.approvalWords())
				return
			}
			continue
		case runtime.BeginWait:
			a.say("waiting for another executor of the same call")
			if !a.pause(ctx, pause.next()) {
				a.gone(tga.IdempotencyKeyInFlight, "The same call is under way elsewhere. Repeat it later to get its answer; it will not run twice.")
				return
			}
			continue
		}
		if a.q.noSend {
			a.notSent(ctx, b, errors.New("it was cancelled"))
			if b.Attempt > 1 {
				a.inDoubt("it was cancelled after it was sent")
			}
			return
		}
		a.say("waiting for the tool server")
		var done bool
		if done, doubt = a.send(ctx, b); done {
			return
		}
		a.giveUp(ctx, b, doubt)
		sends++
		// From here on this attempt's permit stands for a send whose fate is not known.
		// Another may be had under another name, where the licence allows it.
		beginID = randomHex()
		pause = waitPause{}
	}
}

// waitPause doubles from 20 ms to a second.
type waitPause struct{ d time.Duration }

func (p *waitPause) next() time.Duration {
	p.d = min(max(2*p.d, 20*time.Millisecond), time.Second)
	return p.d
}

// pause waits; false when nobody waits for the outcome any more.
func (a *attempt) pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-a.lonely:
		return false
	case <-ctx.Done():
		return false
	}
}

// begin asks the log. A log that is away is asked again for a while; nothing was sent
// then, and the same begin id names the same attempt.
func (a *attempt) begin(ctx context.Context, beginID string) (runtime.Begun, error) {
	o := &a.s.opts
	req := runtime.BeginRequest{BeginID: beginID, Request: runtime.Request{
		TraceID: a.trace(), Server: o.Server, Tool: a.q.params.tool, Args: a.q.args, Namespace: o.Namespace,
	}}
	req.Connection, req.Hint = a.conn, a.q.hint
	switch {
	case a.keyless:
		// Which tools are read tools is the log's to say: it refuses a write call without
		// a key before it writes anything.
		req.Connection.ID = ""
	case a.q.ledgerKey != "":
		req.Key = a.q.ledgerKey
	case a.q.derived:
		req.Scope = a.q.scope // and the log says whether it is a repeat
	default:
		req.Key = a.key
	}
	req.Retry = a.anew
	var b runtime.Begun
	err := a.ask(ctx, func(ctx context.Context) (err error) {
		notes := a.along(ctx)
		if a.present != nil {
			a.s.reap()
		}
		req.Delivered = nil
		for _, d := range notes {
			req.Delivered = append(req.Delivered, d.trace)
		}
		a.begunAt = time.Now()
		b, err = o.Log.Begin(ctx, req)
		a.s.arrived(notes, err == nil)
		return err
	})
	return b, err
}

// ask asks the log. One that is away is asked again for a while, as long as somebody waits
// for the outcome.
func (a *attempt) ask(ctx context.Context, f func(context.Context) error) error {
	return a.askWhile(ctx, func(d time.Duration) bool { return a.pause(ctx, d) }, f)
}

// askWhile is [attempt.ask] with a wait of its own between two tries; false ends them.
func (a *attempt) askWhile(ctx context.Context, wait func(time.Duration) bool, f func(context.Context) error) error {
	until := time.Now().Add(a.s.opts.LogTimeout)
	pause := waitPause{}
	for {
		err := bounded(ctx, f)
		if !errors.Is(err, tga.StoreUnavailable) || time.Now().After(until) {
			return err
		}
		a.say("waiting for tgad's log: " + err.Error())
		if !wait(pause.next()) {
			return err
		}
	}
}

// send makes the one send that a permit allows. It reports whether the attempt has its
// outcome; else doubt says why not.
func (a *attempt) send(ctx context.Context, b runtime.Begun) (done bool, doubt string) {
	q, c := a.q, a.q.conv
	l, err := c.await(ctx)
	if err == nil {
		a.noted(ctx)
		err = a.look(ctx, b)
	}
	if err == nil {
		select {
		case <-a.lonely:
			err = errors.New("the client gave the call up")
		default:
			strike := c.note(b, a.keyless)
			defer func() {
				if ctx.Err() == nil { // else it is not over, and a successor gives it up
					strike()
				}
			}()
			err = q.send(l, b, func() error {
				if b.Late(a.begunAt) {
					return errors.New("the time in which it could be sent is over")
				}
				return nil
			})
		}
	}
	if errors.Is(err, wire.ErrNotSent) || l == nil || (err != nil && !q.wasSent()) {
		a.notSent(ctx, b, err)
		return true, ""
	}
	if err != nil {
		return false, "the call was cut off while it was written: " + err.Error()
	}
	var f *wire.Frame
	lonely, told := a.lonely, a.told
	var grace <-chan time.Time
	for f == nil {
		select {
		case f = <-q.arrivals:
		case <-l.up.Done():
			select {
			case f = <-q.arrivals: // it wrote its answer before it went
			default:
				return false, "the tool server is gone before it answered: " + l.up.Why().Error()
			}
		case <-told:
			told, lonely = nil, nil
			grace = time.After(a.s.opts.CancelGrace)
		case <-lonely:
			told, lonely = nil, nil
			grace = time.After(a.s.opts.CancelGrace)
		case <-grace:
			q.lateTo(func(f *wire.Frame) { a.late(b, f) })
			const why = "it was cancelled and the tool server has not answered"
			a.out = outcome{code: tga.EffectInDoubt, trace: b.Result.TraceID, words: a.doubtWords(b.Result.TraceID, why)}
			a.giveUp(ctx, b, why)
			return true, ""
		case <-ctx.Done():
			return true, "" // nobody is left to tell; the log says in doubt
		}
	}
	a.after = f.After
	if f.Unsent != "" {
		f.Close()
		a.notSent(ctx, b, errors.New(f.Unsent))
		return true, ""
	}
	return a.answered(ctx, b, f)
}

// along takes what the begin of this call is to note, once that can be done: the client may
// have an answer, and have gone on from it, before the write of that answer has returned here.
func (a *attempt) along(ctx context.Context) []*delivery {
	for _, d := range a.q.earlier {
		select {
		case <-d.given:
		case <-a.lonely:
		case <-ctx.Done():
		}
	}
	for {
		all, wait := a.s.along(a.q.conv, a.key)
		if wait == nil {
			return all
		}
		select {
		case <-wait:
		case <-a.lonely:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// noted waits until the log knows of the answers that the client may have gone on from
// to this call, or nobody waits for it.
func (a *attempt) noted(ctx context.Context) {
	for _, d := range a.q.earlier {
		select {
		case <-d.over:
		case <-a.lonely:
		case <-ctx.Done():
		}
	}
}

// answered records what the tool server said, and only then lets the client have it.
func (a *attempt) answered(ctx context.Context, b runtime.Begun, f *wire.Frame) (done bool, doubt string) {
	var ans answer
	var err error
	if ans.Meaning, ans.Why = mcpraw.IsDoubt, f.Bad; f.Bad == "" {
		ans, err = readAnswer(f, a.s.turn(b), a.s.opts.MaxKeepBytes)
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
			a.notSent(ctx, b, errors.New("the tool server wants other headers"))
			a.out = outcome{}
			a.setTrace(newID())
			return false, "" // and so it is sent again: nothing ran, so by a new trace
		}
		if a.s.turn(b) > 1 {
			f.Close()
			a.notSent(ctx, b, fmt.Errorf("the tool server refused this attempt: %s", ans.Why))
			return true, ""
		}
	case mcpraw.WantsInput, mcpraw.IsTask:
		return a.unfinished(ctx, b, f, ans)
	}
	if ans.Meaning == mcpraw.IsRefusal {
		ans.Reply.RetryAfter = f.After
	}
	a.lookAgain(ctx, cameOut(ans.Reply))
	res, err := a.finish(ctx, b, ans.Reply)
	if err != nil {
		return a.unrecorded(ctx, b, f, err)
	}
	a.s.mu.Lock()
	delete(a.s.unsent, res.TraceID)
	a.s.mu.Unlock()
	a.out = outcome{frame: f, value: ans.value, fault: ans.fault, trace: res.TraceID, own: res.TraceID, digest: res.Digest, final: true}
	return true, ""
}

// unrecorded is the end of an attempt whose answer the log does not take.
func (a *attempt) unrecorded(ctx context.Context, b runtime.Begun, f *wire.Frame, err error) (bool, string) {
	f.Close()
	if errors.Is(err, tga.StateInvalidTransition) && ctx.Err() == nil {
		// Somebody settled it meanwhile, and otherwise. What is recorded counts.
		if again, beginErr := a.begin(ctx, randomHex()); beginErr == nil && again.Standing == runtime.BeginServe {
			a.serve(again.Result)
			return true, ""
		}
	}
	a.out = outcome{code: tga.CodeOf(err), trace: b.Result.TraceID,
		words: a.doubtWords(b.Result.TraceID, "the tool server answered, and tgad could not record the answer: "+err.Error())}
	return true, ""
}

// finish records an effect. While the log is away the answer is kept and offered again:
// as long as it is here, there is no doubt about the call.
func (a *attempt) finish(ctx context.Context, b runtime.Begun, reply runtime.Reply) (runtime.Result, error) {
	pause := waitPause{}
	for {
		var res runtime.Result
		err := patient(ctx, func(ctx context.Context) (err error) {
			res, err = a.s.opts.Log.Finish(ctx, b.Result.TraceID, b.Permit, runtime.Finished{Reply: reply, Who: "tgad mcp"})
			return err
		})
		switch {
		case errors.Is(err, tga.LimitExceeded) && reply.Result != nil:
			reply = cut(reply)
			continue
		case !errors.Is(err, tga.StoreUnavailable):
			return res, err
		}
		a.say("the tool has answered; waiting for tgad's log to record it")
		a.keep.Do(func() { close(a.kept) })
		select {
		case <-time.After(pause.next()):
		case <-ctx.Done():
			return res, err
		}
	}
}

// cut is a reply of which length and digest are recorded.
func cut(r runtime.Reply) runtime.Reply {
	t := mcpanswer.Truncated(int64(len(r.Result)), tga.Sum(r.Result), 0)
	t.ErrorMessage = fmt.Sprintf("answer of %d bytes is over what the log takes", t.ResultBytes)
	return t
}

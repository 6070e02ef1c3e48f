package mcpfront

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tgad/tgad/internal/mcpfront/attempt"
	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpfront/toolcall"
	"github.com/tgad/tgad/internal/mcpfront/wait"
	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// A shim in observe mode passes each tools/call and each answer unchanged, and records both in the log.
// It refuses nothing, holds nothing back, serves nothing from the log and sends nothing again, and a
// failure of the log does not fail the call. So it protects nothing either. It notes with each call
// what it would have done if it governed the call.

// Would says what would have become of an observed call if it were governed.
type Would string

// What would have become of it.
const (
	WouldSend     Would = "sent"
	WouldResend   Would = "sent_again"   // the call is in doubt, and its licence allows a re-send
	WouldServe    Would = "served"       // from the log: this call has run before
	WouldJoin     Would = "joined"       // it would have waited for the same call, which is under way
	WouldDoubt    Would = "in_doubt"     // not sent: the same call may have run
	WouldExplain  Would = "explained"    // not sent: the same call ran long ago, and its answer was lost
	WouldConflict Would = "key_conflict" // refused: its key belongs to another call
	WouldDeny     Would = "denied"
	WouldAsk      Would = "needs_approval"
	WouldBlock    Would = "definition_changed" // refused until a person accepts the tool's new definition
	WouldLimit    Would = "quota"              // refused: it is over the client's quota
	WouldInvalid  Would = "invalid"            // refused: two parsers could read it differently. The log does not record it
	WouldUnknown  Would = "unrecorded"         // the log did not accept it, or was away
)

// MetaObserved is the member of a request's meta that marks an observed trace. Its value is [Observed]
// if the trace is the one that a governed call would have had: it was sent, or would have been served.
// Otherwise the value is a [Would]: the call ran, and the value says what would have happened instead.
// MetaObservedOf then names the trace that the call would have been answered from.
const MetaObserved, MetaObservedOf, Observed = "observed", "observed_of", "yes"

// wouldOf maps the log's answers to what they would have led to.
var wouldOf = map[runtime.Standing]Would{
	runtime.BeginSend: WouldSend, runtime.BeginServe: WouldServe, runtime.BeginDenied: WouldDeny, runtime.BeginStale: WouldExplain,
	runtime.BeginConflict: WouldConflict, runtime.BeginInDoubt: WouldDoubt, runtime.BeginWait: WouldJoin, runtime.BeginNeedsApproval: WouldAsk,
}

// observeWait bounds how long a call, or its answer, waits for the log.
const observeWait = time.Second

// sight is an observed call. Only its own goroutine uses the fields other than came, lost and written.
type sight struct {
	q    *call
	a    *attempt.Attempt // nil if the log does not record the call
	said runtime.Begun

	came    chan *frames.Frame // the answer
	lost    chan loss          // why there will be no answer
	written *wait.Latch        // the tool server has the call, or never will
}

// loss says why no answer comes from the tool server. answer answers the client instead.
type loss struct {
	why    error
	answer func()
}

// givenUp is the loss of a request whose client does not want the answer any more.
var givenUp = loss{errors.New("its client gave it up"), func() {}}

// observe passes a tools/call unchanged. err says why its params cannot be read; then p is nil.
func (c *conv) observe(f *frames.Frame, p *toolcall.Params, err error, b *batchReply) {
	var q *call
	if err == nil {
		tool := c.s.opts.Tools(p.Tool)
		if tool.Ungoverned {
			c.passCall(f, p, b)
			return
		}
		q, err = c.newCall(f, p, tool, b)
	}
	if err != nil {
		c.s.opts.Observe(WouldInvalid)
		c.s.Log.Info("a call passed that would have been refused", "error", err)
		c.pass(f, b)
		return
	}
	o := &sight{q: q, came: make(chan *frames.Frame, 1), lost: make(chan loss, 1), written: wait.NewLatch()}
	q.w.call, q.w.seen = nil, o // not governed: its answer passes
	if err := c.register(q.w); err != nil {
		c.fail(f.RawID, b, mcpraw.CodeInvalidRequest, "", "", err.Error())
		f.Close()
		return
	}
	c.work.Go(func() { o.run(f) })
}

// run records an observed call, passes it, and waits for its answer.
func (o *sight) run(f *frames.Frame) {
	c, w := o.q.conv, o.q.w
	defer o.leave()
	defer o.written.Set()
	err := o.q.mirror() // needed without a log too: a tool server over HTTP may want arguments in headers
	if err != nil {
		c.unregister(w)
		c.failWith(w.id, w.batch, err)
		f.Close()
		return
	}
	o.begin()
	l, err := c.await(c.life)
	if err != nil {
		c.unregister(w)
		f.Close()
		w.lose(c, fmt.Errorf("%w: %w", runtime.ErrNotSent, err), err.Error())
	} else {
		if o.a != nil {
			strike := c.permits.Note(o.said, o.a.Keyless)
			defer func() {
				if c.s.Life.Err() == nil { // else the next shim gives the permit up
					strike()
				}
			}()
		}
		w.headers = o.q.headers
		c.passTo(l, f, w)
	}
	o.written.Set()
	o.wait()
}

// wait waits for the tool server's answer and passes it on. A call that its client cancelled gets no
// answer if the tool server follows the protocol. If an answer comes anyway, it is recorded.
func (o *sight) wait() {
	c := o.q.conv
	gaveUp, grace := o.q.GaveUp.C, (<-chan time.Time)(nil)
	for {
		select {
		case f := <-o.came:
			defer c.given()
			o.give(f, o.record(f))
			return
		case l := <-o.lost:
			o.ended(l.why) // before the answer: a client that has it may repeat the call, and the log must know how this one ended
			l.answer()
			return
		case <-c.life.Done():
			o.ended(errors.New("its client is gone"))
			return
		case <-gaveUp:
			gaveUp, grace = nil, time.After(c.s.opts.CancelGrace)
		case <-grace:
			o.ended(errors.New("it was cancelled and the tool server has not answered"))
		}
	}
}

// ended tells the log that the call ended without an answer.
func (o *sight) ended(why error) {
	o.tell(func(ctx context.Context) {
		if errors.Is(why, runtime.ErrNotSent) {
			o.a.NotSent(ctx, o.said, why)
		} else {
			o.a.GiveUp(ctx, o.said, why.Error())
		}
	})
}

// seenOff handles a client's cancellation of an observed call. If the call is not written yet, the
// cancellation waits for that: else the tool server would get it before the call.
func (c *conv) seenOff(o *sight, f *frames.Frame) (waits bool) {
	o.q.GaveUp.Set()
	if o.written.Is() {
		return false
	}
	c.work.Go(func() {
		<-o.written.C
		c.cancelled(f)
	})
	return true
}

// give passes an answer to the client. If the answer ended a call without a key, give also notes the
// delivery: from then on the same call is a new call.
func (o *sight) give(f *frames.Frame, final bool) {
	c := o.q.conv
	if !final || !o.q.Derived || o.a.Keyless {
		c.give(o.q.w.batch, f)
		return
	}
	defer f.Close()
	err := c.deliverIn(o.q.w.batch, o.a.Key, o.said.Result.TraceID, func() error { return c.send(o.q.w.batch, &f.Envelope, f) })
	if err != nil {
		c.s.Log.Debug("an answer did not reach its client", "trace", o.said.Result.TraceID, "error", err)
		o.q.w.batch.notRead(c, o.q.w.id, err)
	}
}

// begin records the call before it is sent. If a governed call would not have been sent, or would have
// been a re-send, the observed call is recorded in a trace of its own beside the governed call's trace.
func (o *sight) begin() {
	q, c := o.q, o.q.conv
	ctx, cancel := context.WithTimeout(c.life, observeWait)
	defer cancel()
	q.hinted(ctx)
	would, meta := WouldSend, tga.Meta{MetaObserved: Observed}
	if q.tool.Block && c.s.pins.Drifted(q.Params.Tool) != "" {
		would = WouldBlock
		meta[MetaObserved] = string(would)
	}
	b, err := o.ask(ctx, meta)
	if err == nil && b.Standing == runtime.BeginSend && b.Attempt > 1 {
		would = WouldResend
		o.a.NotSent(ctx, b, errors.New("observe mode sends nothing again"))
	} else if err == nil && b.Standing != runtime.BeginSend {
		would = wouldOf[b.Standing]
	}
	if err == nil && (b.Standing != runtime.BeginSend || b.Attempt > 1) {
		o.leave()
		q.LedgerKey = "observed=" + frames.Nonce()
		b, err = o.ask(ctx, tga.Meta{MetaObserved: string(would), MetaObservedOf: b.Result.TraceID.String()})
		if err == nil && b.Standing != runtime.BeginSend {
			err = tga.Errorf(tga.StateInvalidTransition, "the log answers %q to a new key", b.Standing)
		}
	}
	if err != nil {
		o.leave()
		o.a, would = nil, WouldUnknown
		c.s.Log.Warn("a call is not recorded", "tool", q.Params.Tool, "error", err)
	}
	o.said = b
	c.s.opts.Observe(would)
}

// ask asks the log for a permit, as a governed call does.
func (o *sight) ask(ctx context.Context, meta tga.Meta) (runtime.Begun, error) {
	q, s := o.q, o.q.conv.s
	if err := s.Shelf.Load(ctx); err != nil {
		return runtime.Begun{}, err
	}
	key, err := q.key()
	if err != nil {
		return runtime.Begun{}, err
	}
	if o.a, err = s.Apart(&q.Call, key, meta); err != nil {
		return runtime.Begun{}, err
	}
	b, err := o.a.Begin(ctx, frames.Nonce())
	if o.a.Keyless && errors.Is(err, tga.IdempotencyKeyRequired) {
		s.SetNeedsKey(q.Params.Tool)
		o.leave()
		return o.ask(ctx, meta)
	}
	if err == nil && b.Standing == runtime.BeginServe && o.a.StartsAnew(b.Result) {
		b, err = o.a.Begin(ctx, frames.Nonce())
	}
	return b, err
}

// leave ends the current attempt.
func (o *sight) leave() {
	if o.a != nil {
		o.a.Leave()
	}
}

// tell makes a request to the log about the call's end, if the log has the call. The request may outlive
// the conversation by at most observeWait.
func (o *sight) tell(f func(ctx context.Context)) {
	if o.a == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(o.q.conv.life), observeWait)
	defer cancel()
	f(ctx)
}

// record records an answer before the client has it. It reports whether the answer is recorded as the
// call's effect.
func (o *sight) record(f *frames.Frame) (final bool) {
	s := o.q.conv.s
	o.tell(func(ctx context.Context) {
		ans, err := attempt.ReadAnswer(f, 1, s.opts.MaxKeepBytes)
		switch {
		case err != nil:
			o.a.GiveUp(ctx, o.said, err.Error())
		case ans.Meaning == mcpraw.IsDoubt:
			o.a.GiveUp(ctx, o.said, "the tool server's answer does not say what happened: "+ans.Why)
		case ans.Meaning == mcpraw.IsTask:
			o.a.GiveUp(ctx, o.said, "the tool server made a task of it, and observe mode follows no tasks")
		case ans.Meaning == mcpraw.WantsInput:
			o.a.NotSent(ctx, o.said, errors.New("the tool server wants input; the call that brings it is another one to observe mode"))
		case ans.Meaning == mcpraw.WantsURL:
			o.a.NotSent(ctx, o.said, errors.New("the tool server has not run it: "+ans.Why))
		default:
			if ans.Meaning == mcpraw.IsRefusal {
				ans.Reply.RetryAfter = f.After
			}
			if _, err = o.a.Finish(ctx, o.said, ans.Reply); err != nil {
				s.Log.Warn("an answer is not recorded; its call stays in doubt", "trace", o.said.Result.TraceID, "error", err)
			}
			final = err == nil
		}
	})
	return final
}

// lose answers a request to which the tool server gives no answer. For an observed call its goroutine tells the log
// first. The log then takes the call as sent, unless why is [runtime.ErrNotSent].
func (w *waiting) lose(c *conv, why error, text string) {
	w.loseTo(loss{why, func() {
		c.challengedBy(why, w.id, w.batch)
		c.fail(w.id, w.batch, mcpraw.CodeGone, "", "", text)
	}})
}

func (w *waiting) loseTo(l loss) {
	if w.seen == nil {
		l.answer()
		return
	}
	select {
	case w.seen.lost <- l:
	default: // a loss is already reported
	}
}

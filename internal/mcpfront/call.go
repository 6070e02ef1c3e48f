package mcpfront

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/tgad/tgad/internal/mcpfront/asklog"
	"github.com/tgad/tgad/internal/mcpfront/attempt"
	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpfront/toolcall"
	"github.com/tgad/tgad/internal/mcpfront/toolset"
	"github.com/tgad/tgad/internal/mcpfront/wait"
	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// call is a governed tools/call of a client.
type call struct {
	attempt.Call
	conv    *conv
	w       *waiting
	env     mcpraw.Envelope
	head    []byte // the message's bytes before its params
	tail    []byte // and after them
	tool    toolcall.Tool
	token   []byte               // token of progress notifications; nil = the client wants none
	version mcpraw.Revision      // protocol revision that the request itself names
	steps   uint64               // progress notifications sent so far
	headers []mcpraw.ParamHeader // arguments that the tool server wants in headers
	asTask  bool                 // the client accepts a task of the shim's own in place of an answer
	tasked  atomic.Bool          // the client has got that task
}

// approvalPatience is how long a call waits for people if its client asked for no progress
// notifications. Then the client is answered that the call waits. It is shorter than a
// minute, after which clients give up.
const approvalPatience = 45 * time.Second

// progressEvery is the time between progress notifications.
const progressEvery = 5 * time.Second

// toolsCall handles a tools/call. It refuses a call that cannot be governed: if two parsers
// read an argument differently, one call would be approved and another would run.
func (c *conv) toolsCall(f *frames.Frame, b *batchReply) {
	raw, err := f.Bytes(f.Params, toolcall.MaxParams)
	var p *toolcall.Params
	if err == nil {
		p, err = toolcall.Parse(raw)
	}
	if c.s.opts.Observe != nil {
		c.observe(f, p, err, b)
		return
	}
	if err != nil {
		c.failWith(f.RawID, b, err)
		f.Close()
		return
	}
	said, err := p.TakeWord()
	if err != nil {
		c.failWith(f.RawID, b, err)
		f.Close()
		return
	}
	if own := c.s.owns.Of(p.Tool); own != nil {
		c.doubts.callOwn(own, f, p, b)
		return
	}
	tool := c.s.opts.Tools(p.Tool)
	if tool.Ungoverned {
		c.passCall(f, p, b)
		return
	}
	q, err := c.newCall(f, p, tool, b)
	f.Close()
	if err == nil {
		q.Vote, q.VoteOn, q.Posed = said.Vote, said.On, said.Given
		if q.Params.InRequest() { // else no person can have been asked in an earlier answer
			q.Again = said.Again
		}
	} else {
		c.failWith(f.RawID, b, err)
		return
	}
	if err := c.register(q.w); err != nil {
		c.fail(f.RawID, b, mcpraw.CodeInvalidRequest, "", "", err.Error())
		return
	}
	c.polls.resume()
	c.work.Go(func() {
		q.asTask = c.own.offersTasks(p)
		q.run()
	})
}

// newCall makes a governed call from a message.
func (c *conv) newCall(f *frames.Frame, p *toolcall.Params, tool toolcall.Tool, b *batchReply) (*call, error) {
	q := &call{
		conv: c, env: f.Envelope, tool: tool, token: p.MetaValue("progressToken"), version: p.Revision(), w: &waiting{id: f.RawID, method: f.Method, batch: b},
	}
	q.Call = attempt.Call{
		Params: p, By: q, To: c.to, Connection: c.id, Shared: c.shared, Subject: c.subject, Present: c.present, Permits: c.permits, Earlier: c.before(),
		Arrivals: make(chan *frames.Frame, 1), GaveUp: wait.NewLatch(),
	}
	q.w.call = q
	var err error
	if q.head, q.tail, err = toolcall.Around(f); err != nil {
		return nil, err
	}
	return q, q.gate()
}

// before returns the deliveries of answers that the client may have had before it made this
// call.
func (c *conv) before() []*attempt.Delivery {
	if c.kin == nil {
		return c.s.Owed(c.to)
	}
	var all []*attempt.Delivery
	for _, a := range c.kin() {
		all = append(all, a.s.Owed(a.to)...)
	}
	return all
}

// failWith answers a request with a JSON-RPC error that has err's code and pointer.
func (c *conv) failWith(id []byte, b *batchReply, err error) {
	words := err.Error()
	c.challengedBy(err, id, b)
	var e *tga.Error
	if errors.As(err, &e) && e.Pointer != "" {
		words = "the call cannot be governed: " + e.Message + " at " + e.Pointer
	}
	c.fail(id, b, mcpraw.CodeInvalidParams, tga.CodeOf(err), "", words)
}

// gate checks the arguments, and sets their canonical form and the request's digest.
func (q *call) gate() error {
	args := q.Params.Args
	if args == nil || string(args) == "null" {
		args = []byte("{}")
	}
	var err error
	if q.Args, err = tga.Canonicalize(args, tga.Limits{}); err != nil {
		return toolcall.Under("/params/arguments", err)
	}
	if len(q.Args) == 0 || q.Args[0] != '{' {
		return tga.Errorf(tga.ValidationError, "want an object").At("/params/arguments")
	}
	q.Asked = tga.RequestDigest(tga.Proposal{ToolServer: q.conv.s.opts.Server, ToolName: q.Params.Tool, Args: q.Args})
	return nil
}

// run makes the call and answers the client.
func (q *call) run() {
	for {
		err := q.unchanged()
		if err == nil {
			err = q.mirror()
		}
		q.hinted(q.conv.life)
		var key string
		if err == nil {
			key, err = q.key()
		}
		var a *attempt.Attempt
		var mine bool
		if err == nil {
			a, mine, err = q.conv.s.Join(&q.Call, key)
		}
		if err != nil {
			q.conv.unregister(q.w)
			q.turnedAway(err)
			return
		}
		if !mine && q.VoteOn == a.Trace() {
			a.Cast(q.conv.life, q.VoteOn, q.Vote)
		}
		if !q.wait(a) {
			q.GoesWithout()
			q.leave(a, mine)
			return
		}
		if a.Out.Again {
			q.GoesWithout()
			continue // it is a write call after all: this time under its key
		}
		if !a.Out.Final || !q.Derived || a.Keyless {
			err = q.answer(a, mine)
		} else {
			err = q.conv.deliverIn(q.w.batch, key, a.Out.Own, func() error { return q.answer(a, mine) })
		}
		q.GoesWithout()                      // not before: who waits for an answer is there until it has it
		if errors.Is(err, attempt.ErrOver) { // else a client that is gone is seen by send
			q.conv.spare(q.w.batch)
		}
		q.w.batch.notRead(q.conv, q.w.id, err)
		q.conv.doubts.look(&a.Out)
		return
	}
}

// turnedAway answers a call for which no attempt was made. If the call itself is not at fault, the
// words say that it can be repeated.
func (q *call) turnedAway(err error) {
	var ch *frames.Challenge
	code := tga.CodeOf(err)
	errors.As(err, &ch)
	if code != tga.StoreUnavailable && code != tga.ToolError || ch.ComesBack() {
		q.conv.failWith(q.w.id, q.w.batch, err)
		return
	}
	_ = q.reply(q.refusal(code, tga.ID{}, "The call was not sent: "+err.Error()+". Nothing has happened. Repeat the same call later.")) // a client that is gone is seen by send
}

// unchanged refuses a call of a tool whose definition is not the pinned one, if the tool's row
// says so. If the tools were not listed in this life of the tool server, it lists them first.
func (q *call) unchanged() error {
	if !q.tool.Block {
		return nil
	}
	c := q.conv
	// StartTimeout bounds the wait for a server that never answers.
	list := func(l *link) error {
		return asklog.WhileAway(c.s.opts.LogTimeout, func(d time.Duration, _ error) bool { return wait.Rest(c.life, d) }, func() error {
			ctx, cancel := context.WithTimeout(c.life, c.s.opts.StartTimeout)
			defer cancel()
			return c.tools.listTools(ctx, l, q.Params.Protocol(), func(page []toolset.Definition) error { return c.s.pins.See(ctx, page) })
		})
	}
	l, err := c.await(c.life)
	if err == nil && !l.listed.Load() {
		err = list(l)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("no answer to tools/list in %v: %w", c.s.opts.StartTimeout, err)
	}
	if err != nil {
		code := tga.ToolError // the definition is unknown, not known to have changed
		if errors.Is(err, tga.StoreUnavailable) {
			code = tga.StoreUnavailable
		}
		return tga.Errorf(code, "the definition of %s cannot be looked at: %w", q.Params.Tool, err)
	}
	pinned := c.s.pins.Drifted(q.Params.Tool)
	if pinned == "" {
		return nil
	}
	// The user may have accepted the new definition since, as the refusal suggests.
	err = list(l)
	if err == nil && c.s.pins.Drifted(q.Params.Tool) == "" {
		return nil
	}
	return tga.Errorf(tga.ToolSchemaChanged, "the definition of %s is not the one that was pinned (%s). It was not called. The user can accept it with:\n  %s\n"+
		"After that the same call runs. Without --accept the command shows the definitions", q.Params.Tool, pinned, c.s.opts.Accept)
}

// mirror finds out which of the call's arguments go into headers.
func (q *call) mirror() error {
	m, err := q.conv.tools.mirrored(q.conv.life, q.Params)
	q.headers = m.Headers
	return err
}

// wait waits for the attempt's outcome. It returns false if the client does not get the
// outcome: it was answered otherwise, or is gone.
func (q *call) wait(a *attempt.Attempt) bool {
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	kept, stalled, unseen := a.Kept.C, (<-chan time.Time)(nil), (<-chan time.Time)(nil)
	var named, people chan struct{}
	if q.asTask && !a.Keyless {
		named = a.Named.C
	}
	if !q.Posed {
		people = a.People.C
	}
	for {
		select {
		case <-a.Done.C:
			return true
		case <-people:
			people = nil
			q.progress(a.Standing()) // at once: it says who can approve
			if a.AskPeople(&q.Call) {
				return false
			}
			if q.token == nil && !a.Asking.Load() {
				unseen = time.After(q.conv.s.patience)
			}
		case <-unseen:
			// Without progress the client does not know that the call waits for people. It would
			// give up, and its user would not learn of the question.
			_ = q.reply(q.refusal(tga.EscalationRequired, a.Trace(), a.ApprovalWords()))
			return false
		case <-named:
			select {
			case <-people: // first: a client that has a task is not asked any more
				continue
			default:
			}
			named = nil
			if q.toTask(a) {
				return false
			}
		case <-kept:
			kept = nil
			stalled = time.After(q.conv.s.opts.LogTimeout)
		case <-stalled:
			// The attempt goes on; a repeat of the call finds it.
			_ = q.reply(q.refusal(tga.StoreUnavailable, a.Trace(), "The tool has answered, but tgad cannot record the answer now: its log is away. "+
				"The answer is kept and will be recorded. Repeat the same call to get it; it will not run again."))
			return false
		case <-q.GaveUp.C:
			q.conv.spare(q.w.batch)
			return false // the protocol wants no answer to a request that was cancelled
		case <-tick.C:
			q.progress(a.Standing())
		case <-q.conv.life.Done():
			return false
		}
	}
}

// cancelled handles a client's notice that it cancelled a request. The tool server is told
// only about a request that was sent to it.
func (c *conv) cancelled(f *frames.Frame) {
	params, err := f.Bytes(f.Params, frames.MaxCancel)
	if err != nil {
		f.Close()
		return
	}
	id := mcpraw.At(params, "/requestId")
	c.mu.Lock()
	w := c.pending[frames.KeyOf(id)]
	c.mu.Unlock()
	if w != nil && w.sub != nil && (w.sub.raw == nil || c.s.opts.URL != "") {
		c.subs.unsubscribe(w)
	} else if w != nil && w.sub != nil {
		w.sub.end() // the tool server's answer passes to the client
	}
	if w != nil && w.seen != nil && c.seenOff(w.seen, f) {
		return
	}
	if w == nil || w.call == nil {
		if w != nil && w.modern && c.s.opts.URL != "" {
			c.unregister(w) // the POST is ended, so no answer comes
			w.loseTo(givenUp)
		}
		c.turns.tell(f, func() { c.withdraw(w, f) })
		return
	}
	q := w.call
	if q.tasked.Load() {
		f.Close() // the request was answered with a task, which tasks/cancel cancels
		return
	}
	q.GaveUp.Set()
	told := false
	if last := q.GoesWithout(); last && q.Sent.Load() {
		// No call joins the attempt from now on: a cancelled tool server may never answer.
		if told = q.Attempt().Told.Set(); told {
			c.forward(f)
		}
	}
	if !told {
		f.Close() // the call was not sent, the server was already told, or other calls wait for it
	}
}

// withdraw passes the cancellation of a request that is not governed; w is nil if no such request is under way. The tool server
// need not answer what was cancelled.
func (c *conv) withdraw(w *waiting, f *frames.Frame) {
	c.forwardNow(f)
	switch {
	case w == nil || !c.wasPassed(w):
	case w.batch == nil:
		c.keepLate(w)
	case c.taken(w):
		c.spare(w.batch) // the rest of its array must not wait for this answer
		w.loseTo(givenUp)
	}
}

// wasPassed reports whether a request was passed unchanged to the tool server.
func (c *conv) wasPassed(w *waiting) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return w.link != nil && w.call == nil && w.sub == nil
}

// message is the call as the tool server gets it.
func (q *call) message(key, trace string, attempt uint32, sc runtime.SpanContext) *frames.Message {
	params := q.Params.Govern(q.Args, key, trace, attempt, q.tool, sc)
	m := &frames.Message{Env: &q.env, Name: q.Params.Tool, Version: q.version, Parts: []io.WriterTo{frames.Text(q.head), frames.Text(params), frames.Text(q.tail)}}
	m.Mirrored = toolset.MirroredOf(q.headers, params)
	return m
}

// Await waits for a tool server that runs, and returns it.
func (q *call) Await(ctx context.Context) (frames.Upstream, error) {
	l, err := q.conv.await(ctx)
	if err != nil {
		q.conv.challengedBy(err, q.w.id, q.w.batch)
		return nil, err
	}
	return l.up, nil
}

// Write writes the call to the tool server. It calls late right before the first byte, and
// writes nothing if late returns an error.
func (q *call) Write(up frames.Upstream, b runtime.Begun, sc runtime.SpanContext, late func() error) error {
	l := q.conv.current()
	if l == nil || l.up != up {
		return runtime.ErrNotSent
	}
	m := q.message(b.Key, b.Result.TraceID.String(), b.Attempt, sc)
	m.Late = late
	return q.conv.write(l, q.w, m)
}

func (q *call) Elicits() bool           { return q.conv.opening.Elicits() }
func (q *call) Agreed() mcpraw.Revision { return q.conv.opening.Version() }
func (q *call) Dropped()                { q.conv.unregister(q.w) }
func (q *call) Settled()                { q.conv.doubts.changed() }

func (q *call) Poll(o *attempt.Open, made bool) bool { return q.conv.polls.poll(o, made) }

func (q *call) Elicit(ctx context.Context, question []byte, over func()) ([]byte, error) {
	return q.conv.askClient(ctx, "elicitation/create", question, over)
}

func (q *call) Withdraw() {
	raw := append([]byte(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`), q.w.id...)
	q.conv.forward(frames.NewFrame(append(raw, "}}"...)))
}

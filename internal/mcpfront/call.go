package mcpfront

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tgad/tgad/internal/mcpfront/asklog"
	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpfront/toolcall"
	"github.com/tgad/tgad/internal/mcpfront/toolset"
	"github.com/tgad/tgad/internal/mcpfront/wait"
	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// call is a governed tools/call that a client waits for.
type call struct {
	conv   *conv
	w      *waiting
	env    mcpraw.Envelope
	head   []byte // the message before its params, and after them
	tail   []byte
	params *toolcall.Params
	tool   toolcall.Tool
	hint   string // of the tool server, about its tool

	args      []byte // canonical
	asked     tga.Digest
	token     []byte          // of progress notifications; nil = none wanted
	version   mcpraw.Revision // protocol revision that the request itself names
	steps     uint64          // progress notifications so far
	arrivals  chan *frames.Frame
	gaveUp    *wait.Latch
	mu        sync.Mutex
	sent      atomic.Bool
	joined    *attempt
	derived   bool // it has no key of its own
	scope     string
	part      func() bool         // says that it waits for its attempt no more, see [attempt.exit]
	vote      *toolcall.Vote      // of a person at the client, on
	voteOn    tga.ID              // this trace
	again     tga.ID              // of a call that this person says to run again
	posed     bool                // this message has asked its person, or brings what that one says
	question  []byte              // the answer to this message that asks
	abandoned func(*frames.Frame) // takes an answer that comes after the attempt gave up

	// Of a task of the shim's own.
	asTask    bool        // the client takes one in place of an answer
	tasked    atomic.Bool // and has it
	trace     tga.ID      // that a task taken up goes on with, zero for any other call
	ledgerKey string      // of that trace; "" = it is derived still
	noSend    bool        // it was cancelled

	headers []mcpraw.ParamHeader // arguments that the tool server wants in headers
	earlier []*delivery          // answers that the client may have gone on from
}

// approvalPatience is how long a call waits for people before a client that asked for no
// progress is told of it in an answer. Clients give up after a minute.
const approvalPatience = 45 * time.Second

// progressEvery is how often a client that waits is told so.
const progressEvery = 5 * time.Second

// toolsCall takes a tools/call. What cannot be governed is refused: an argument that two
// parsers read apart would be approved as one call and run as another.
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
		c.failWith(f.RawID, b, mcpraw.CodeInvalidParams, "", err)
		f.Close()
		return
	}
	said, err := p.TakeWord()
	if err != nil {
		c.failWith(f.RawID, b, mcpraw.CodeInvalidParams, "", err)
		f.Close()
		return
	}
	if own := c.s.ownTool(p.Tool); own != nil {
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
		q.vote, q.voteOn, q.posed = said.Vote, said.On, said.Given
		if q.params.InRequest() { // else nobody was asked
			q.again = said.Again
		}
	} else {
		c.failWith(f.RawID, b, mcpraw.CodeInvalidParams, "", err)
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

// newCall makes a governed call of a message.
func (c *conv) newCall(f *frames.Frame, p *toolcall.Params, tool toolcall.Tool, b *batchReply) (*call, error) {
	q := &call{
		conv: c, env: f.Envelope, params: p, tool: tool, token: p.MetaValue("progressToken"),
		version:  p.Revision(),
		w:        &waiting{id: f.RawID, method: f.Method, batch: b},
		arrivals: make(chan *frames.Frame, 1), gaveUp: wait.NewLatch(),
	}
	q.w.call, q.earlier = q, c.before()
	var err error
	if q.head, q.tail, err = toolcall.Around(f); err != nil {
		return nil, err
	}
	return q, q.gate()
}

// before are the answers that the client may have gone on from to its next call.
func (c *conv) before() []*delivery {
	if c.kin == nil {
		return c.s.owed(c)
	}
	var all []*delivery
	for _, a := range c.kin() {
		all = append(all, a.s.owed(a.conv)...)
	}
	return all
}

// failWith answers with a coded error and its pointer.
func (c *conv) failWith(id []byte, b *batchReply, code int, trace string, err error) {
	words := err.Error()
	var ch *frames.Challenge
	if errors.As(err, &ch) {
		c.challenged(id, b, ch)
	}
	var e *tga.Error
	if errors.As(err, &e) && e.Pointer != "" {
		words = "the call cannot be governed: " + e.Message + " at " + e.Pointer
	}
	c.fail(id, b, code, tga.CodeOf(err), trace, words)
}

// gate checks the arguments and makes their canonical form. Input that a client adds
// when it goes on with a call is part of what is asked.
func (q *call) gate() error {
	args := q.params.Args
	if args == nil || string(args) == "null" {
		args = []byte("{}")
	}
	var err error
	if q.args, err = tga.Canonicalize(args, q.conv.s.opts.Limits); err != nil {
		return toolcall.Under("/params/arguments", err)
	}
	if len(q.args) == 0 || q.args[0] != '{' {
		return tga.Errorf(tga.ValidationError, "want an object").At("/params/arguments")
	}
	q.asked = tga.RequestDigest(tga.Proposal{ToolServer: q.conv.s.opts.Server, ToolName: q.params.Tool, Args: q.args})
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
		var a *attempt
		var mine bool
		if err == nil {
			a, mine, err = q.conv.s.join(q, key)
		}
		if err != nil {
			q.conv.unregister(q.w)
			q.turnedAway(err)
			return
		}
		if !mine && q.voteOn == a.trace() {
			a.cast(q.conv.life, q.voteOn, q.vote)
		}
		if !q.wait(a, mine) {
			q.goesWithout()
			q.leave(a, mine)
			return
		}
		if a.out.again {
			q.goesWithout()
			continue // it is a write call after all: this time under its key
		}
		if !a.out.final || !q.derived || a.keyless {
			err = q.answer(a, mine)
		} else {
			err = q.conv.deliverIn(q.w.batch, key, a.out.own, func() error { return q.answer(a, mine) })
		}
		q.goesWithout()              // not before: who waits for an answer is there until it has it
		if errors.Is(err, errOver) { // else a client that is gone is seen by send
			q.conv.spare(q.w.batch)
		}
		q.conv.doubts.look(&a.out)
		return
	}
}

// turnedAway answers a call that came to no attempt. What is no fault of its own may be made again.
func (q *call) turnedAway(err error) {
	var ch *frames.Challenge
	code := tga.CodeOf(err)
	if code != tga.StoreUnavailable && code != tga.ToolError || errors.As(err, &ch) {
		q.conv.failWith(q.w.id, q.w.batch, mcpraw.CodeInvalidParams, "", err)
		return
	}
	_ = q.reply(q.refusal(code, tga.ID{}, "The call was not sent: "+err.Error()+". Nothing has happened. Repeat the same call later.")) // a client that is gone is seen by send
}

// unchanged refuses a call of a tool whose definition is not the pinned one, where it is
// told to. A tool server whose tools nobody has listed yet is asked for them first.
func (q *call) unchanged() error {
	if !q.tool.Block {
		return nil
	}
	c := q.conv
	// A server that never answers holds up its own calls, but not for ever.
	list := func(l *link) error {
		return asklog.WhileAway(c.s.opts.LogTimeout, func(d time.Duration, _ error) bool { return wait.Rest(c.life, d) }, func() error {
			ctx, cancel := context.WithTimeout(c.life, c.s.opts.StartTimeout)
			defer cancel()
			return c.tools.listTools(ctx, l, q.params.Protocol(), func(page []toolset.Definition) error { return c.s.pins.See(ctx, page) })
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
		code := tga.ToolError // nobody says that it has changed
		if errors.Is(err, tga.StoreUnavailable) {
			code = tga.StoreUnavailable
		}
		return tga.Errorf(code, "the definition of %s cannot be looked at: %w", q.params.Tool, err)
	}
	pinned := c.s.pins.Drifted(q.params.Tool)
	if pinned == "" {
		return nil
	}
	// Somebody may have accepted it since: the refusal says how.
	err = list(l)
	if err == nil && c.s.pins.Drifted(q.params.Tool) == "" {
		return nil
	}
	return tga.Errorf(tga.ToolSchemaChanged, "the definition of %s is not the one that was pinned (%s). It was not called. The user can accept it with:\n  %s\n"+
		"After that the same call runs. Without --accept the command shows the definitions", q.params.Tool, pinned, c.s.opts.Accept)
}

// mirror finds out which of the call's arguments go into headers.
func (q *call) mirror() error {
	m, err := q.conv.tools.mirrored(q.conv.life, q.params)
	q.headers = m.Headers
	return err
}

// wait waits for the attempt's outcome. It returns false when the client is not to get
// it.
func (q *call) wait(a *attempt, mine bool) bool {
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	kept, stalled, unseen := a.kept.C, (<-chan time.Time)(nil), (<-chan time.Time)(nil)
	var named, people chan struct{}
	if q.asTask && !a.keyless {
		named = a.named.C
	}
	if !q.posed {
		people = a.people.C
	}
	for {
		select {
		case <-a.done.C:
			return true
		case <-people:
			people = nil
			q.progress(a.standing()) // at once: it says who is waited for
			if q.ask(a) {
				return false
			}
			if q.token == nil && !a.asking.Load() {
				unseen = time.After(q.conv.s.patience)
			}
		case <-unseen:
			// The client hears nothing of what is waited for, and would give up in silence.
			_ = q.reply(q.refusal(tga.EscalationRequired, a.trace(), a.approvalWords()))
			return false
		case <-named:
			select {
			case <-people: // first: with a task in hand the client is not asked any more
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
			_ = q.reply(q.refusal(tga.StoreUnavailable, a.trace(), "The tool has answered, but tgad cannot record the answer now: its log is away. "+
				"The answer is kept and will be recorded. Repeat the same call to get it; it will not run again."))
			return false
		case <-q.gaveUp.C:
			q.conv.spare(q.w.batch)
			return false // nobody waits for an answer; the protocol asks for none
		case <-tick.C:
			q.progress(a.standing())
		case <-q.conv.life.Done():
			return false
		}
	}
}

func (q *call) setAttempt(a *attempt) {
	q.mu.Lock()
	q.joined, q.part = a, sync.OnceValue(a.exit)
	q.mu.Unlock()
	if q.gaveUp.Is() {
		q.goesWithout() // who gave the call up before there was an attempt could not leave it
	}
}

// goesWithout says that the call does not wait for its attempt any more. It reports whether
// it was the last one that did.
func (q *call) goesWithout() (last bool) {
	q.mu.Lock()
	part := q.part
	q.mu.Unlock()
	return part != nil && part()
}

func (q *call) attempt() *attempt {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.joined
}

// cancelled takes a client's notice that it gave a request up. What the tool server has
// not been sent it is not told about.
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
		w.sub.end() // and what the tool server answers passes
	}
	if w != nil && w.seen != nil && c.seenOff(w.seen, f) {
		return
	}
	if w == nil || w.call == nil {
		if w != nil && w.modern && c.s.opts.URL != "" {
			c.unregister(w) // its stream is closed: no answer comes
			w.loseTo(loss{errors.New("its client gave it up"), func() {}})
		}
		c.forward(f)
		if w != nil && w.batch != nil && c.wasPassed(w) && c.taken(w) {
			c.spare(w.batch) // and the others of its array do not wait for it
		}
		return
	}
	q := w.call
	if q.tasked.Load() {
		f.Close() // the request was answered; a task is cancelled by tasks/cancel
		return
	}
	q.gaveUp.Set()
	told := false
	if last := q.goesWithout(); last && q.sent.Load() {
		// Nobody joins it from now on: they would wait for a tool server that may not
		// answer any more.
		if told = q.attempt().told.Set(); told {
			c.forward(f)
		}
	}
	if !told {
		f.Close() // it was not sent, the tool server knows, or others wait for the same call
	}
}

// wasPassed reports whether the tool server has a request that was passed on as it is.
func (c *conv) wasPassed(w *waiting) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return w.link != nil && w.call == nil && w.sub == nil
}

// arrived takes the tool server's answer.
func (q *call) arrived(f *frames.Frame) {
	q.mu.Lock()
	late := q.abandoned
	q.mu.Unlock()
	if late != nil {
		late(f)
		return
	}
	select {
	case q.arrivals <- f:
	default:
		q.conv.s.log.Warn("a second answer to one call was dropped")
		f.Close()
	}
}

// message is the call as the tool server gets it.
func (q *call) message(key, trace string, attempt uint32, sc runtime.SpanContext) *frames.Message {
	params := q.params.Govern(q.args, key, trace, attempt, q.tool, sc)
	m := &frames.Message{Env: &q.env, Name: q.params.Tool, Version: q.version, Parts: []io.WriterTo{frames.Text(q.head), frames.Text(params), frames.Text(q.tail)}}
	m.Mirrored = toolset.MirroredOf(q.headers, params)
	return m
}

// send writes the call to the tool server, unless late has an error when its first byte is
// about to go out.
func (q *call) send(l *link, b runtime.Begun, sc runtime.SpanContext, late func() error) error {
	select {
	case f := <-q.arrivals: // of an earlier attempt
		f.Close()
	default:
	}
	q.sent.Store(true) // before the write: a cancellation that comes meanwhile must follow it
	m := q.message(b.Key, b.Result.TraceID.String(), b.Attempt, sc)
	m.Late = late
	err := q.conv.write(l, q.w, m)
	if errors.Is(err, runtime.ErrNotSent) {
		q.sent.Store(false)
	}
	return err
}

// lateTo hands an answer that comes from now on to f.
func (q *call) lateTo(f func(*frames.Frame)) {
	q.mu.Lock()
	q.abandoned = f
	q.mu.Unlock()
	select {
	case came := <-q.arrivals: // it came in between
		f(came)
	default:
	}
}

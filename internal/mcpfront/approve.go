package mcpfront

import (
	"context"
	"errors"
	"fmt"

	"github.com/tgad/tgad/internal/clip"
	"github.com/tgad/tgad/internal/mcpfront/asklog"
	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpfront/toolcall"
	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// A call that waits for people can ask those at the client: a client of a revision with a
// handshake is sent elicitation/create, one without a handshake is answered
// input_required. Whether their word counts is the log's to say: by default it refuses
// the vote of whoever handed the call in. Who waits goes on waiting then.

// questionFor is the params of an elicitation about a call, for the client of q.
func (a *attempt) questionFor(q *call) []byte {
	said := ""
	if a.needs != nil {
		said = a.needs.Error()
	}
	words := fmt.Sprintf("May the tool %s of %s be called? It needs an approval (%s). Arguments: %s",
		a.q.params.Tool, a.s.opts.Server, clip.Runes(said, 200), toolcall.Shown(a.q.args))
	return q.params.Form(q.conv.opening.version(), words, `"approve":{"type":"boolean","title":"Approve this call"},"reason":{"type":"string","title":"Why"}`, "approve")
}

// wantPeople tells who waits that people are to decide.
func (a *attempt) wantPeople(b runtime.Begun) {
	if !a.people.Is() { // only the goroutine of the attempt sets it
		a.needs, a.barred = b.Cause, b.Barred
	}
	a.say("waiting for an approval: " + a.needs.Error() + ". Who may give it types: " + a.s.approveVerb(b.Result.TraceID))
	a.people.Set() // after the words: who waits reads them now
}

// ask asks the person at the client of a message that waits for people, once a message: who
// makes the call again is asked again, one who has just said neither yes nor no is not. It
// reports whether the message is answered with the question; it ends with that, until it is
// repeated with what the person says.
func (q *call) ask(a *attempt) (answered bool) {
	q.posed = true
	if a.barred || a.s.voteless.Load() {
		return false // in vain: who may decide is told in the progress, or in the answer
	}
	trace := a.trace()
	if q.params.InRequest() {
		q.question = toolcall.AskVote(a.questionFor(q), trace)
		return true
	}
	if !q.conv.opening.elicits() || !a.asking.CompareAndSwap(false, true) {
		return false
	}
	question := a.questionFor(q)
	a.s.work.Go(func() {
		ctx, cancel := a.done.Ends(a.s.life) // decided elsewhere, or given up
		defer cancel()
		result, err := q.conv.askClient(ctx, "elicitation/create", question, func() { a.asking.Store(false) })
		if err != nil {
			a.s.log.Debug("the client did not ask its person", "trace", trace, "error", err)
			return
		}
		a.cast(ctx, trace, toolcall.ReadVote(result))
	})
	return false
}

// cast gives a vote to the log.
func (a *attempt) cast(ctx context.Context, trace tga.ID, v *toolcall.Vote) {
	if v == nil {
		return
	}
	err := asklog.Patient(ctx, func(ctx context.Context) error {
		_, err := a.s.opts.Log.Decide(ctx, trace, wire.DecideRequest{Approve: v.Approve, Rationale: v.Words})
		return err
	})
	switch {
	case errors.Is(err, tga.PermissionDenied), errors.Is(err, tga.PolicyViolation):
		a.s.voteless.Store(true)
		why := err.Error()
		a.unheard.Store(&why)
		a.s.log.Warn("the log does not take the vote of the person at the client; people elsewhere decide", "trace", trace, "error", err)
	case err != nil && ctx.Err() == nil && tga.CodeOf(err) != tga.IdempotencyKeyInFlight:
		a.s.log.Warn("a vote of the person at the client was not taken", "trace", trace, "error", err)
	}
}

// elicits reports whether the client said in its handshake that it can ask its person.
func (o *opening) elicits() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.done && o.agreed.Elicits() && mcpraw.At(o.initialize, "/capabilities/elicitation") != nil
}

// posed is a question to the client that is open.
type posed struct {
	to   chan *frames.Frame
	over func() // called when it is not open any more, before the client's next message is taken
}

// askClient makes a request of the shim's own to the client and returns its result. When
// ctx ends first the client is told.
func (c *conv) askClient(ctx context.Context, method string, params []byte, over func()) ([]byte, error) {
	id := []byte(`"` + ownPrefix + frames.Nonce() + `"`)
	raw := tga.AppendString(append(append([]byte(`{"jsonrpc":"2.0","id":`), id...), `,"method":`...), method)
	f := frames.NewFrame(append(append(append(raw, `,"params":`...), params...), '}'))
	got := make(chan *frames.Frame, 1)
	c.mu.Lock()
	c.questions[frames.KeyOf(id)] = &posed{to: got, over: over}
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		if p := c.questions[frames.KeyOf(id)]; p != nil {
			delete(c.questions, frames.KeyOf(id))
			p.over()
		}
		c.mu.Unlock()
	}()
	if err := c.send(nil, &f.Envelope, f); err != nil {
		return nil, err
	}
	select {
	case f := <-got:
		defer f.Close()
		if !f.Result.Present() {
			said, err := f.Bytes(f.Fault, frames.SpillBytes)
			return nil, errors.Join(fmt.Errorf("the client answers %.200s", said), err)
		}
		return f.Bytes(f.Result, frames.SpillBytes)
	case <-ctx.Done():
		n := frames.NewFrame(append(append([]byte(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`), id...), "}}"...))
		_ = c.send(nil, &n.Envelope, n) // a client that is gone is seen by send
		return nil, context.Cause(ctx)
	case <-c.life.Done():
		return nil, errOver
	}
}

// ownQuestion takes a client's answer to a question of the shim's.
func (c *conv) ownQuestion(f *frames.Frame) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := frames.KeyOf(f.RawID)
	p := c.questions[key]
	delete(c.questions, key)
	if p != nil {
		p.over()
		p.to <- f // it has room for one, and one is all that comes
	}
	return p != nil
}

package mcpfront

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/tgad/tgad/internal/clip"
	"github.com/tgad/tgad/internal/mcpfront/entry"
	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpfront/toolset"
	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// fromServer handles one message of the tool server.
func (c *conv) fromServer(l *link, f *frames.Frame) {
	if f.Bad == "" {
		c.answered.Store(true)
	}
	switch {
	case f.Bad != "":
		c.noise(f)
	case f.Batch:
		for _, e := range frames.Split(f) {
			c.fromServer(l, e)
		}
	case f.IsAnswer():
		c.fromServerAnswer(l, f)
	case f.IsRequest():
		if c.ask(l, f) {
			c.toClient(f)
		}
	case f.IsStray() && f.Result.Present():
		c.s.Log.Warn("an answer to no request was dropped", "bytes", f.Size)
		f.Close()
	default:
		c.withdrawn(l, f)
		c.subs.notified(f)
	}
}

// withdrawn forgets a request of the tool server that it cancels: the client need not answer it any more.
func (c *conv) withdrawn(l *link, f *frames.Frame) {
	if f.Method != "notifications/cancelled" || !f.Params.Present() {
		return
	}
	params, err := f.Bytes(f.Params, frames.MaxCancel)
	if err != nil {
		return
	}
	key := frames.KeyOf(mcpraw.At(params, "/requestId"))
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asked[key] == l {
		delete(c.asked, key)
	}
}

// noise handles a line that is not a valid message. If the line names a pending request, that
// request ends without an answer. Otherwise a line that does not begin as JSON passes, and the
// client deals with it. A line that begins as JSON is dropped: the client could read it as an
// answer that was not recorded.
func (c *conv) noise(f *frames.Frame) {
	if f.RawID != nil {
		c.mu.Lock()
		w := answeredBy(c.pending, f.RawID)
		c.mu.Unlock()
		if f.GivenUp && (w == nil || w.call == nil) {
			return // nobody waits for the answer, and another request may have the id by now
		}
		if w != nil {
			c.challenged(w.id, w.batch, f.Challenge)
		}
		if w != nil && c.subs.broken(w, f) {
			return
		}
		if w != nil && w.call != nil {
			w.call.Arrived(f) // the attempt finds no answer in it: the call is in doubt
			return
		}
		if w != nil && w.own != nil {
			if c.taken(w) { // else the request has its answer, and the channel has room for one
				w.own <- f
			}
			return
		}
		if w != nil {
			if w.sub != nil {
				w.sub.end()
			}
			f.Close()
			if !c.taken(w) {
				return
			}
			bad := errors.New("the tool server's answer does not pass: " + f.Bad)
			if f.Unsent != "" {
				bad = fmt.Errorf("%w: %w", runtime.ErrNotSent, bad)
			}
			w.lose(c, bad, "the tool server's answer does not pass: "+f.Bad)
			return
		}
	}
	if first := bytes.TrimLeft(f.Head, " \t\r\n\ufeff"); len(first) > 0 && first[0] != '{' && first[0] != '[' {
		c.toClient(f)
		return
	}
	c.s.Log.Warn("a message of the tool server's was dropped", "why", f.Bad, "bytes", f.Size)
	f.Close()
}

// answeredBy returns the pending request that an answer with this id is to, nil for none.
func answeredBy(pending map[frames.Key]*waiting, id []byte) *waiting {
	if w := pending[frames.KeyOf(id)]; w != nil {
		return w
	}
	if w := pending[frames.KeyOf([]byte(mcpraw.Text(id)))]; w != nil && frames.Answers(id, w.id) {
		return w
	}
	return nil
}

func (c *conv) fromServerAnswer(l *link, f *frames.Frame) {
	key := frames.KeyOf(f.RawID)
	c.mu.Lock()
	w := answeredBy(c.pending, f.RawID)
	if w != nil {
		key, f = frames.KeyOf(w.id), frames.AnswerTo(f, w.id)
	}
	switch {
	case w == nil:
	case w.link != l:
		w = nil
	case w.call == nil: // a governed call's entry stays until the call is over
		c.drop(key)
		c.owing++
	}
	c.mu.Unlock()
	if w != nil && w.own == nil {
		l.useful.Store(true)
	}
	switch {
	case w == nil:
		c.s.Log.Warn("an answer to a request that is not under way was dropped", "id", clip.Bytes(string(f.RawID), 80))
		f.Close()
	case w.call != nil:
		c.polls.arrived(w.call, f)
		w.call.Arrived(f)
	case w.own != nil:
		w.own <- f // does not block: the channel has room for one, and only one comes
		c.given()
	case w.seen != nil:
		w.seen.came <- f // does not block either; the receiver calls given
	case w.task != nil:
		c.work.Go(func() {
			defer c.given()
			c.polls.giveTask(w, f)
		})
	default:
		c.givePassed(w, f)
	}
}

// givePassed gives the client the answer to a request that was passed unchanged.
func (c *conv) givePassed(w *waiting, f *frames.Frame) {
	if w.sub != nil {
		w.sub.end()
	}
	c.opening.Answered(w.method, f)
	if w.method == "server/discover" {
		f = c.own.declare(f)
	}
	if w.method != "tools/list" {
		defer c.given()
		c.give(w.batch, f)
		return
	}
	// In a goroutine: it asks the log, and the tool server's next message must not wait for that.
	c.work.Go(func() {
		defer c.given()
		c.s.pins.Look(f)
		f = c.doubts.withDoubts(w, f)
		if w.modern && c.s.opts.URL != "" {
			f = toolset.Offered(f, c.s.Log)
		}
		c.give(w.batch, f)
	})
}

// ask enters a request of the tool server in asked. It returns false if there are too many.
func (c *conv) ask(l *link, f *frames.Frame) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.asked) >= c.s.opts.MaxRequests {
		c.s.Log.Warn("the tool server has too many requests under way; one was dropped", "method", f.Method)
		f.Close()
		return false
	}
	c.asked[frames.KeyOf(f.RawID)] = l
	return true
}

func (c *conv) toClient(f *frames.Frame) { c.give(nil, f) }

// give hands a message to the client, or adds it to the batch that it answers.
func (c *conv) give(b *batchReply, f *frames.Frame) {
	defer f.Close()
	b.notRead(c, f.RawID, c.hand(b, &f.Envelope, f)) // a client that is gone is seen by put
}

// send hands a message to the client and returns once the client has it. An answer of a batch
// is added to the batch's array.
func (c *conv) send(b *batchReply, env *mcpraw.Envelope, parts ...io.WriterTo) error {
	return c.answerIn(b, c.out.Send, env, parts)
}

// hand is [conv.send] without waiting until the client has the message.
func (c *conv) hand(b *batchReply, env *mcpraw.Envelope, parts ...io.WriterTo) error {
	return c.answerIn(b, c.out.Hand, env, parts)
}

func (c *conv) answerIn(b *batchReply, way func(*mcpraw.Envelope, ...io.WriterTo) error, env *mcpraw.Envelope, parts []io.WriterTo) error {
	if b == nil || !env.IsAnswer() {
		return c.put(way, env, parts...)
	}
	whole, err := b.add(parts...)
	if err != nil {
		return unread{err}
	}
	return c.giveWhole(b, whole)
}

// put hands a message to the client. If that fails, the client is gone and the conversation ends.
func (c *conv) put(way func(*mcpraw.Envelope, ...io.WriterTo) error, env *mcpraw.Envelope, parts ...io.WriterTo) error {
	err := way(env, parts...)
	if err != nil && c.life.Err() == nil && !errors.Is(err, entry.ErrNoTaker) {
		c.s.Log.Warn("the client is gone", "error", err)
		c.end()
	}
	return err
}

// giving removes a request from pending because its answer is being given; nil stands for an
// answer to no single request. The conversation is not over until [conv.given].
func (c *conv) giving(w *waiting) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w != nil {
		if key := frames.KeyOf(w.id); c.pending[key] == w {
			delete(c.pending, key)
		}
	}
	c.owing++
}

func (c *conv) given() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.owing--
}

// request makes a request of the shim's own and waits for its answer.
func (c *conv) request(ctx context.Context, l *link, method string, params []byte) (*frames.Frame, error) {
	w := &waiting{id: []byte(`"` + probePrefix + frames.Nonce() + `"`), method: method, own: make(chan *frames.Frame, 1)}
	raw := append([]byte(`{"jsonrpc":"2.0","id":`), w.id...)
	raw = tga.AppendString(append(raw, `,"method":`...), method)
	raw = append(append(raw, `,"params":`...), params...)
	f := frames.NewFrame(append(raw, '}'))
	c.mu.Lock()
	w.link = l
	c.pending[frames.KeyOf(w.id)] = w
	c.mu.Unlock()
	defer c.unregister(w)
	m := c.message(f)
	m.Agreed = c.opening.Version()
	if err := l.up.Write(m); err != nil {
		return nil, err
	}
	var got *frames.Frame
	select {
	case got = <-w.own:
	case <-l.up.Done():
		select {
		case got = <-w.own:
		default:
			return nil, l.up.Why()
		}
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if got.Bad != "" {
		got.Close()
		if got.Challenge != nil {
			return nil, got.Challenge
		}
		return nil, errors.New(got.Bad)
	}
	return got, nil
}

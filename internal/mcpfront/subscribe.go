package mcpfront

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/tgad/tgad/internal/mcpfront/attempt"
	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpfront/owntask"
	"github.com/tgad/tgad/internal/mcpfront/say"
	"github.com/tgad/tgad/internal/mcpfront/wait"
	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/schemas/tga"
)

// A client of revision 2026-07-28 hears of changes on a stream that it asks for with
// subscriptions/listen. The request passes, and what the tool server says on it. A tool
// server that is started again, and one over HTTP whose stream breaks, is asked again for
// what the client was promised. Of tasks of the shim's own the shim itself tells.

// subscription is a subscriptions/listen of the client's that is open.
type subscription struct {
	raw   []byte   // the request as the tool server gets it; nil = none of it is for that
	tasks []tga.ID // of the shim's own that the client is told about
	life  context.Context
	end   context.CancelFunc

	// Of what follows the conversation's lock is held.
	acked bool          // the client was told what it is subscribed to
	tools bool          // to changes of the list of tools
	again bool          // its stream broke since it was last acknowledged
	pause time.Duration // before it is asked for again
}

// subscriptions are those of a conversation's client.
type subscriptions struct{ c *conv }

// listen takes a subscriptions/listen.
func (u *subscriptions) listen(f *frames.Frame, b *batchReply) {
	raw, err := f.Bytes(mcpraw.Span{From: 0, To: f.Size}, frames.SpillBytes)
	if err != nil || !f.Params.Present() {
		u.c.pass(f, b) // what is wrong with it is the tool server's to say
		return
	}
	sub := &subscription{raw: bytes.Clone(raw)}
	params := sub.raw[f.Params.From:f.Params.To]
	own, rest, others := owntask.Split(params)
	w := &waiting{id: f.RawID, method: f.Method, batch: b, sub: sub, modern: true}
	if len(own) > 0 && !owntask.Declared(params) {
		u.c.own.undeclared(w)
		f.Close()
		return
	}
	if strings.HasPrefix(string(frames.KeyOf(f.RawID)), "s"+ownPrefix) {
		u.c.pass(f, b) // which refuses it
		return
	}
	sub.life, sub.end = context.WithCancel(u.c.life)
	if err := u.c.register(w); err != nil {
		sub.end()
		u.c.fail(f.RawID, b, mcpraw.CodeInvalidRequest, "", "", err.Error())
		f.Close()
		return
	}
	f.Close()
	switch {
	case len(own) > 0 && !others:
		sub.raw = nil
	case len(own) > 0:
		sub.raw = slices.Concat(sub.raw[:f.Params.From], rest, sub.raw[f.Params.To:])
	case u.c.current() != nil:
		u.subscribe(w) // here: in its order
		return
	}
	u.c.work.Go(func() {
		for _, name := range own {
			if id, err := tga.ParseID(name); err == nil && !slices.Contains(sub.tasks, id) {
				if _, err := u.c.own.taskAt(id); err == nil {
					sub.tasks = append(sub.tasks, id)
				}
			}
		}
		if sub.raw != nil {
			u.subscribe(w)
			return
		}
		u.acknowledge(w, say.Changed(w.id, say.Ack, `,"notifications":{"taskIds":`+string(owntask.Names(sub.tasks))+"}"))
	})
}

// subscribe writes a subscription to the tool server as it is now.
func (u *subscriptions) subscribe(w *waiting) {
	err := u.writeSubscription(w)
	if err == nil || w.sub.life.Err() != nil {
		return
	}
	u.unsubscribe(w)
	w.lose(u.c, err, "the tool server did not take the request: "+err.Error())
}

func (u *subscriptions) writeSubscription(w *waiting) error {
	l, err := u.c.await(w.sub.life)
	if err != nil {
		return err
	}
	if w.sub.life.Err() != nil {
		return attempt.ErrOver
	}
	return u.c.write(l, w, u.c.message(frames.NewFrame(w.sub.raw)))
}

func (u *subscriptions) promised(s *subscription) bool {
	u.c.mu.Lock()
	defer u.c.mu.Unlock()
	return s.acked
}

// resubscribe asks a tool server again for a stream that broke, after a pause.
func (u *subscriptions) resubscribe(w *waiting, pause time.Duration) {
	u.c.work.Go(func() {
		for {
			if !wait.Rest(w.sub.life, pause) {
				return
			}
			err := u.writeSubscription(w)
			if err == nil || w.sub.life.Err() != nil {
				return
			}
			u.c.s.Log.Debug("a subscription of the client's was not made again", "error", err)
			pause = min(2*pause, lastPause)
		}
	})
}

// broken takes the end of a subscription's stream that is no answer. It reports whether the
// stream is asked for again: one that the client was never promised is not.
func (u *subscriptions) broken(w *waiting, f *frames.Frame) bool {
	if w.sub == nil || !u.promised(w.sub) {
		return false
	}
	u.c.mu.Lock()
	pause := firstPause
	if w.sub.again {
		w.sub.pause = min(max(2*w.sub.pause, firstPause), lastPause)
		pause = w.sub.pause
	}
	w.sub.again = true
	u.c.mu.Unlock()
	u.c.s.Log.Debug("the stream of a subscription broke and is asked for again", "why", f.Bad)
	f.Close()
	u.resubscribe(w, pause)
	return true
}

// unsubscribe ends a subscription; nothing is sent for it any more.
func (u *subscriptions) unsubscribe(w *waiting) {
	w.sub.end()
	u.c.unregister(w)
}

// acknowledge hands the client what it is subscribed to, once, with the shim's own tasks in
// it, and tells of those from then on.
func (u *subscriptions) acknowledge(w *waiting, f *frames.Frame) {
	sub := w.sub
	u.c.mu.Lock()
	first := !sub.acked
	sub.acked, sub.again, sub.pause = true, false, 0
	sub.tools = string(mcpraw.At(f.Head[f.Params.From:f.Params.To], "/notifications/toolsListChanged")) == "true"
	u.c.mu.Unlock()
	if sub.life.Err() != nil {
		f.Close()
		return
	}
	if !first {
		u.missed(w, f)
		return
	}
	if sub.raw != nil && len(sub.tasks) > 0 {
		f = owntask.Granted(f, sub.tasks)
	}
	u.c.toClient(f)
	for _, id := range sub.tasks {
		u.c.work.Go(func() { u.tellOf(w, id) })
	}
}

// changes are the notifications that a filter's members stand for.
var changes = []struct{ member, method string }{
	{"toolsListChanged", say.ToolsChanged},
	{"promptsListChanged", "notifications/prompts/list_changed"},
	{"resourcesListChanged", "notifications/resources/list_changed"},
}

// missed takes the acknowledgement of a subscription that was made again. The client has
// heard the first one, and knows nothing of the break: what may have changed meanwhile is
// told it as if it had.
func (u *subscriptions) missed(w *waiting, f *frames.Frame) {
	granted := bytes.Clone(mcpraw.At(f.Head[f.Params.From:f.Params.To], "/notifications"))
	f.Close()
	tell := func(method, more string) { u.notified(say.Changed(w.id, method, more)) }
	for _, m := range changes {
		if string(mcpraw.At(granted, "/"+m.member)) == "true" {
			tell(m.method, "")
		}
	}
	var uris []string
	if json.Unmarshal(mcpraw.At(granted, "/resourceSubscriptions"), &uris) != nil {
		return // none
	}
	for _, uri := range uris {
		tell("notifications/resources/updated", `,"uri":`+string(tga.AppendString(nil, uri)))
	}
}

// subscriptionOf returns the subscription that a notification belongs to.
func (u *subscriptions) subscriptionOf(f *frames.Frame) *waiting {
	if int64(len(f.Head)) != f.Size {
		return nil // too long to be one
	}
	id := say.SubscriptionID(f)
	if id == nil {
		return nil
	}
	u.c.mu.Lock()
	defer u.c.mu.Unlock()
	if w := u.c.pending[frames.KeyOf(id)]; w != nil && w.sub != nil {
		return w
	}
	return nil
}

// notified takes a notification of the tool server's.
func (u *subscriptions) notified(f *frames.Frame) {
	switch f.Method {
	case say.ToolsChanged:
		u.c.s.mirrors.Forget()
	case say.Ack:
		if w := u.subscriptionOf(f); w != nil {
			u.acknowledge(w, f)
			return
		}
	}
	u.c.toClient(f)
}

// tellOf tells a subscriber of a task until it is over: what it is at first, then each
// change. It is what a question about the task would be answered.
func (u *subscriptions) tellOf(w *waiting, id tga.ID) {
	said, pause := "", wait.Pause{}
	for {
		t, err := u.c.own.taskAt(id)
		if err != nil {
			u.c.s.Log.Debug("a subscriber is not told of a task any more", "trace", id, "error", err)
			return
		}
		moved, done := t.Moves()
		over := u.c.own.report(t, nil, func(standing string) error {
			if standing == said {
				return nil
			}
			if err := w.sub.life.Err(); err != nil {
				return err
			}
			meta := slices.Concat([]byte(`{"`+say.MetaSubscription+`":`), w.id, []byte("}"))
			n := frames.NewFrame(slices.Concat([]byte(`{"jsonrpc":"2.0","method":"notifications/tasks","params":`), say.With(t.Show("", standing), "_meta", meta), []byte("}")))
			if err := u.c.send(nil, &n.Envelope, n); err != nil {
				return err
			}
			said = standing
			return nil
		})
		if over {
			return
		}
		var later <-chan time.Time
		if done == nil {
			later = time.After(pause.Next()) // nobody here is at it: the log is asked
		}
		select {
		case <-moved:
		case <-done:
		case <-later:
		case <-w.sub.life.Done():
			return
		}
	}
}

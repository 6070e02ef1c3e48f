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

// A client of revision 2026-07-28 learns of changes on a stream that it requests with
// subscriptions/listen. The request passes, and so do the messages on the stream. If the tool
// server is started again, or its stream over HTTP breaks, the shim asks it again for what the
// client was promised. The shim itself tells of its own tasks.

// subscription is an open subscriptions/listen of the client.
type subscription struct {
	raw   []byte   // the request as the tool server gets it; nil = nothing in it concerns the tool server
	tasks []tga.ID // tasks of the shim's own that the client is told about
	life  context.Context
	end   context.CancelFunc

	// The conversation's lock guards the following fields.
	acked bool          // the client was told what it is subscribed to
	tools bool          // it covers changes of the list of tools
	again bool          // its stream broke since the last acknowledgement
	pause time.Duration // pause before the stream is requested again
}

// subscriptions are the subscriptions of a conversation's client.
type subscriptions struct{ c *conv }

// listen handles a subscriptions/listen.
func (u *subscriptions) listen(f *frames.Frame, b *batchReply) {
	raw, err := f.Bytes(mcpraw.Span{From: 0, To: f.Size}, frames.SpillBytes)
	if err != nil || !f.Params.Present() {
		u.c.pass(f, b) // the tool server says what is wrong with it
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
		u.c.pass(f, b) // pass refuses this id
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
		u.c.turns.take(func() { u.subscribe(w) }) // not in a goroutine of its own: the client's messages keep their order
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

// subscribe writes a subscription to the current tool server.
func (u *subscriptions) subscribe(w *waiting) {
	err := u.writeSubscription(w)
	if err == nil || w.sub.life.Err() != nil {
		return
	}
	w.sub.end()
	if u.c.taken(w) { // else it is answered already
		w.lose(u.c, err, "the tool server did not take the request: "+err.Error())
	}
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

// resubscribe requests a stream that broke again, after a pause.
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

// broken handles the end of a subscription's stream without an answer. It requests the stream
// again if the subscription was acknowledged to the client, and reports whether it does.
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

// unsubscribe ends a subscription without an answer.
func (u *subscriptions) unsubscribe(w *waiting) {
	w.sub.end()
	u.c.unregister(w)
}

// acknowledge passes the acknowledgement of a subscription to the client, once, with the
// shim's own tasks added, and from then on tells the client of those tasks.
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

// changes lists the notification for each boolean member of a subscription's filter.
var changes = []struct{ member, method string }{
	{"toolsListChanged", say.ToolsChanged},
	{"promptsListChanged", "notifications/prompts/list_changed"},
	{"resourcesListChanged", "notifications/resources/list_changed"},
}

// missed handles the acknowledgement of a subscription that was requested again. The client
// does not know that the stream broke. So missed tells the client of every change that may have
// happened meanwhile, as if it had happened.
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

// notified handles a notification of the tool server.
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
	if u.c.polls.told(f) {
		return
	}
	u.c.toClient(f)
}

// tellOf tells a subscriber the status of a task, first as it is, then each change, until the
// task is over. A notification says what the answer to tasks/get would say.
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
			later = time.After(pause.Next()) // no attempt of this shim works on it: ask the log again
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

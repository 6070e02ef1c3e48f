//go:build unix

package mcpfront

import (
	"context"
	"errors"
	"net/http"

	"github.com/tgad/tgad/internal/mcpfront/attempt"
	"github.com/tgad/tgad/internal/mcpfront/entry"
	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpfront/paper"
	"github.com/tgad/tgad/internal/mcpfront/wait"
	"github.com/tgad/tgad/internal/mcpraw"
)

// Conversation is a conversation with one tool server. It holds a slot of that server on this machine.
type Conversation struct {
	*conv
	place *paper.Slot
}

func (s *Shim) meet(out entry.Outlet, of entry.Whose) (entry.Party, error) {
	c, err := s.Sit(out, of)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Sit takes a slot and begins a conversation in it.
func (s *Shim) Sit(out entry.Outlet, of entry.Whose) (*Conversation, error) {
	place, err := paper.TakeSlot(s.opts.State, fileName(s.opts.Server))
	if err != nil {
		return nil, err
	}
	s.seat(1)
	c := s.newConv(out, place.Permits)
	c.shared, c.auth = of.Shared, of.Tokens.For(s.Credentials())
	c.subject = s.users.Of(c.auth)
	return &Conversation{c, place}, nil
}

func (a *Conversation) Run() error                 { return a.supervise(a.s.dialer(a.conv, a.place.Server)) }
func (a *Conversation) FromClient(f *frames.Frame) { a.conv.fromClient(f, nil) }
func (a *Conversation) End()                       { a.conv.end() }
func (a *Conversation) Over() bool                 { return a.life.Err() != nil }
func (a *Conversation) Release() {
	a.place.Release()
	a.s.seat(-1)
}

// Among says that the conversation is one of several of one client; convs lists them. Such a conversation
// continues without a tool server, and rose is called when one has started.
func (a *Conversation) Among(rose func(), convs func() []*Conversation) {
	a.lasting, a.rose, a.kin = true, rose, convs
}

// Gone is closed when the conversation is over.
func (a *Conversation) Gone() <-chan struct{} { return a.life.Done() }

// There reports whether a tool server runs.
func (a *Conversation) There() bool { return a.current() != nil }

// Challenged is the tool server's refusal of the conversation's credentials. It is nil if the tool server runs, or
// is away for another reason.
func (a *Conversation) Challenged() (ch *frames.Challenge) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.up == nil {
		errors.As(a.failure, &ch)
	}
	return ch
}

// Unfinished reports whether a task of the tool server belongs to a call that the shelf has as unfinished.
func (a *Conversation) Unfinished(task string) bool {
	for _, value := range a.s.Shelf.With(attempt.OpenPrefix) {
		if o := attempt.ParseOpen(value); o != nil && o.Task == task {
			return true
		}
	}
	return false
}

// Resume begins to ask about the tasks that an earlier shim left.
func (a *Conversation) Resume() { a.polls.resume() }

// Greet makes the shim do the handshake itself: it tells the tool server what the client said to all of them.
func (a *Conversation) Greet(params []byte) { a.opening.Greet(params) }

// Said is the tool server's answer in the shim's handshake, nil until it came.
func (a *Conversation) Said() []byte { return a.opening.Said() }

// Version is the protocol revision of the handshake.
func (a *Conversation) Version() mcpraw.Revision { return a.opening.Version() }

// Saw remembers a message of the client that sets up a tool server.
func (a *Conversation) Saw(f *frames.Frame) { a.opening.Saw(f) }

// Subscribed returns the subscriptions to resources that the next tool server is told.
func (a *Conversation) Subscribed() map[string][]byte { return a.opening.Asks() }

// GoesOn takes over the log level and the subscriptions that an earlier tool server was told.
func (a *Conversation) GoesOn(level []byte, subscribed map[string][]byte) {
	a.opening.GoesOn(level, subscribed)
}

func (a *Conversation) RefusedParams(ctx context.Context, h http.Header, m *frames.Frame) *entry.Refusal {
	return a.tools.refusedParams(ctx, h, m)
}

// GivenUp handles the end of a response stream: its client gave up the request, or each
// request of an array. Once GivenUp has returned, no call of it waits for an attempt.
func (c *conv) GivenUp(key frames.Key) {
	var all []*waiting
	c.mu.Lock()
	for k, w := range c.pending {
		if k == key || w.batch != nil && w.batch.name != nil && frames.KeyOf(w.batch.name) == key {
			all = append(all, w)
		}
	}
	c.mu.Unlock()
	for _, w := range all {
		// Set it each time: another goroutine that saw the end first may not have come this far.
		if w.call != nil {
			w.call.GaveUp.Set()
		}
		if w.deserted.CompareAndSwap(false, true) {
			n := append([]byte(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`), w.id...)
			c.cancelled(frames.NewFrame(append(n, "}}"...)))
		} else if w.call != nil {
			w.call.GoesWithout()
		}
	}
}

// Busy reports whether a request or its answer is under way, or a delivery is not noted yet. A late answer to a call
// that was given up counts, because it would still be recorded.
func (a *Conversation) Busy() bool {
	c := a.conv
	c.mu.Lock()
	n := c.owing
	for _, w := range c.pending {
		if w.sub == nil && (!w.late || w.isCall()) {
			n++
		}
	}
	c.mu.Unlock()
	return n+len(c.s.Owed(c.to)) > 0
}

// Retire closes the shim once its conversations are over and nothing of them is left to tell the log. It waits for
// that until ctx ends at the latest.
func (s *Shim) Retire(ctx context.Context) error {
	for (s.Conversations() > 0 || s.Desk.Occupied()) && wait.Rest(ctx, wait.Look) {
	}
	return s.Close()
}

// Conversations is the number of conversations.
func (s *Shim) Conversations() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seats
}

// seat counts a conversation that begins (1) or is over (-1).
func (s *Shim) seat(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seats += n
}

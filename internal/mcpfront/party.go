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

// Conversation is a conversation with one tool server, in its place among the others on this machine.
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

// Sit takes a place for a conversation.
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

// Among says that the conversation is one of several that a client has, which convs are: it goes on without
// a tool server, and rose is called when one is there.
func (a *Conversation) Among(rose func(), convs func() []*Conversation) {
	a.lasting, a.rose, a.kin = true, rose, convs
}

// Gone is closed when the conversation is over.
func (a *Conversation) Gone() <-chan struct{} { return a.life.Done() }

// There reports whether there is a tool server.
func (a *Conversation) There() bool { return a.current() != nil }

// Challenged is the tool server's refusal of the conversation's credentials, nil where it is there, or is away for
// another reason.
func (a *Conversation) Challenged() (ch *frames.Challenge) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.up == nil {
		errors.As(a.failure, &ch)
	}
	return ch
}

// Unfinished reports whether a task of the tool server's is that of a call which the log has as unfinished.
func (a *Conversation) Unfinished(task string) bool {
	for _, value := range a.s.Shelf.With(attempt.OpenPrefix) {
		if o := attempt.ParseOpen(value); o != nil && o.Task == task {
			return true
		}
	}
	return false
}

// Resume asks about the tasks that an earlier shim left.
func (a *Conversation) Resume() { a.polls.resume() }

// Greet makes the handshake the shim's own: a tool server is told what the client said to all.
func (a *Conversation) Greet(params []byte) { a.opening.Greet(params) }

// Said is what the tool server has said in the shim's handshake; nil where it has not yet.
func (a *Conversation) Said() []byte { return a.opening.Said() }

// Version is the protocol revision of the handshake.
func (a *Conversation) Version() mcpraw.Revision { return a.opening.Version() }

// Saw looks at a message of the client's that sets tool servers up.
func (a *Conversation) Saw(f *frames.Frame) { a.opening.Saw(f) }

// Subscribed are the subscriptions of resources, as a tool server that follows is told them.
func (a *Conversation) Subscribed() map[string][]byte { return a.opening.Asks() }

// GoesOn takes over what was said to a tool server before this one.
func (a *Conversation) GoesOn(level []byte, subscribed map[string][]byte) {
	a.opening.GoesOn(level, subscribed)
}

func (a *Conversation) RefusedParams(ctx context.Context, h http.Header, m *frames.Frame) *entry.Refusal {
	return a.tools.refusedParams(ctx, h, m)
}

// GivenUp takes the end of a stream for what it is: its request was given up, each one of
// an array. None of its calls is waited for once givenUp has returned.
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
		// Each time that somebody looks: the first to see it may not have come this far yet.
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

// Busy reports whether something is under way that was asked of the tool server.
func (a *Conversation) Busy() bool {
	c := a.conv
	c.mu.Lock()
	n := c.owing
	for _, w := range c.pending {
		if w.sub == nil {
			n++
		}
	}
	c.mu.Unlock()
	return n+len(c.s.Owed(c.to)) > 0
}

// Retire closes the shim once nothing is under way in it: its conversations are over, and what they had to say to the
// log is said. It does not wait longer than ctx.
func (s *Shim) Retire(ctx context.Context) error {
	for (s.Conversations() > 0 || s.Desk.Occupied()) && wait.Rest(ctx, wait.Look) {
	}
	return s.Close()
}

// Conversations is how many there are.
func (s *Shim) Conversations() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seats
}

// seat says that a conversation begins (1) or is over (-1).
func (s *Shim) seat(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seats += n
}

//go:build unix

package mcpfront

import (
	"context"
	"net/http"

	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpfront/paper"
)

// party is what a client's way leads to: a conversation with one tool server, or with several.
type party interface {
	fromClient(f *frames.Frame, b *batchReply)
	refusedParams(ctx context.Context, h http.Header, m *frames.Frame) *refusal
	givenUp(key frames.Key)
	run() error // until the conversation is over
	end()
	over() bool
	busy() bool // something is under way for its clients
	release()   // what is left of it, once run has returned
}

// meeting begins a client's conversation.
type meeting func(out outlet, of whose) (party, error)

// whose says which clients a conversation is of.
type whose struct {
	shared        bool // several, which know nothing of each other
	auth, subject string
}

// alone is a conversation with one tool server, in its place among the others on this machine.
type alone struct {
	*conv
	place *paper.Slot
}

func (s *Shim) meet(out outlet, of whose) (party, error) {
	c, err := s.sit(out, of)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// sit takes a place for a conversation.
func (s *Shim) sit(out outlet, of whose) (*alone, error) {
	place, err := paper.TakeSlot(s.opts.State, fileName(s.opts.Server))
	if err != nil {
		return nil, err
	}
	s.seat(1)
	c := s.newConv(out)
	c.permits.book, c.shared, c.auth, c.subject = place.Permits, of.shared, of.auth, of.subject
	return &alone{c, place}, nil
}

func (a *alone) run() error { return a.supervise(a.s.dialer(a.conv, a.place.Server)) }
func (a *alone) end()       { a.conv.end() }
func (a *alone) over() bool { return a.life.Err() != nil }
func (a *alone) release() {
	a.place.Release()
	a.s.seat(-1)
}

func (a *alone) refusedParams(ctx context.Context, h http.Header, m *frames.Frame) *refusal {
	return a.tools.refusedParams(ctx, h, m)
}

// givenUp takes the end of a stream for what it is: its request was given up, each one of
// an array. None of its calls is waited for once givenUp has returned.
func (c *conv) givenUp(key frames.Key) {
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
			w.call.gaveUp.set()
		}
		if w.deserted.CompareAndSwap(false, true) {
			n := append([]byte(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`), w.id...)
			c.cancelled(frames.NewFrame(append(n, "}}"...)))
		} else if w.call != nil {
			w.call.goesWithout()
		}
	}
}

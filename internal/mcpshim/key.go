package mcpshim

import (
	"context"
	"errors"
	"time"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime/mcp/mcpraw"
	"github.com/tgad/tgad/schemas/tga"
)

// key names a call, by the first rule that gives a name. A derived one is no key: it only
// says that two calls of one connection that are under way are one. Whether a call is a
// repeat of an earlier one is the log's to say ([call.Decide]).
func (q *call) key() (string, error) {
	if k := q.params.metaValue(MetaKey); k != nil {
		return fit(mcpraw.ScalarText(k)), validKey(mcpraw.ScalarText(k))
	}
	if q.tool.KeyPointer != "" {
		if k := mcpraw.ScalarText(mcpraw.At(q.args, q.tool.KeyPointer)); k != "" {
			return fit(k), nil
		}
	}
	for _, name := range q.conv.s.opts.CallIDs {
		if id := q.params.metaText(name); id != "" {
			return fit(name + "=" + id), nil
		}
	}
	q.derived, q.scope = true, firstOf(q.params.metaText(MetaScope), q.conv.s.opts.Scope)
	if q.conv.shared || !q.conv.s.needsKey(q.params.tool) {
		// A read call has nothing to do with another one, and clients that share a
		// conversation have nothing to do with each other here: which calls are identical is
		// the log's to say. This name only keeps them apart.
		return "apart " + randomHex(), nil
	}
	name, err := ledger.DeriveKey(q.conv.id, q.scope, q.params.tool, q.args, 0)
	if err == nil {
		q.conv.s.undisturbed(name)
	}
	return name, err
}

// undisturbed waits while an answer to a call of this name is on its way to the client.
func (s *Shim) undisturbed(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free(name)
}

// free waits until no answer to a call of this name is on its way. The shim's lock is held.
func (s *Shim) free(name string) {
	for s.places[name] != nil {
		busy := s.places[name].over
		s.mu.Unlock()
		<-busy
		s.mu.Lock()
	}
}

// delivery is an answer on its way to a client, and then to be noted by the log.
type delivery struct {
	to   *conv
	over chan struct{} // closed once it is noted, or will not be
}

// owed returns the answers of a conversation that are given and may not be noted yet.
func (s *Shim) owed(c *conv) (all []<-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.places {
		if d.to == c {
			all = append(all, d.over)
		}
	}
	return all
}

// deliver gives an answer to the client and, where that took it whole, has the log move
// on: the same call again is another one from then on. A client can only go on to its
// next call once it has this answer, so the name is held meanwhile; and a call that came
// meanwhile is not sent before ([attempt.send]): what a client was seen to go on from
// stays counted, whenever the shim is killed.
func (c *conv) deliver(name string, trace tga.ID, give func() error) {
	s, d := c.s, &delivery{to: c, over: make(chan struct{})}
	s.mu.Lock()
	s.free(name)
	s.places[name] = d
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.places, name)
		close(d.over)
	}()
	if give() != nil {
		return
	}
	// Only after the client has it: told before, a crash in between would make the repeat
	// of a call whose answer was lost another call. A crash from here on, before another
	// call was sent, makes the next one of this name be served this one's answer, which
	// sends nothing twice.
	until := time.Now().Add(s.opts.LogTimeout)
	pause := waitPause{}
	for {
		err := patient(s.life, func(ctx context.Context) error { return s.opts.Log.Delivered(ctx, trace) })
		if err == nil {
			return
		}
		if !errors.Is(err, tga.StoreUnavailable) || time.Now().After(until) || s.life.Err() != nil {
			s.log.Error("a delivered answer was not noted: the same call again is served this one's answer", "trace", trace, "error", err)
			return
		}
		select {
		case <-time.After(pause.next()):
		case <-s.life.Done():
		}
	}
}

// The longest key that the log takes.
const maxLedgerKey = 255

// fit returns a key that the log takes: a longer one is its digest.
func fit(k string) string {
	if len(k) <= maxLedgerKey {
		return k
	}
	sum := tga.Sum([]byte(k))
	return "sha256=" + sum.String()
}

func validKey(k string) error {
	if k == "" {
		return tga.Errorf(tga.ValidationError, "want a string of 1 to %d characters", maxLedgerKey).At("/params/_meta/" + mcpraw.PointerToken(MetaKey))
	}
	return nil
}

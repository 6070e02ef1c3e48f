//go:build unix

package gateway

import (
	"reflect"
	"slices"

	"github.com/tgad/tgad/internal/mcpfront"
	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpfront/say"
	"github.com/tgad/tgad/internal/mcpfront/wait"
)

// What is behind a gate is changed while its clients are there. A change is prepared, which may fail and changes
// nothing, and then made, which cannot fail. Each client takes its new table whole: a request is led by the one or by
// the other. A tool server that the new table has not is asked nothing more, and is ended once nothing is under way
// with it; one that both have goes on with its process, whatever names and lists are now.

// Change is a change of what the clients of a gate have. One of Make and Drop ends it; until then no conversation begins.
type Change struct {
	g     *Gate
	rules *rules
	fans  []turning
}

type turning struct {
	f     *fan
	t     *table
	added []*member
}

// Prepare makes ready that other tool servers are behind the gate, or other things allowed. A shim that is behind it
// already keeps its conversations. VALIDATION_ERROR: two tool servers could have the same name; LIMIT_EXCEEDED: there
// is no place for a conversation.
func (g *Gate) Prepare(all []Behind, o GateOptions) (*Change, error) {
	r, err := rulesOf(all, o)
	if err != nil {
		return nil, err
	}
	g.turn.Lock()
	c := &Change{g: g, rules: r}
	for f := range g.fans {
		if f.Over() {
			continue
		}
		t, added, err := f.laid(r)
		c.fans = append(c.fans, turning{f, t, added})
		if err != nil {
			c.Drop()
			return nil, err
		}
	}
	is := func(s *mcpfront.Shim) bool {
		return slices.ContainsFunc(g.now.Load().all, func(b Behind) bool { return b.Shim == s })
	}
	for _, b := range all {
		if g.reap != nil && !is(b.Shim) {
			b.Shim.Reap = g.reap
		}
	}
	return c, nil
}

// Stricter has the gate refuse from now on what the change will refuse. What is to be allowed waits for [Change.Make].
func (c *Change) Stricter() { c.g.next.Store(c.rules) }

// Drop leaves all as it is.
func (c *Change) Drop() {
	c.g.next.Store(nil)
	for _, x := range c.fans {
		for _, m := range x.added {
			m.Conversation.End()
			m.Conversation.Release()
		}
	}
	c.g.turn.Unlock()
}

// Make makes the change.
func (c *Change) Make() {
	follow(&c.rules.quotas, c.g.now.Load().quotas)
	c.g.now.Store(c.rules)
	for _, x := range c.fans {
		x.f.take(x.t, x.added)
	}
	c.g.next.Store(nil)
	c.g.turn.Unlock()
}

// take has a client go on with another table.
func (f *fan) take(t *table, added []*member) {
	f.mu.Lock()
	was := f.now()
	if f.life.Err() != nil {
		f.every = append(f.every, added...)
		f.mu.Unlock()
		for _, m := range added {
			m.Conversation.End()
			f.left(m)
		}
		return
	}
	var gone []*member
	for _, v := range was.views {
		if t.with(v.shim) == nil {
			v.retired = true
			gone = append(gone, v.member)
		}
	}
	for _, m := range added {
		m.Appears(f.present)
		m.absent = f.started
		f.every = append(f.every, m)
		if f.started {
			var subscribed map[string][]byte
			if before := was.of(m.shim.Server()); before != nil {
				subscribed = before.Subscribed()
			}
			m.GoesOn(f.level, subscribed)
			m.set(f.params)
		}
		if f.running {
			f.keep(m)
		}
	}
	for uri, m := range f.owners {
		v := t.of(m.shim.Server())
		if delete(f.owners, uri); v != nil && v.has(uri) {
			f.owners[uri] = v.member
		}
	}
	f.table.Store(t)
	greeted, streams := f.greeted, values(f.streams)
	f.mu.Unlock()
	for _, method := range differ(was.rules, t.rules) {
		if greeted {
			f.work.Go(func() { f.tell(method) }) // elsewhere: a client that does not read holds up no change
		}
		for _, s := range streams {
			f.work.Go(func() { f.tellStream(s, method) })
		}
	}
	for _, m := range gone {
		f.work.Go(func() { f.part(m, added) })
	}
}

// differ are the notifications that a change of what a client has calls for. What it may do more, or less often, is none.
func differ(was, now *rules) (methods []string) {
	same := func(a, b Behind) bool { return a.Shim == b.Shim && reflect.DeepEqual(a.Names, b.Names) }
	if !slices.EqualFunc(was.all, now.all, same) || !reflect.DeepEqual(was.lists, now.lists) {
		methods = append(methods, say.ToolsChanged, promptsChanged)
	}
	sameResources := func(a, b Behind) bool {
		return (a.Shim == b.Shim || len(a.Resources)+len(b.Resources) == 0) && reflect.DeepEqual(a.Resources, b.Resources)
	}
	if !slices.EqualFunc(was.all, now.all, sameResources) || !reflect.DeepEqual(was.resources, now.resources) {
		methods = append(methods, resourcesChanged)
	}
	return methods
}

// tellStream gives a stream a notification of the fan's own, where its client wants to hear of it.
func (f *fan) tellStream(s *stream, method string) {
	s.out.Lock()
	defer s.out.Unlock()
	f.mu.Lock()
	told := s.told && f.streams[frames.KeyOf(s.id)] == s
	f.mu.Unlock()
	if told && s.wants.passes(method) {
		f.say(say.Changed(s.id, method, ""))
	}
}

// part parts with a tool server that no table has any more: its streams go over to those that are new, and it is ended
// once nothing is under way with it.
func (f *fan) part(m *member, added []*member) {
	for _, a := range added {
		select {
		case <-a.tried:
		case <-f.life.Done():
			return
		}
	}
	f.mu.Lock()
	streams := values(f.streams)
	f.mu.Unlock()
	for _, s := range streams {
		for _, v := range f.now().views {
			if v.There() {
				v.join(s) // first: a stream that nobody has a part of is over
			}
		}
		f.unjoin(s, m)
	}
	for m.Busy() {
		if !wait.Rest(f.life, wait.Look) {
			return
		}
	}
	m.Conversation.End()
}

// unjoin takes a tool server's part of a stream from it.
func (f *fan) unjoin(s *stream, m *member) {
	var parts []*branch
	f.change(s, func() {
		for key, b := range s.at {
			if b.m == m {
				parts = append(parts, b)
				delete(s.at, key)
				delete(f.branches, key)
			}
		}
	})
	for _, b := range parts {
		m.Conversation.GivenUp(frames.KeyOf(b.id))
	}
}

// Busy reports whether something is under way that was asked of the tool server. An answer that nobody waits for any
// more would still be recorded.
func (m *member) Busy() bool {
	m.f.mu.Lock()
	for _, a := range m.f.asked {
		if a.m == m {
			m.f.mu.Unlock()
			return true
		}
	}
	m.f.mu.Unlock()
	return m.Conversation.Busy()
}

// Busy reports whether something is under way for the client.
func (f *fan) Busy() bool {
	return f.unanswered() > 0 || slices.ContainsFunc(f.members(), (*member).Busy)
}

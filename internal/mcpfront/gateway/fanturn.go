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

// The tool servers of a gate can be changed while clients are connected. A change is first prepared, which may fail and
// changes nothing, and then made, which cannot fail. Each client gets its new table as a whole, so a request goes by the
// old table or by the new one, never by a mix. A tool server that the new table does not have gets no new request, and
// ends once nothing is under way with it. A tool server of both tables keeps its process, even if its names change.

// Change is a prepared change of a gate. Call either Make or Drop to end it; until then no conversation begins.
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

// Prepare prepares a change of the gate's tool servers, or of what its clients may do. A shim that the gate has already
// keeps its conversations. The error is VALIDATION_ERROR if names of two tool servers could collide, and LIMIT_EXCEEDED
// if there is no slot for a conversation.
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

// Stricter makes the gate refuse from now on what the change will refuse. What the change will allow waits for [Change.Make].
func (c *Change) Stricter() { c.g.next.Store(c.rules) }

// Drop ends the change without making it.
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

// take gives a client another table.
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
			f.work.Go(func() { f.tell(method) }) // in a goroutine: a client that does not read must not hold up the change
		}
		for _, s := range streams {
			f.work.Go(func() { f.tellStream(s, method) })
		}
	}
	for _, m := range gone {
		f.work.Go(func() { f.part(m, added) })
	}
}

// differ returns the notifications that a change of the rules calls for. A change of quotas alone calls for none.
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

// tellStream sends a notification of the fan on a stream, if the stream's filter asks for it.
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

// part ends the conversation with a tool server that no table has any more. It first lets new tool servers join the
// client's streams, and waits until nothing is under way with the old one.
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
				v.join(s) // before unjoin: a stream without a branch would end
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

// unjoin ends a tool server's branch of a stream.
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

// Busy reports whether a request to the tool server is under way. A late answer to a call that was given up counts too:
// it would still be recorded.
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

// Busy reports whether a request of the client is under way.
func (f *fan) Busy() bool {
	return f.unanswered() > 0 || slices.ContainsFunc(f.members(), (*member).Busy)
}

//go:build unix

package gateway

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpfront/say"
	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/schemas/tga"
)

// A client's subscription (stream) has a subscription at each tool server (branch), under an id of the
// fan. The client sees one subscription. It is acknowledged once the running tool servers have
// acknowledged theirs, or after Gate.wait. Notifications carry the client's id. It ends when all
// branches have ended. A tool server that starts later gets a branch then, and the client is told that
// the lists may have changed.

// filter says which notifications a client wants. It is not promised any others.
type filter struct {
	Tools     bool     `json:"toolsListChanged,omitempty"`
	Prompts   bool     `json:"promptsListChanged,omitempty"`
	Resources bool     `json:"resourcesListChanged,omitempty"`
	URIs      []string `json:"resourceSubscriptions,omitempty"`
	Tasks     []string `json:"taskIds,omitempty"`
}

func (w filter) empty() bool {
	return !w.Tools && !w.Prompts && !w.Resources && len(w.URIs) == 0 && len(w.Tasks) == 0
}

// passes reports whether the filter asks for a notification. It does not check the URI of a resource:
// the tool server was told the URIs.
func (w filter) passes(method string) bool {
	switch method {
	case say.ToolsChanged:
		return w.Tools
	case promptsChanged:
		return w.Prompts
	case resourcesChanged:
		return w.Resources
	case taskChanged:
		return len(w.Tasks) > 0
	}
	return method == resourceUpdated && len(w.URIs) > 0
}

const resourceUpdated = "notifications/resources/updated"

// stream is an open subscriptions/listen of the client.
type stream struct {
	id     []byte // the client's id
	params []byte // params of the client's request
	wants  filter

	out sync.Mutex // held while a message of the stream is written, so that the acknowledgement comes first
	// early has, by task, a function that passes the task's newest notification that came before the acknowledgement. out
	// guards it. Other early notifications are dropped, because a client reads lists and resources after the
	// acknowledgement. The end of a task, however, may be told only once.
	early map[string]func() error

	// The fan's lock guards the following fields.
	at    map[frames.Key]*branch
	asked bool     // each running tool server was asked
	late  bool     // the wait for tool servers that have not acknowledged is over
	told  bool     // the stream was acknowledged to the client
	uris  []string // resources that tool servers have granted
	tasks []string // tasks that tool servers have granted
	fault []byte   // the first error that a tool server answered
}

// branch is the part of a stream at one tool server.
type branch struct {
	m     *member
	id    []byte
	wants filter
	acked bool

	challenge *frames.Challenge // set if the tool server's answer is a challenge
}

// listen handles a subscriptions/listen.
func (f *fan) listen(msg *frames.Frame) {
	s := &stream{at: map[frames.Key]*branch{}}
	params, err := msg.Bytes(msg.Params, frames.SpillBytes)
	if err == nil && msg.Params.Present() {
		s.id, s.params = bytes.Clone(msg.RawID), bytes.Clone(params)
		err = json.Unmarshal(mcpraw.At(s.params, "/notifications"), &s.wants)
	}
	switch {
	case err != nil || s.params == nil:
		f.refuse(msg, mcpraw.CodeInvalidParams, tga.Errorf(tga.ValidationError, "want an object that says of what the client wants to hear").At("/params/notifications"))
		return
	case f.enter(msg, nil) != isIn:
		return
	}
	msg.Close()
	f.mu.Lock()
	f.streams[frames.KeyOf(s.id)] = s
	f.mu.Unlock()
	f.work.Go(func() {
		f.settled()
		for _, m := range f.now().views {
			if !m.There() {
				f.missing(m.member)
			}
			if m.There() { // else rejoin asks it when it has started
				m.join(s)
			}
		}
		joined()
		f.change(s, func() { s.asked = true })
		t := time.NewTimer(f.g.wait)
		defer t.Stop()
		select {
		case <-t.C:
			f.change(s, func() { s.late = true })
		case <-f.life.Done():
		}
	})
}

var joined = func() {} // a test makes tool servers answer before this point

// join asks a tool server for its branch of a stream, once.
func (m *view) join(s *stream) {
	b := &branch{m: m.member, id: tga.AppendString(nil, gatePrefix+frames.Nonce()), wants: s.wants}
	b.wants.URIs = slices.DeleteFunc(slices.Clone(s.wants.URIs), func(uri string) bool { return m.f.first(uri) != m.member })
	b.wants.Tasks = nil
	for _, seen := range s.wants.Tasks {
		if server, task, ok := m.f.g.tasks.Behind(seen); ok && server == m.shim.Server() {
			b.wants.Tasks = append(b.wants.Tasks, task)
		}
	}
	b.wants.Resources = s.wants.Resources && len(m.resources) > 0
	asks, err := json.Marshal(b.wants)
	from, to, ok := mcpraw.Locate(s.params, "/notifications")
	if err != nil || !ok || b.wants.empty() {
		return
	}
	params := slices.Concat(s.params[:from], asks, s.params[to:])
	f := m.f
	f.mu.Lock()
	open := f.streams[frames.KeyOf(s.id)] == s
	for _, other := range s.at {
		open = open && other.m != m.member
	}
	if open && !m.retired {
		s.at[frames.KeyOf(b.id)], f.branches[frames.KeyOf(b.id)] = b, s
	}
	open = open && !m.retired
	f.mu.Unlock()
	if open {
		m.Conversation.FromClient(frames.NewFrame(slices.Concat([]byte(`{"jsonrpc":"2.0","id":`), b.id, []byte(`,"method":"`+say.Listen+`","params":`), params, []byte("}"))))
	}
}

// first is the tool server that a URI leads to without asking for lists: its owner if one is known, else
// the first that may have it; nil is none.
func (f *fan) first(uri string) *member {
	f.mu.Lock()
	of := f.owners[uri]
	f.mu.Unlock()
	for _, m := range f.now().views {
		if of == nil && m.has(uri) {
			of = m.member
		}
	}
	return of
}

// change changes a stream by do, and tells the client the consequence if there is one: the stream is
// acknowledged, refused, or over.
func (f *fan) change(s *stream, do func()) {
	s.out.Lock()
	defer s.out.Unlock()
	key := frames.KeyOf(s.id)
	f.mu.Lock()
	do()
	open := f.streams[key] == s
	waits := slices.ContainsFunc(values(s.at), func(b *branch) bool { return !b.acked })
	acks := open && !s.told && s.asked && (!waits || s.late) && (len(s.at) > 0 || s.fault == nil)
	s.told = s.told || acks
	ends := open && !acks && s.asked && len(s.at) == 0 && (s.told || s.fault != nil)
	if ends {
		delete(f.streams, key)
		delete(f.asked, key)
	}
	granted := s.wants
	granted.Resources = granted.Resources && slices.ContainsFunc(f.now().views, func(m *view) bool { return len(m.resources) > 0 })
	granted.URIs = s.uris
	granted.Tasks = slices.DeleteFunc(slices.Clone(s.wants.Tasks), func(id string) bool { return !slices.Contains(s.tasks, id) })
	f.mu.Unlock()
	switch {
	case acks:
		words, err := json.Marshal(granted)
		if err == nil {
			f.say(say.Changed(s.id, say.Ack, `,"notifications":`+string(words)))
		}
		for _, tell := range s.early {
			_ = tell() // a client that is gone is seen by the conversations
		}
		s.early = nil
	case ends && s.told:
		f.reply(s.id, slices.Concat([]byte(`{"resultType":"complete","_meta":{"`+say.MetaSubscription+`":`), s.id, []byte("}}")))
	case ends:
		f.answer(s.id, `,"error":`, s.fault)
	}
}

func values[K comparable, V any](m map[K]V) (all []V) {
	for _, v := range m {
		all = append(all, v)
	}
	return all
}

// say gives the client a message of the fan's.
func (f *fan) say(n *frames.Frame) {
	_ = f.out.Hand(&n.Envelope, n) // a client that is gone is seen by the conversations
}

// heard takes a notification of a tool server's that belongs to a stream. It reports whether it is one.
func (s seat) heard(way func(*mcpraw.Envelope, ...io.WriterTo) error, msg *frames.Frame) (taken bool, err error) {
	id := say.SubscriptionID(msg)
	if id == nil {
		return false, nil
	}
	f, key := s.m.f, frames.KeyOf(id)
	f.mu.Lock()
	of := f.branches[key]
	var b *branch
	if of != nil {
		b = of.at[key]
	}
	f.mu.Unlock()
	switch {
	case b == nil || b.m != s.m:
		return true, nil // the stream has ended
	case msg.Method == say.Ack:
		f.change(of, func() {
			var granted filter
			if json.Unmarshal(mcpraw.At(msg.Head[msg.Params.From:msg.Params.To], "/notifications"), &granted) == nil && !b.acked {
				of.uris = append(of.uris, slices.DeleteFunc(granted.URIs, func(uri string) bool { return !slices.Contains(b.wants.URIs, uri) })...)
				for _, task := range granted.Tasks {
					of.tasks = append(of.tasks, f.g.tasks.Seen(s.m.shim.Server(), task)) // change drops tasks that the client did not name
				}
			}
			b.acked = true
		})
		return true, nil
	case !b.wants.passes(msg.Method):
		return true, nil
	}
	from, to, _ := mcpraw.Locate(msg.Head[msg.Params.From:msg.Params.To], say.SubscriptionAt)
	n := frames.Replace(msg, mcpraw.Span{From: msg.Params.From + int64(from), To: msg.Params.From + int64(to)}, of.id)
	of.out.Lock()
	defer of.out.Unlock()
	f.mu.Lock()
	open := f.streams[frames.KeyOf(of.id)] == of
	told := of.told && open
	f.mu.Unlock()
	tell := func() error { return way(&n.Envelope, n) }
	if told {
		return true, tell()
	}
	if task := mcpraw.Text(place("/taskId").in(n)); open && n.Method == taskChanged && slices.Contains(of.wants.Tasks, task) {
		if of.early == nil {
			of.early = map[string]func() error{}
		}
		of.early[task] = tell
	}
	return true, nil
}

// branchEnded handles the answer to a branch. It reports whether the answer is one.
func (s seat) branchEnded(key frames.Key, env *mcpraw.Envelope, parts []io.WriterTo) (taken bool, err error) {
	f := s.m.f
	f.mu.Lock()
	of := f.branches[key]
	var ch *frames.Challenge
	if of != nil && of.at[key] != nil {
		ch = of.at[key].challenge
	}
	delete(f.branches, key)
	f.mu.Unlock()
	if of == nil {
		return false, nil
	}
	var fault []byte
	if env.Fault.Present() {
		msg, err := whole(parts)
		if err != nil {
			return true, err
		}
		fault = bytes.Clone(msg.Head[msg.Fault.From:msg.Fault.To]) // spans of msg: env may be of another form of the message
	}
	if ch.ComesBack() && of.refuse(f, ch, fault) {
		return true, nil
	}
	f.change(of, func() {
		delete(of.at, key)
		if of.fault == nil {
			of.fault = fault
		}
	})
	return true, nil
}

// refuse answers a stream with a challenge if the stream is not acknowledged yet. It reports whether it did.
func (s *stream) refuse(f *fan, ch *frames.Challenge, fault []byte) bool {
	s.out.Lock()
	defer s.out.Unlock()
	key := frames.KeyOf(s.id)
	f.mu.Lock()
	opens := f.streams[key] == s && !s.told
	if opens {
		delete(f.asked, key)
	}
	f.mu.Unlock()
	if opens {
		f.unlisten(key, func(b *branch) {
			f.work.Go(func() { b.m.Conversation.GivenUp(frames.KeyOf(b.id)) }) // in a goroutine: the caller reads a tool server's messages
		})
		f.challenge(s.id, ch)
		f.answer(s.id, `,"error":`, fault)
	}
	return opens
}

// unlisten ends a stream that the client gave up. It calls end for each branch.
func (f *fan) unlisten(key frames.Key, end func(*branch)) {
	f.mu.Lock()
	s := f.streams[key]
	delete(f.streams, key)
	var all []*branch
	if s != nil {
		for k, b := range s.at {
			delete(f.branches, k)
			all = append(all, b)
		}
	}
	f.mu.Unlock()
	for _, b := range all {
		end(b)
	}
}

// rejoin asks a tool server that has started for its branch of each stream, and tells the client of
// changes that it may have missed.
func (m *view) rejoin() {
	f := m.f
	f.mu.Lock()
	all := values(f.streams)
	f.mu.Unlock()
	for _, s := range all {
		f.work.Go(func() {
			m.join(s)
			s.out.Lock()
			defer s.out.Unlock()
			f.mu.Lock()
			told := s.told && f.streams[frames.KeyOf(s.id)] == s
			f.mu.Unlock()
			for _, method := range []string{say.ToolsChanged, promptsChanged, resourcesChanged} {
				if told && s.wants.passes(method) && (method != resourcesChanged || len(m.resources) > 0) {
					f.say(say.Changed(s.id, method, ""))
				}
			}
		})
	}
}

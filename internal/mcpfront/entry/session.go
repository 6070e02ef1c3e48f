//go:build unix

package entry

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"sync/atomic"

	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpfront/paper"
	"github.com/tgad/tgad/internal/mcpfront/say"
	"github.com/tgad/tgad/internal/mcpfront/wait"
	"github.com/tgad/tgad/internal/mcpraw"
)

// exchange is one POST that waits for an answer.
type exchange struct {
	events chan event
	id     []byte // the client's own id of the request
	token  []byte // the client's own progress token
	gone   <-chan struct{}

	socket  any  // connection of the POST
	listens bool // the request is a subscription
	modern  bool // the request's revision gives some answers an HTTP status of their own
	opens   bool // the request is the handshake of a new session

	// ended says that the last message is queued, or none comes. Guarded by the session's lock.
	ended bool

	challenge atomic.Pointer[frames.Challenge] // the answer is this challenge
	cancelled *wait.Latch                      // the client cancelled the request: no answer comes
}

// event is a message for one POST; the last one is the answer.
type event struct {
	raw  []byte
	last bool
	done chan error // gets the result of the write
}

// exchange gives a request to the conversation and writes what comes back: one answer as
// JSON, or a stream if other messages come before the answer.
func (s *session) exchange(w http.ResponseWriter, r *http.Request, m *frames.Frame, modern bool) {
	e := &exchange{socket: r.Context().Value(socketKey{}), events: make(chan event, maxQueued), id: m.RawID, listens: m.Method == say.Listen, gone: r.Context().Done(), modern: modern, opens: m.Method == "initialize" && !s.shared, cancelled: wait.NewLatch()}
	m, key, err := s.enter(m, e)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	defer s.leave(key, e)
	taken := make(chan struct{})
	// In a goroutine: FromClient may answer at once, and only this goroutine takes that answer.
	s.f.wg.Go(func() {
		defer close(taken)
		s.hear(m)
	})
	out := &poster{e: e, f: s.f, w: w, socket: e.socket, modern: modern}
	if e.opens {
		defer func() {
			if e.challenge.Load() != nil {
				s.c.End() // a client that is not authorized gets no session
			}
		}()
	}
	for {
		select {
		case ev := <-e.events:
			if out.write(ev) {
				return
			}
		case <-r.Context().Done():
			// The client closed the stream of its answer, which gives the request up.
			<-taken // first: a request that is not registered yet cannot be given up
			s.c.GivenUp(key)
			return
		case <-e.cancelled.C:
			if !out.rest() {
				out.stream() // it ends without an answer
			}
			return
		case <-s.over:
			if out.rest() {
				return
			}
			if !out.streaming { // else the end of the stream tells the client
				http.Error(w, "the tool server is gone", http.StatusBadGateway)
			}
			return
		}
	}
}

type socketKey struct{}

// Reap gives up the calls whose clients have closed their streams. net/http reports a closed
// stream with a delay. A client that repeats its call at once may be quicker, and the log would
// take the repeat for the call of another living client. So every attempt calls Reap before it
// asks the log. Then no stream that was closed before this call still counts as alive: the
// attempt of that earlier call is either known here, or calls Reap itself before it begins.
func (f *Front) Reap() {
	f.mu.Lock()
	all := f.all()
	f.mu.Unlock()
	for _, s := range all {
		s.mu.Lock()
		var gone []frames.Key
		for key, e := range s.waits {
			if paper.ClosedByPeer(e.socket) {
				gone = append(gone, key)
			}
		}
		s.mu.Unlock()
		for _, key := range gone {
			s.c.GivenUp(key)
		}
	}
}

// Challenge makes the answer to a request ask for authorization.
func (s *session) Challenge(id []byte, ch *frames.Challenge) {
	if !ch.ComesBack() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.waits[frames.KeyOf(id)]; e != nil {
		e.challenge.Store(ch)
	}
}

// hear gives a message to the conversation, and then ends the exchanges that the message cancels.
func (s *session) hear(m *frames.Frame) {
	ends := s.cancelled(m)
	s.c.FromClient(m)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range ends {
		e.ended = true
		e.cancelled.Set()
	}
}

// cancelled returns the exchanges that a message of the client, or one of an array, cancels. The client's POST of such a
// request is still open, and no answer comes on it. A handshake cannot be cancelled. If requests of an array are cancelled, the
// conversation says what becomes of its exchange.
func (s *session) cancelled(m *frames.Frame) (ends []*exchange) {
	all := []*frames.Frame{m}
	if m.Batch {
		all = frames.Split(m)
	}
	for _, m := range all {
		if s.shared || !m.IsNotification() || m.Method != "notifications/cancelled" {
			continue
		}
		params, err := m.Bytes(m.Params, frames.MaxCancel)
		if err != nil {
			continue
		}
		s.mu.Lock()
		if e := s.waits[frames.KeyOf(mcpraw.At(params, "/requestId"))]; e != nil && !e.opens {
			ends = append(ends, e)
		}
		s.mu.Unlock()
	}
	return ends
}

// enter notes that a POST waits for a request's answer. If clients share the tool server, the
// front replaces the request's id and progress token by its own. An array gets a name, because
// its answer has no id.
func (s *session) enter(m *frames.Frame, e *exchange) (*frames.Frame, frames.Key, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch n := s.f.next.Add(1); {
	case m.Batch:
		m.RawID = fmt.Appendf(nil, "array %d", n)
	case s.shared:
		m = s.rename(m, e, n)
	}
	key := frames.KeyOf(m.RawID)
	if s.waits[key] != nil {
		return nil, "", errors.New("a request of this id is under way")
	}
	s.waits[key] = e
	return m, key, nil
}

// rename replaces the id and the progress token of a request.
func (s *session) rename(m *frames.Frame, e *exchange, n uint64) *frames.Frame {
	name := strconv.AppendUint(nil, n, 10)
	m = frames.Replace(m, m.ID, name)
	if !m.Params.Present() {
		return m
	}
	from, to, ok := mcpraw.Locate(m.Head[m.Params.From:m.Params.To], "/_meta/progressToken")
	if !ok {
		return m
	}
	base := m.Params.From
	at := mcpraw.Span{From: base + int64(from), To: base + int64(to)}
	e.token = bytes.Clone(m.Head[at.From:at.To])
	s.tokens[string(name)] = e
	return frames.Replace(m, at, name)
}

func (s *session) leave(key frames.Key, e *exchange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waits[key] == e {
		delete(s.waits, key)
	}
	for name, x := range s.tokens {
		if x == e {
			delete(s.tokens, name)
		}
	}
}

// Send writes a message to the POST that it belongs to, and returns once the message was
// written whole.
func (s *session) Send(env *mcpraw.Envelope, parts ...io.WriterTo) error {
	e, ev, err := s.post(env, parts)
	if e == nil || err != nil {
		return err
	}
	select {
	case err = <-ev.done:
	case <-e.gone:
		select {
		case err = <-ev.done: // preferred: a select takes any of two ready cases
		default:
			return ErrNoTaker
		}
	}
	if err != nil {
		// Only this client's connection failed. The conversation goes on: others may share it.
		return fmt.Errorf("%w: %w", ErrNoTaker, err)
	}
	return nil
}

// Hand is [session.Send] without waiting for the write: the goroutine that reads the tool
// server must not wait for a client. It waits only while the POST's queue is full.
func (s *session) Hand(env *mcpraw.Envelope, parts ...io.WriterTo) error {
	_, _, err := s.post(env, parts)
	return err
}

// post queues a message for the POST that it belongs to, and returns that POST's exchange. A
// message for the client's own stream is queued there; then, and if it is for nobody, the
// exchange is nil.
func (s *session) post(env *mcpraw.Envelope, parts []io.WriterTo) (*exchange, event, error) {
	var buf bytes.Buffer
	for _, p := range parts {
		if _, err := p.WriteTo(&buf); err != nil {
			return nil, event{}, err
		}
	}
	m := frames.NewFrame(buf.Bytes())
	s.mu.Lock()
	var e *exchange
	var last, only bool
	if env.Batch {
		e, last = s.waits[frames.KeyOf(env.RawID)], true
	} else {
		e, last, only = s.route(m)
	}
	if e == nil && !last && !only && !s.shared {
		// It belongs to no request: it goes on the stream that the client has open, or opens next.
		if s.stream == nil || !trySend(s.stream, m.Head) {
			if len(s.pending) < maxBuffered {
				s.pending = append(s.pending, m.Head)
			}
		}
	}
	ev := event{raw: m.Head, last: last, done: make(chan error, 1)}
	queued := false
	if e != nil {
		e.ended = e.ended || last
	}
	if e != nil && !s.shared {
		// Under the lock: what is queued before the exchange has ended is written.
		select {
		case e.events <- ev:
			queued = true
		default: // the queue is full
		}
	}
	s.mu.Unlock()
	switch {
	case queued:
		return e, ev, nil
	case e == nil && (last || only):
		return nil, event{}, ErrNoTaker
	case e == nil:
		return nil, event{}, nil
	case s.shared:
		ev.raw = e.restore(m)
	}
	select {
	case e.events <- ev:
		return e, ev, nil
	case <-e.gone:
		return nil, event{}, ErrNoTaker
	}
}

// route finds the POST that a message belongs to. last says that the message is the answer.
// only says that the message may go nowhere else.
func (s *session) route(m *frames.Frame) (e *exchange, last, only bool) {
	if id := say.SubscriptionID(m); id != nil {
		return s.waits[frames.KeyOf(id)], false, true
	}
	switch {
	case m.Bad != "" || m.IsStray():
		return nil, false, true // malformed, or an answer to no request: over HTTP it has no place
	case m.IsAnswer():
		return s.waits[frames.KeyOf(m.RawID)], true, false
	case m.Method == "notifications/progress":
		params, err := m.Bytes(m.Params, frames.SpillBytes)
		if err != nil {
			return nil, false, false
		}
		token := mcpraw.At(params, "/progressToken")
		if s.shared {
			return s.tokens[mcpraw.ScalarText(token)], false, false
		}
		return s.anyPost(), false, false // the client goes by the token
	}
	if s.stream != nil {
		return nil, false, false
	}
	// A client without a stream of its own gets the message before an answer that it waits for.
	return s.anyPost(), false, false
}

// anyPost returns an exchange of the session's only client to which messages are still written, nil for none.
func (s *session) anyPost() *exchange {
	if s.shared {
		return nil
	}
	for _, e := range s.waits {
		select {
		case <-e.gone:
		default:
			if !e.ended {
				return e
			}
		}
	}
	return nil
}

// restore puts the client's own id and progress token back into a message.
func (e *exchange) restore(m *frames.Frame) []byte {
	if m.IsAnswer() {
		m = frames.Replace(m, m.ID, e.id)
		if e.listens {
			m = e.renamed(m, m.Result)
		}
		return m.Head
	}
	if say.SubscriptionID(m) != nil {
		return e.renamed(m, m.Params).Head
	}
	if e.token != nil && m.Params.Present() {
		if from, to, ok := mcpraw.Locate(m.Head[m.Params.From:m.Params.To], "/progressToken"); ok {
			return frames.Replace(m, mcpraw.Span{From: m.Params.From + int64(from), To: m.Params.From + int64(to)}, e.token).Head
		}
	}
	return m.Head
}

// renamed puts the client's own id of a subscription back into a part of a message.
func (e *exchange) renamed(m *frames.Frame, part mcpraw.Span) *frames.Frame {
	if !part.Present() {
		return m
	}
	from, to, ok := mcpraw.Locate(m.Head[part.From:part.To], say.SubscriptionAt)
	if !ok {
		return m
	}
	return frames.Replace(m, mcpraw.Span{From: part.From + int64(from), To: part.From + int64(to)}, e.id)
}

func trySend(to chan []byte, raw []byte) bool {
	select {
	case to <- raw:
		return true
	default:
		return false
	}
}

// Retire ends each conversation of the front once nothing is under way in it. It lets no client in any more, and ends
// subscriptions and streams at once.
func (f *Front) Retire(log *slog.Logger) {
	f.mu.Lock()
	all := f.all()
	close(f.closed)
	f.mu.Unlock()
	for _, s := range all {
		s.mu.Lock()
		for _, e := range s.waits {
			if e.listens {
				e.cancelled.Set()
			}
		}
		s.mu.Unlock()
	}
	for _, s := range all {
		f.wg.Go(func() {
			for s.busy() && wait.Rest(f.life, wait.Look) {
			}
			s.c.End()
		})
	}
	log.Info("an identity was removed; its conversations end once their calls are answered", "conversations", len(all))
}

// busy reports whether a request of the session's clients is under way. Subscriptions do not count.
func (s *session) busy() bool {
	s.mu.Lock()
	waits := 0
	for _, e := range s.waits {
		if !e.listens {
			waits++
		}
	}
	s.mu.Unlock()
	return waits > 0 || s.c.Busy()
}

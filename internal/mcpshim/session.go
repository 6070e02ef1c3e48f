//go:build unix

package mcpshim

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strconv"
)

// exchange gives a request to the conversation and writes what comes back for it: one
// answer as JSON, or a stream where messages come before it.
func (s *session) exchange(w http.ResponseWriter, r *http.Request, m *frame) {
	e := &exchange{events: make(chan event), id: m.rawID, gone: r.Context().Done()}
	m, key, err := s.enter(m, e)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	defer s.leave(key, e)
	// Apart: a refusal is answered from inside, and this goroutine is who takes it.
	s.f.wg.Go(func() { s.c.fromClient(m, nil) })
	streaming := false
	for {
		select {
		case ev := <-e.events:
			if ev.last && !streaming {
				w.Header().Set("Content-Type", "application/json")
				_, err := w.Write(ev.raw)
				ev.done <- errors.Join(err, flush(w))
				return
			}
			if !streaming {
				streaming = true
				w.Header().Set("Content-Type", "text/event-stream")
				w.Header().Set("Cache-Control", "no-store")
			}
			ev.done <- writeEvent(w, ev.raw)
			if ev.last {
				return
			}
		case <-r.Context().Done():
			// The client is gone, and with it the way of its answer: it gave the call up.
			if m.isRequest() {
				n := append([]byte(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`), m.rawID...)
				s.c.fromClient(newFrame(append(n, "}}"...)), nil)
			}
			return
		case <-s.over:
			http.Error(w, "the tool server is gone", http.StatusBadGateway)
			return
		}
	}
}

func writeEvent(w http.ResponseWriter, raw []byte) error {
	for _, part := range [][]byte{[]byte("event: message\ndata: "), raw, []byte("\n\n")} {
		if _, err := w.Write(part); err != nil {
			return err
		}
	}
	return flush(w)
}

func flush(w http.ResponseWriter) error { return http.NewResponseController(w).Flush() }

// enter notes a POST as the one that waits for a request's answer. Where clients share a
// tool server, its id and progress token are replaced by names of the front's own.
func (s *session) enter(m *frame, e *exchange) (*frame, idKey, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := idKey("batch") // an array is answered by an array, which has no id
	switch {
	case m.rawID == nil || m.batch:
		e.id = nil
	case s.shared && m.bad == "":
		m = s.rename(m, e, s.f.next.Add(1))
		fallthrough
	default:
		key = keyOf(m.rawID)
	}
	if s.waits[key] != nil {
		return nil, "", errors.New("a request of this id is under way")
	}
	s.waits[key] = e
	return m, key, nil
}

// rename replaces the id and the progress token of a request.
func (s *session) rename(m *frame, e *exchange, n uint64) *frame {
	name := strconv.AppendUint(nil, n, 10)
	m = replace(m, m.id, name)
	if !m.params.present() {
		return m
	}
	from, to, ok := locate(m.head[m.params.from:m.params.to], "/_meta/progressToken")
	if !ok {
		return m
	}
	base := m.params.from
	at := span{base + int64(from), base + int64(to)}
	e.token = bytes.Clone(m.head[at.from:at.to])
	s.tokens[string(name)] = e
	return replace(m, at, name)
}

// replace makes a message with other bytes in one place.
func replace(m *frame, at span, with []byte) *frame {
	raw := append([]byte(nil), m.head[:at.from]...)
	return newFrame(append(append(raw, with...), m.head[at.to:]...))
}

func (s *session) leave(key idKey, e *exchange) {
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

// send gives a message to whichever request of the client's it belongs to.
func (s *session) send(env *envelope, parts ...io.WriterTo) error {
	var buf bytes.Buffer
	for _, p := range parts {
		if _, err := p.WriteTo(&buf); err != nil {
			return err
		}
	}
	m := newFrame(buf.Bytes())
	s.mu.Lock()
	e, last := s.route(m)
	if e == nil && !last && !s.shared {
		// Of its own accord: on the stream that the client has open, or opens next.
		if s.stream == nil || !trySend(s.stream, m.head) {
			if len(s.pending) < maxBuffered {
				s.pending = append(s.pending, m.head)
			}
		}
	}
	s.mu.Unlock()
	if e == nil {
		if last {
			return errNoTaker
		}
		return nil
	}
	raw := m.head
	if s.shared {
		raw = e.restore(m)
	}
	ev := event{raw: raw, last: last, done: make(chan error, 1)}
	select {
	case e.events <- ev:
		return <-ev.done
	case <-e.gone:
		return errNoTaker
	}
}

// errNoTaker says that the request of an answer is gone. The conversation goes on.
var errNoTaker = errors.New("nobody waits for the answer any more")

// route finds the POST that a message belongs to, and whether it is its answer.
func (s *session) route(m *frame) (e *exchange, last bool) {
	switch {
	case m.batch || m.isAnswer() || m.bad == "" && m.method == "" || m.rawID == nil && m.method == "":
		key := idKey("batch")
		if m.rawID != nil {
			key = keyOf(m.rawID)
		}
		return s.waits[key], true
	case m.method == "notifications/progress":
		params, err := m.bytes(m.params, spillBytes)
		if err != nil {
			return nil, false
		}
		token := at(params, "/progressToken")
		if s.shared {
			return s.tokens[scalarText(token)], false
		}
		for _, e := range s.waits {
			return e, false // any of the client's own will do: it tells them apart by the token
		}
	}
	if s.stream != nil {
		return nil, false
	}
	// A client without a stream of its own hears it with the answer that it waits for.
	for _, e := range s.waits {
		if !s.shared {
			return e, false
		}
	}
	return nil, false
}

// restore puts the client's own id or token back.
func (e *exchange) restore(m *frame) []byte {
	if m.isAnswer() {
		return replace(m, m.id, e.id).head
	}
	if e.token != nil && m.params.present() {
		if from, to, ok := locate(m.head[m.params.from:m.params.to], "/progressToken"); ok {
			return replace(m, span{m.params.from + int64(from), m.params.from + int64(to)}, e.token).head
		}
	}
	return m.head
}

func trySend(to chan []byte, raw []byte) bool {
	select {
	case to <- raw:
		return true
	default:
		return false
	}
}

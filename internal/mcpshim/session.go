//go:build unix

package mcpshim

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strconv"

	"github.com/tgad/tgad/runtime/mcp/mcpraw"
)

// exchange gives a request to the conversation and writes what comes back for it: one
// answer as JSON, or a stream where messages come before it.
func (s *session) exchange(w http.ResponseWriter, r *http.Request, m *frame) {
	e := &exchange{events: make(chan event), id: m.RawID, listens: m.Method == listenMethod, gone: r.Context().Done()}
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
			if m.IsRequest() {
				n := append([]byte(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`), m.RawID...)
				s.c.fromClient(newFrame(append(n, "}}"...)), nil)
			}
			return
		case <-s.over:
			if streaming {
				return // the end of the stream says it
			}
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
	case m.RawID == nil || m.Batch:
		e.id = nil
	case s.shared && m.Bad == "":
		m = s.rename(m, e, s.f.next.Add(1))
		fallthrough
	default:
		key = keyOf(m.RawID)
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
	m = replace(m, m.ID, name)
	if !m.Params.Present() {
		return m
	}
	from, to, ok := mcpraw.Locate(m.head[m.Params.From:m.Params.To], "/_meta/progressToken")
	if !ok {
		return m
	}
	base := m.Params.From
	at := mcpraw.Span{From: base + int64(from), To: base + int64(to)}
	e.token = bytes.Clone(m.head[at.From:at.To])
	s.tokens[string(name)] = e
	return replace(m, at, name)
}

// replace makes a message with other bytes in one place.
func replace(m *frame, at mcpraw.Span, with []byte) *frame {
	raw := append([]byte(nil), m.head[:at.From]...)
	return newFrame(append(append(raw, with...), m.head[at.To:]...))
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
func (s *session) send(env *mcpraw.Envelope, parts ...io.WriterTo) error {
	var buf bytes.Buffer
	for _, p := range parts {
		if _, err := p.WriteTo(&buf); err != nil {
			return err
		}
	}
	m := newFrame(buf.Bytes())
	s.mu.Lock()
	e, last, only := s.route(m)
	if e == nil && !last && !only && !s.shared {
		// Of its own accord: on the stream that the client has open, or opens next.
		if s.stream == nil || !trySend(s.stream, m.head) {
			if len(s.pending) < maxBuffered {
				s.pending = append(s.pending, m.head)
			}
		}
	}
	s.mu.Unlock()
	if e == nil {
		if last || only {
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

// route finds the POST that a message belongs to, and whether it is its answer. only says
// that nobody else may have it.
func (s *session) route(m *frame) (e *exchange, last, only bool) {
	if id := subscriptionID(m); id != nil {
		return s.waits[keyOf(id)], false, true
	}
	switch {
	case m.Batch || m.IsAnswer() || m.Bad == "" && m.Method == "" || m.RawID == nil && m.Method == "":
		key := idKey("batch")
		if m.RawID != nil {
			key = keyOf(m.RawID)
		}
		return s.waits[key], true, false
	case m.Method == "notifications/progress":
		params, err := m.bytes(m.Params, spillBytes)
		if err != nil {
			return nil, false, false
		}
		token := mcpraw.At(params, "/progressToken")
		if s.shared {
			return s.tokens[mcpraw.ScalarText(token)], false, false
		}
		for _, e := range s.waits {
			return e, false, false // any of the client's own will do: it tells them apart by the token
		}
	}
	if s.stream != nil {
		return nil, false, false
	}
	// A client without a stream of its own hears it with the answer that it waits for.
	for _, e := range s.waits {
		if !s.shared {
			return e, false, false
		}
	}
	return nil, false, false
}

// restore puts the client's own id or token back.
func (e *exchange) restore(m *frame) []byte {
	if m.IsAnswer() {
		m = replace(m, m.ID, e.id)
		if e.listens {
			m = e.renamed(m, m.Result)
		}
		return m.head
	}
	if subscriptionID(m) != nil {
		return e.renamed(m, m.Params).head
	}
	if e.token != nil && m.Params.Present() {
		if from, to, ok := mcpraw.Locate(m.head[m.Params.From:m.Params.To], "/progressToken"); ok {
			return replace(m, mcpraw.Span{From: m.Params.From + int64(from), To: m.Params.From + int64(to)}, e.token).head
		}
	}
	return m.head
}

// renamed puts the client's own id in place of a subscription's in a part of a message.
func (e *exchange) renamed(m *frame, part mcpraw.Span) *frame {
	if !part.Present() {
		return m
	}
	from, to, ok := mcpraw.Locate(m.head[part.From:part.To], subscriptionAt)
	if !ok {
		return m
	}
	return replace(m, mcpraw.Span{From: part.From + int64(from), To: part.From + int64(to)}, e.id)
}

func trySend(to chan []byte, raw []byte) bool {
	select {
	case to <- raw:
		return true
	default:
		return false
	}
}

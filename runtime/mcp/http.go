package mcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/internal/onwire"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/dispatch/httpcall"
	"github.com/tgad/tgad/schemas/tga"
)

// writeGrace bounds the write of a message that no caller waits for, such as a cancellation.
const writeGrace = time.Second

// httpLink is a link to a streamable HTTP endpoint: one POST a message. It opens no GET stream
// and resumes none. So it gets a server's messages only in the answer to a POST, which may be
// that of subscriptions/listen.
//
// The SDK's client transport is not used, because it reconnects after a broken stream, and does
// not tell "no byte was written" from doubt.
type httpLink struct {
	url     string
	headers map[string]string
	limit   int64
	log     *slog.Logger
	heard   func(method string) // called for each notification of the server
	rt      mcpraw.Transport

	next atomic.Int64
	ctx  context.Context // ends with close, or with the Server
	end  context.CancelFunc

	mu      sync.Mutex
	session string          // Mcp-Session-Id, "" = none
	version mcpraw.Revision // agreed in the handshake
	dead    bool            // the session has ended: no new request is written
	open    sync.WaitGroup
}

// newHTTPLink makes a link without dialling. Its exchanges end with life.
func newHTTPLink(life context.Context, opts Options, log *slog.Logger, heard func(method string)) *httpLink {
	l := &httpLink{url: opts.URL, headers: opts.Headers, limit: opts.MaxAnswerBytes, log: log, heard: heard}
	l.ctx, l.end = context.WithCancel(life)
	l.rt = mcpraw.NewTransport()
	return l
}

func (l *httpLink) agreed(version mcpraw.Revision) {
	l.mu.Lock()
	l.version = version
	l.mu.Unlock()
}

func (l *httpLink) stateless() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.version.Stateless()
}

func (l *httpLink) alive() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.dead && l.ctx.Err() == nil
}

// post sends one message, once. It uses the transport without http.Client, which would follow
// redirects. The request has no GetBody, so net/http cannot send the body again on its own.
func (l *httpLink) post(ctx context.Context, method string, params, body []byte, mirrored []mcpraw.ParamValue) (*http.Response, error) {
	var way onwire.Request
	req, err := http.NewRequestWithContext(way.Follow(ctx), http.MethodPost, l.url, io.NopCloser(bytes.NewReader(body)))
	if err != nil {
		return nil, onwire.NotSent(err)
	}
	req.ContentLength = int64(len(body))
	for k, v := range l.headers {
		req.Header.Set(k, v)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	l.mu.Lock()
	if l.session != "" {
		req.Header.Set("Mcp-Session-Id", l.session)
	}
	version := l.version
	l.mu.Unlock()
	if version == "" { // not agreed yet: use the revision that the request names, if it does (server/discover)
		version = mcpraw.RevisionOf(params)
	}
	if version.Stateless() {
		mcpraw.Mirror(req.Header, version, method, mcpraw.NameOf(method, params), mirrored)
	} else if version != "" {
		req.Header.Set("Mcp-Protocol-Version", string(version))
	}
	resp, err := l.rt.RoundTrip(req)
	return resp, way.Fault(err)
}

func (l *httpLink) exchange(ctx context.Context, req *jsonrpc.Request, mirrored ...mcpraw.ParamValue) (*answer, error) {
	l.mu.Lock()
	if l.dead || l.ctx.Err() != nil {
		l.mu.Unlock()
		return nil, notSent("the session has ended")
	}
	l.open.Add(1)
	l.mu.Unlock()
	defer l.open.Done()

	id := l.next.Add(1)
	body, err := frame(req, id)
	if err != nil {
		return nil, notSent("%v", err)
	}
	bounded, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.ctx, cancel)()

	resp, err := l.post(bounded, req.Method, req.Params, body, mirrored)
	if errors.Is(err, runtime.ErrNotSent) {
		return nil, err
	}
	var a *answer
	if err == nil {
		defer resp.Body.Close()
		a, err = l.answer(bounded, req.Method, id, resp)
	}
	// From 2026-07-28 on the end of the POST itself cancels the request.
	if err != nil && ctx.Err() != nil && req.Method != "initialize" && !l.stateless() {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeGrace)
		defer cancel()
		if not := l.notify(last, cancelled(id)); not != nil {
			l.log.Debug("cancellation not sent", "error", not)
		}
	}
	return a, err
}

// answer reads the response to request id.
func (l *httpLink) answer(ctx context.Context, method string, id int64, resp *http.Response) (*answer, error) {
	kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil {
		kind = "" // no usable type: the status decides
	}
	if resp.StatusCode/100 == 2 { // some servers answer a POST with 201
		if method == "initialize" {
			l.mu.Lock()
			l.session = resp.Header.Get("Mcp-Session-Id")
			l.mu.Unlock()
		}
		switch kind {
		case "application/json":
			s := newMessage(l.limit)
			if _, err := io.Copy(s, resp.Body); err != nil {
				return nil, fmt.Errorf("read answer: %w", err)
			}
			return l.mine(s, id)
		case "text/event-stream":
			return l.events(ctx, id, resp.Body)
		}
		if resp.StatusCode == http.StatusOK {
			return nil, fmt.Errorf("answer of type %q", kind)
		}
	}
	after := httpcall.RetryAfter(resp.Header, time.Now())
	if !mcpraw.Refused(resp.StatusCode) {
		e := tga.Errorf(tga.ToolError, "HTTP status %s", resp.Status)
		e.RetryAfter = after
		return nil, e
	}
	body, err := mcpraw.ReadRefusal(resp.Body)
	l.mu.Lock()
	ended := l.session != "" && mcpraw.EndsSession(resp.StatusCode, body)
	l.dead = l.dead || ended // the next call makes a new session
	l.mu.Unlock()
	if err != nil {
		e := tga.Errorf(tga.ToolError, "HTTP status %s: %w", resp.Status, err)
		e.RetryAfter = after
		return nil, e
	}
	s := newMessage(mcpraw.MaxRefusal)
	_, _ = s.Write(body) // never fails
	a, err := l.mine(s, id)
	if err == nil && (a.result.present || a.fault.present) {
		return a, nil
	}
	if got, ok := s.number(); err != nil && ok && got == id { // an answer that cannot be read
		e := tga.Errorf(tga.ToolError, "HTTP status %s, and its body does not pass: %s", resp.Status, s.env.Bad)
		e.RetryAfter = after
		return nil, e
	}
	return &answer{refused: fmt.Sprintf("HTTP status %s: %.1024s", resp.Status, bytes.TrimSpace(body)),
		busy: resp.StatusCode == http.StatusTooManyRequests, ended: ended, after: after}, nil
}

// mine returns m as the answer to request id, or an error if it is not that.
func (l *httpLink) mine(m *message, id int64) (*answer, error) {
	if !m.done() {
		return nil, errors.New("answer is no JSON-RPC message, or was cut")
	}
	if got, ok := m.number(); !ok || got != id {
		return nil, fmt.Errorf("answer is for request %q, not %d", m.env.RawID, id)
	}
	return answerIn(m), nil
}

// events reads a stream of server-sent events until the answer to request id. The data of an
// event is scanned as it arrives and may have any length.
func (l *httpLink) events(ctx context.Context, id int64, body io.Reader) (*answer, error) {
	in := mcpraw.EventReader(body)
	m := newMessage(l.limit)
	for {
		empty, err := mcpraw.ReadEventLine(in, m.line, m.add, nil)
		if empty && !m.Blank() {
			if a := l.event(ctx, id, m); a != nil {
				return a, nil
			}
			m = newMessage(l.limit)
		}
		if err != nil {
			return nil, fmt.Errorf("stream ended before the answer: %w", err)
		}
	}
}

// event handles one message and returns it if it is the answer.
func (l *httpLink) event(ctx context.Context, id int64, m *message) *answer {
	switch {
	case !m.done():
		l.log.Warn("tool server sent an event that is no JSON-RPC message; ignored")
	case m.env.IsRequest():
		if err := l.send(ctx, "", serverRequest(m)); err != nil {
			l.log.Debug("answer to the tool server's request not sent", "error", err)
		}
	case m.env.Method != "":
		l.heard(m.env.Method)
	default:
		a, err := l.mine(m, id)
		if err == nil {
			return a
		}
		l.log.Warn("tool server sent an answer that is not waited for", "error", err)
	}
	return nil
}

func (l *httpLink) notify(ctx context.Context, n *jsonrpc.Request) error {
	body, err := frame(n, 0)
	if err != nil {
		return err
	}
	return l.send(ctx, n.Method, body)
}

// send posts a message that has no answer.
func (l *httpLink) send(ctx context.Context, method string, body []byte) error {
	resp, err := l.post(ctx, method, nil, body, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("HTTP status %s", resp.Status)
	}
	return nil
}

func (l *httpLink) retire() {}

// close ends all exchanges, and then, best effort, the session at the server.
func (l *httpLink) close() {
	l.mu.Lock()
	session, version, dead := l.session, l.version, l.dead
	l.dead = true
	l.mu.Unlock()
	l.end()
	l.open.Wait()
	defer l.rt.CloseIdleConnections()
	if session == "" || dead {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), writeGrace)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodDelete, l.url, nil)
	if err != nil {
		return // the URL was good for every POST
	}
	for k, v := range l.headers {
		req.Header.Set(k, v)
	}
	req.Header.Set("Mcp-Session-Id", session)
	if version != "" {
		req.Header.Set("Mcp-Protocol-Version", string(version))
	}
	resp, err := l.rt.RoundTrip(req)
	if err != nil {
		l.log.Debug("end of session not sent", "error", err)
		return
	}
	_ = resp.Body.Close()
}

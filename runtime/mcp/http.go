package mcp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// httpLink is a link to a streamable HTTP endpoint: a POST a message. It opens no
// stream of its own (GET) and resumes none: what a server wants to say belongs to the
// answer of a POST.
//
// The SDK's client transport is not used here. It answers a broken stream by
// reconnecting, and it gives no way to tell "not a byte was written" from doubt.
type httpLink struct {
	url     string
	headers map[string]string
	limit   int64
	log     *slog.Logger
	rt      *http.Transport

	next atomic.Int64
	ctx  context.Context // ends with close, or with the Server
	end  context.CancelFunc

	mu      sync.Mutex
	session string // Mcp-Session-Id, "" = none
	version string // agreed in the handshake
	dead    bool   // the server does not know the session any more
	open    sync.WaitGroup
}

// refusals are the statuses by which an MCP endpoint says that it did not take the
// message. Any other is doubt: behind a proxy it may stand for anything.
var refusals = map[int]bool{
	http.StatusBadRequest:            true,
	http.StatusUnauthorized:          true,
	http.StatusForbidden:             true,
	http.StatusNotFound:              true,
	http.StatusMethodNotAllowed:      true,
	http.StatusNotAcceptable:         true,
	http.StatusRequestEntityTooLarge: true,
	http.StatusUnsupportedMediaType:  true,
	http.StatusTooManyRequests:       true,
}

const (
	dialTimeout = 10 * time.Second
	maxSSELine  = 1 << 10 // of a field that is not data
	maxRefusal  = 1 << 10 // of a refusal's body
)

// newHTTPLink describes the endpoint; nothing is dialled. Its exchanges end with life.
func newHTTPLink(life context.Context, opts Options, log *slog.Logger) *httpLink {
	l := &httpLink{url: opts.URL, headers: opts.Headers, limit: opts.MaxAnswerBytes, log: log}
	l.ctx, l.end = context.WithCancel(life)
	var only1 http.Protocols
	only1.SetHTTP1(true)
	l.rt = &http.Transport{
		DialContext:         (&net.Dialer{Timeout: dialTimeout}).DialContext,
		TLSHandshakeTimeout: dialTimeout,
		// A connection a message. On a kept one, a server that closes it while a call
		// is on its way leaves a call in doubt that was never read.
		DisableKeepAlives:  true,
		DisableCompression: true, // the answer's bytes are kept as sent
		Protocols:          &only1,
	}
	return l
}

func (l *httpLink) agreed(version string) {
	l.mu.Lock()
	l.version = version
	l.mu.Unlock()
}

func (l *httpLink) alive() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.dead && l.ctx.Err() == nil
}

// post sends one message. written says whether a connection was handed the request:
// from then on bytes may have reached the server. The transport is used without
// http.Client, which would follow redirects, and the body cannot be had twice
// (GetBody is nil), so net/http does not send it again on its own.
func (l *httpLink) post(ctx context.Context, method, name string, body []byte) (resp *http.Response, written bool, err error) {
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { written = true },
	})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.url, io.NopCloser(bytes.NewReader(body)))
	if err != nil {
		return nil, false, err
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
	if version == "" && method == "server/discover" {
		version = stateless
	}
	if version != "" {
		req.Header.Set("Mcp-Protocol-Version", version)
	}
	if version >= stateless {
		req.Header.Set("Mcp-Method", method)
		if name != "" {
			req.Header.Set("Mcp-Name", name)
		}
	}
	resp, err = l.rt.RoundTrip(req)
	return resp, written, err
}

func (l *httpLink) exchange(ctx context.Context, req *jsonrpc.Request) (*answer, error) {
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

	var params struct {
		Name string `json:"name"`
	}
	_ = json.Unmarshal(req.Params, &params) // params without a name have none
	resp, written, err := l.post(bounded, req.Method, params.Name, body)
	if err != nil && !written {
		return nil, notSent("%v", err)
	}
	var a *answer
	if err == nil {
		defer resp.Body.Close()
		a, err = l.answer(bounded, req.Method, id, resp)
	}
	if err != nil && ctx.Err() != nil && req.Method != "initialize" {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeGrace)
		defer cancel()
		if not := l.notify(last, cancelled(id)); not != nil {
			l.log.Debug("cancellation not sent", "error", not)
		}
	}
	return a, err
}

// answer reads what came back for request id.
func (l *httpLink) answer(ctx context.Context, method string, id int64, resp *http.Response) (*answer, error) {
	kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil {
		kind = "" // no type; the status decides
	}
	if resp.StatusCode == http.StatusOK {
		if method == "initialize" {
			l.mu.Lock()
			l.session = resp.Header.Get("Mcp-Session-Id")
			l.mu.Unlock()
		}
		switch kind {
		case "application/json":
			s := newScanner(l.limit)
			if _, err := io.Copy(s, resp.Body); err != nil {
				return nil, fmt.Errorf("read answer: %w", err)
			}
			return l.mine(s, id)
		case "text/event-stream":
			return l.events(ctx, id, resp.Body)
		}
		return nil, fmt.Errorf("answer of type %q", kind)
	}
	if !refusals[resp.StatusCode] {
		return nil, fmt.Errorf("HTTP status %s", resp.Status)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
	if err != nil {
		return nil, fmt.Errorf("HTTP status %s: %w", resp.Status, err)
	}
	l.mu.Lock()
	if resp.StatusCode == http.StatusNotFound && l.session != "" {
		l.dead = true // the server ended the session; the next call makes a new one
	}
	l.mu.Unlock()
	s := newScanner(maxRefusal)
	_, _ = s.Write(body) // never fails
	if a, err := l.mine(s, id); err == nil && a.fault.present {
		return a, nil
	}
	return &answer{refused: fmt.Sprintf("HTTP status %s: %s", resp.Status, bytes.TrimSpace(body))}, nil
}

// mine returns s as the answer to request id.
func (l *httpLink) mine(s *scanner, id int64) (*answer, error) {
	if !s.done() {
		return nil, errors.New("answer is no JSON-RPC message, or was cut")
	}
	if got, ok := s.number(); !ok || got != id {
		return nil, fmt.Errorf("answer is for request %q, not %d", s.id.data, id)
	}
	return &answer{result: s.result, fault: s.fault}, nil
}

// events reads a stream of server-sent events until the answer to request id. The
// data of an event goes to a scanner as it arrives, however long.
func (l *httpLink) events(ctx context.Context, id int64, body io.Reader) (*answer, error) {
	in := bufio.NewReaderSize(body, 64<<10)
	s := newScanner(l.limit)
	for {
		empty, err := sseLine(in, s)
		if empty && s.state != scanStart {
			if a := l.event(ctx, id, s); a != nil {
				return a, nil
			}
			s = newScanner(l.limit)
		}
		if err != nil {
			return nil, fmt.Errorf("stream ended before the answer: %w", err)
		}
	}
}

// event handles one message and returns it if it is the answer.
func (l *httpLink) event(ctx context.Context, id int64, s *scanner) *answer {
	switch {
	case !s.done():
		l.log.Warn("tool server sent an event that is no JSON-RPC message; ignored")
	case s.method.present && !s.isNullID():
		if err := l.send(ctx, "", serverRequest(s)); err != nil {
			l.log.Debug("answer to the tool server's request not sent", "error", err)
		}
	case s.method.present: // a notification
	default:
		a, err := l.mine(s, id)
		if err == nil {
			return a
		}
		l.log.Warn("tool server sent an answer that is not waited for", "error", err)
	}
	return nil
}

var sseData = []byte("data:")

// sseLine reads one line and gives the value of a data field to s. It reports whether
// the line was empty, which ends an event. A line ends in LF or CR LF.
func sseLine(in *bufio.Reader, s *scanner) (empty bool, err error) {
	var field []byte // the line's start
	data, total := false, 0
	for {
		part, err := in.ReadSlice('\n')
		total += len(part)
		switch {
		case data:
			_, _ = s.Write(part) // never fails; the line end is white space to it
		case len(field) < maxSSELine:
			field = append(field, part...)
			if rest, ok := bytes.CutPrefix(field, sseData); ok {
				data = true
				_, _ = s.Write(rest)
			}
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		return !data && err == nil && len(bytes.TrimRight(field, "\r\n")) == 0, err
	}
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
	resp, _, err := l.post(ctx, method, "", body)
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

// close ends the session at the server, best effort, and all exchanges.
func (l *httpLink) close() {
	l.mu.Lock()
	session, dead := l.session, l.dead
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
	resp, err := l.rt.RoundTrip(req)
	if err != nil {
		l.log.Debug("end of session not sent", "error", err)
		return
	}
	_ = resp.Body.Close()
}

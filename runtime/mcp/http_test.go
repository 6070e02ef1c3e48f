//go:build unix

package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// endpoint is a scripted streamable HTTP server: it does the handshake and hands
// tools/call to a function of the test.
type endpoint struct {
	*httptest.Server
	t    *testing.T
	call func(w http.ResponseWriter, id json.RawMessage)

	mu       sync.Mutex
	calls    int
	sessions int
	nameless bool     // handshakes begin no sessions
	notes    []string // bodies of messages that are not requests
}

func newEndpoint(t *testing.T, call func(w http.ResponseWriter, id json.RawMessage)) (*endpoint, *Server) {
	t.Helper()
	e := &endpoint{t: t, call: call}
	e.Server = httptest.NewServer(e)
	t.Cleanup(e.Close)
	return e, newHTTP(t, e.URL, nil)
}

func newHTTP(t *testing.T, url string, change func(*Options)) *Server {
	t.Helper()
	opts := Options{URL: url, Headers: map[string]string{"Authorization": "Bearer x"}}
	if change != nil {
		change(&opts)
	}
	s, err := New("http", opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		e.t.Error(err)
	}
	if r.Header.Get("Authorization") != "Bearer x" {
		e.t.Errorf("%s without the configured header", r.Method)
	}
	if got := r.Header.Get("Accept-Encoding"); got != "identity" { // without it the server may compress its answer
		e.t.Errorf("%s that accepts the encoding %q", r.Method, got)
	}
	if r.Method == http.MethodDelete {
		if got := r.Header.Get("Mcp-Protocol-Version"); got != "2025-11-25" {
			e.t.Errorf("a DELETE of revision %q", got)
		}
		return
	}
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
	}
	if err := json.Unmarshal(body, &m); err != nil {
		e.t.Error(err)
	}
	w.Header().Set("Content-Type", "application/json")
	switch m.Method {
	case "initialize":
		e.mu.Lock()
		e.sessions++
		if !e.nameless {
			w.Header().Set("Mcp-Session-Id", fmt.Sprint("session-", e.sessions))
		}
		e.mu.Unlock()
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"e","version":"1"}}}`, m.ID)
	case "tools/call":
		if r.Header.Get("Mcp-Protocol-Version") != "2025-11-25" || strings.HasPrefix(r.Header.Get("Mcp-Session-Id"), "session-") == e.nameless {
			e.t.Errorf("headers %v", r.Header)
		}
		e.mu.Lock()
		e.calls++
		e.mu.Unlock()
		e.call(w, m.ID)
	case "server/discover":
		http.Error(w, "what?", http.StatusBadRequest)
	default:
		e.mu.Lock()
		e.notes = append(e.notes, string(body))
		e.mu.Unlock()
		w.WriteHeader(http.StatusAccepted)
	}
}

func (e *endpoint) count() (calls, sessions int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.calls, e.sessions
}

func answerOK(w http.ResponseWriter, id json.RawMessage) { io.WriteString(w, ok(id, "1")) }

func events(w http.ResponseWriter) { w.Header().Set("Content-Type", "text/event-stream") }

func hangUp(w http.ResponseWriter) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(err)
	}
	conn.Close()
}

func TestNumbersSurviveHTTP(t *testing.T) {
	// The SDK's server looks for the tool's name by decoding all of the params, which
	// 1e400 does not survive.
	numbers := strings.NewReplacer("<&>", "", `"e":1e400,`, "").Replace(numbers)
	for name, opts := range map[string]*sdk.StreamableHTTPOptions{
		"2025-11-25 events": {},
		"2025-11-25 json":   {JSONResponse: true},
		"2026-07-28":        {Stateless: true},
	} {
		t.Run(name, func(t *testing.T) {
			server := sdkServer()
			h := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, opts))
			defer h.Close()
			s := newHTTP(t, h.URL, nil)
			r, err := s.Dispatch(t.Context(), testCall("echo", numbers))
			if err != nil {
				t.Fatal(err)
			}
			if got := structured(t, r.Result); r.Status != tga.StatusSuccess || !strings.HasPrefix(got, `{"args":`+numbers+`,"meta":{"dev.tgad/attempt":1,`) {
				t.Errorf("%+v came back as %s", r, got)
			}
			if !strings.HasPrefix(name, string(s.current.version)) {
				t.Errorf("agreed on %s", s.current.version)
			}
			r, err = s.Dispatch(t.Context(), testCall("fail", "{}"))
			if err != nil || r.Status != tga.StatusFailure || r.ErrorMessage != "no funds" {
				t.Errorf("%+v, %v", r, err)
			}
			if tools, err := s.ListTools(t.Context()); err != nil || len(tools) != 3 {
				t.Errorf("tools %v, %v", tools, err)
			}
			r, err = s.Dispatch(t.Context(), testCall("unheard-of", "{}"))
			if err != nil || r.Status != tga.StatusFailure || r.ErrorCode != "VALIDATION_ERROR" {
				t.Errorf("%+v, %v", r, err)
			}
			if err := s.Close(); err != nil { // before the test server, whose Close waits
				t.Error(err)
			}
		})
	}
}

// TestAnswerWithAnotherSuccess: some servers answer a POST with 201 in place of 200. What comes with it is the answer.
func TestAnswerWithAnotherSuccess(t *testing.T) {
	for name, answer := range map[string]func(w http.ResponseWriter, id json.RawMessage){
		"json": func(w http.ResponseWriter, id json.RawMessage) {
			w.WriteHeader(http.StatusCreated)
			answerOK(w, id)
		},
		"stream": func(w http.ResponseWriter, id json.RawMessage) {
			events(w)
			w.WriteHeader(http.StatusCreated)
			io.WriteString(w, "data: "+ok(id, "1")+"\n\n")
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, s := newEndpoint(t, answer)
			if r, err := s.Dispatch(t.Context(), testCall("x", "{}")); err != nil || r.Status != tga.StatusSuccess {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
}

// In each case a call reached the endpoint and has no clear answer. There must be one arrival,
// doubt, and no other message on the wire.
func TestDoubtHTTP(t *testing.T) {
	for name, call := range map[string]func(w http.ResponseWriter, id json.RawMessage){
		"connection dies": func(w http.ResponseWriter, _ json.RawMessage) { hangUp(w) },
		"500":             func(w http.ResponseWriter, _ json.RawMessage) { w.WriteHeader(500) },
		"502":             func(w http.ResponseWriter, _ json.RawMessage) { w.WriteHeader(502) },
		"408":             func(w http.ResponseWriter, _ json.RawMessage) { w.WriteHeader(408) },
		"202":             func(w http.ResponseWriter, _ json.RawMessage) { w.WriteHeader(202) },
		"redirect": func(w http.ResponseWriter, _ json.RawMessage) {
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(307)
		},
		"empty":        func(w http.ResponseWriter, _ json.RawMessage) {},
		"cut":          func(w http.ResponseWriter, id json.RawMessage) { io.WriteString(w, ok(id, "1")[:30]) },
		"another's id": func(w http.ResponseWriter, _ json.RawMessage) { io.WriteString(w, ok([]byte("999"), "1")) },
		"HTML": func(w http.ResponseWriter, _ json.RawMessage) {
			w.Header().Set("Content-Type", "text/html")
			io.WriteString(w, "<p>please log in")
		},
		"length lies": func(w http.ResponseWriter, id json.RawMessage) {
			w.Header().Set("Content-Length", "1000")
			answerOK(w, id)
		},
		"stream ends": func(w http.ResponseWriter, _ json.RawMessage) {
			events(w)
			io.WriteString(w, "id: 1\nretry: 0\ndata:\n\n")
		},
		"stream is cut": func(w http.ResponseWriter, id json.RawMessage) {
			events(w)
			io.WriteString(w, "id: 1\ndata: "+ok(id, "1")[:40])
			w.(http.Flusher).Flush()
			hangUp(w)
		},
		"input required": func(w http.ResponseWriter, id json.RawMessage) {
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"resultType":"input_required","inputRequests":{}}}`, id)
		},
	} {
		t.Run(name, func(t *testing.T) {
			e, s := newEndpoint(t, call)
			if r, err := s.Dispatch(t.Context(), testCall("x", "{}")); err == nil || errors.Is(err, runtime.ErrNotSent) {
				t.Errorf("%+v, %v, want doubt", r, err)
			}
			if calls, _ := e.count(); calls != 1 {
				t.Errorf("%d calls arrived, want 1", calls)
			}
		})
	}
}

// net/http sends a POST with an Idempotency-Key again when a reused connection dies.
func TestOneWriteOnAConnectionThatDies(t *testing.T) {
	die := false
	e, _ := newEndpoint(t, func(w http.ResponseWriter, id json.RawMessage) {
		if die {
			hangUp(w)
			return
		}
		answerOK(w, id)
	})
	s := newHTTP(t, e.URL, func(o *Options) { o.Headers["Idempotency-Key"] = "k" })
	for range 3 {
		if _, err := s.Dispatch(t.Context(), testCall("x", "{}")); err != nil {
			t.Fatal(err)
		}
	}
	die = true
	if _, err := s.Dispatch(t.Context(), testCall("x", "{}")); err == nil || errors.Is(err, runtime.ErrNotSent) {
		t.Errorf("error %v, want doubt", err)
	}
	if calls, _ := e.count(); calls != 4 {
		t.Errorf("%d calls arrived, want 4", calls)
	}
}

// TestRefusalsHTTP: a status that refuses a call is its outcome. But a refusal of the session is no word about the call, which is not
// sent: by the protocol the client begins another session, and the call may be sent in that.
func TestRefusalsHTTP(t *testing.T) {
	for _, said := range []string{"go away", "go away: no valid Session ID provided", "go away: Server not initialized"} {
		for _, nameless := range []bool{false, true} {
			testRefusals(t, said, nameless)
		}
	}
}

func testRefusals(t *testing.T, said string, nameless bool) {
	for _, status := range []int{400, 401, 403, 404, 405, 406, 413, 415, 429} {
		e, s := newEndpoint(t, func(w http.ResponseWriter, _ json.RawMessage) {
			http.Error(w, said, status)
		})
		e.nameless = nameless
		ended := !nameless && (status == 404 || status == 400 && said != "go away")
		r, err := s.Dispatch(t.Context(), testCall("x", "{}"))
		switch {
		case ended && (!errors.Is(err, runtime.ErrNotSent) || !strings.Contains(err.Error(), "go away")):
			t.Errorf("%d in a session: %+v, %v, want not sent", status, r, err)
		case !ended && (err != nil || r.Status != tga.StatusDenied || !strings.Contains(r.ErrorMessage, "go away")):
			t.Errorf("%d, without a session %v: %+v, %v", status, nameless, r, err)
		}
		e.mu.Lock()
		e.call = answerOK
		e.mu.Unlock()
		if _, err := s.Dispatch(t.Context(), testCall("x", "{}")); err != nil {
			t.Errorf("after %d: %v", status, err)
		}
		calls, sessions := e.count()
		if want := map[bool]int{true: 2, false: 1}[ended]; calls != 2 || sessions != want {
			t.Errorf("%d: %d calls in %d sessions, want 2 in %d", status, calls, sessions, want)
		}
	}
}

// A session that the server ended gets no new call. Calls that are under way in it go on.
func TestEndedSessionLeavesOthersAlone(t *testing.T) {
	arrived, resume := make(chan struct{}), make(chan struct{})
	e, s := newEndpoint(t, nil)
	e.call = func(w http.ResponseWriter, id json.RawMessage) {
		switch calls, _ := e.count(); calls {
		case 1:
			close(arrived)
			<-resume
			answerOK(w, id)
		case 2:
			w.WriteHeader(http.StatusNotFound)
		default:
			answerOK(w, id)
		}
	}
	first := make(chan error)
	go func() {
		_, err := s.Dispatch(context.Background(), testCall("x", "{}"))
		first <- err
	}()
	<-arrived
	if _, err := s.Dispatch(t.Context(), testCall("x", "{}")); !errors.Is(err, runtime.ErrNotSent) {
		t.Errorf("call of a session that the server has ended: %v, want not sent", err)
	}
	if _, err := s.Dispatch(t.Context(), testCall("x", "{}")); err != nil {
		t.Error(err)
	}
	close(resume)
	if err := <-first; err != nil {
		t.Errorf("call of the old session: %v", err)
	}
	if _, sessions := e.count(); sessions != 2 {
		t.Errorf("%d sessions, want 2", sessions)
	}
}

func TestNotSentHTTP(t *testing.T) {
	e, s := newEndpoint(t, answerOK)
	if _, err := s.Dispatch(t.Context(), testCall("x", "{}")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Dispatch(ctx, testCall("x", "{}")); !errors.Is(err, runtime.ErrNotSent) {
		t.Errorf("cancelled before: %v", err)
	}
	e.Close()
	if _, err := s.Dispatch(t.Context(), testCall("x", "{}")); !errors.Is(err, runtime.ErrNotSent) {
		t.Errorf("in a session, nobody listens: %v", err)
	}
	if _, err := newHTTP(t, e.URL, nil).Dispatch(t.Context(), testCall("x", "{}")); !errors.Is(err, runtime.ErrNotSent) {
		t.Errorf("nobody listens: %v", err)
	}
}

func TestEventsBeforeTheAnswer(t *testing.T) {
	e, s := newEndpoint(t, func(w http.ResponseWriter, id json.RawMessage) {
		events(w)
		io.WriteString(w, ": a comment\r\nid: 1\r\nevent: message\r\n"+
			`data: {"jsonrpc":"2.0","method":"notifications/progress","params":{}}`+"\r\n\r\n"+
			`data:{"jsonrpc":"2.0","id":"p","method":"ping"}`+"\n\n"+
			"data: not JSON\n\n"+
			"data: "+ok([]byte("999"), "0")+"\n\n"+
			"data: {\"result\":{\"structuredContent\":\ndata: 9007199254740993},\ndata: \"jsonrpc\":\"2.0\",\"id\":"+string(id)+"}\n\n")
	})
	r, err := s.Dispatch(t.Context(), testCall("x", "{}"))
	if err != nil {
		t.Fatal(err)
	}
	if got := structured(t, r.Result); got != "9007199254740993" {
		t.Errorf("answer %s", got)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if last := e.notes[len(e.notes)-1]; last != `{"jsonrpc":"2.0","id":"p","result":{}}` {
		t.Errorf("the ping was answered with %s", last)
	}
}

func TestAnswerLimitHTTP(t *testing.T) {
	const limit = 200_000 // several reads long
	for _, stream := range []bool{false, true} {
		for _, over := range []int{0, 1} {
			head, tail := `{"content":[],"x":"`, `"}`
			result := head + strings.Repeat("y", limit+over-len(head)-len(tail)) + tail
			e, _ := newEndpoint(t, func(w http.ResponseWriter, id json.RawMessage) {
				prefix := ""
				if stream {
					events(w)
					prefix = "data: "
				}
				fmt.Fprintf(w, `%s{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n\n", prefix, id, result)
			})
			s := newHTTP(t, e.URL, func(o *Options) { o.MaxAnswerBytes = limit })
			r, err := s.Dispatch(t.Context(), testCall("x", "{}"))
			if err != nil {
				t.Fatal(err)
			}
			if r.Truncated != (over > 0) || r.ResultBytes != int64(limit+over) || r.ResultDigest != tga.Sum([]byte(result)) || (r.Result == nil) != r.Truncated {
				t.Errorf("stream %v, %d over: truncated %v, %d bytes", stream, over, r.Truncated, r.ResultBytes)
			}
		}
	}
}

func TestCancellationIsToldHTTP(t *testing.T) {
	arrived, done := make(chan struct{}), make(chan struct{})
	e, s := newEndpoint(t, func(http.ResponseWriter, json.RawMessage) {
		close(arrived)
		<-done
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-arrived
		cancel()
	}()
	_, err := s.Dispatch(ctx, testCall("x", "{}"))
	close(done)
	if !errors.Is(err, context.Canceled) || errors.Is(err, runtime.ErrNotSent) {
		t.Errorf("error %v", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if last := e.notes[len(e.notes)-1]; !strings.Contains(last, "notifications/cancelled") {
		t.Errorf("last note is %s", last)
	}
}

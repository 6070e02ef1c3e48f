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
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

const annotated = `{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"},` +
	`"at":{"type":"object","properties":{"shard":{"type":"integer","x-mcp-header":"Shard"},"dry":{"type":"boolean","x-mcp-header":"Dry-Run"}}}}}`

// TestArgumentsInHeaders: the official server compares the headers of a call with its arguments if
// the tool wants arguments in headers, and refuses a call whose headers differ.
func TestArgumentsInHeaders(t *testing.T) {
	server := sdkServer()
	server.AddTool(&sdk.Tool{Name: "routed", InputSchema: json.RawMessage(annotated)},
		func(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			h := r.Extra.Header
			return &sdk.CallToolResult{StructuredContent: map[string]any{"seen": fmt.Sprint(h.Values("Mcp-Param-Region"), h.Values("Mcp-Param-Shard"), h.Values("Mcp-Param-Dry-Run"))}}, nil
		})
	h := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, &sdk.StreamableHTTPOptions{Stateless: true}))
	t.Cleanup(h.Close)
	s := newHTTP(t, h.URL, func(o *Options) { o.Headers["Mcp-Param-Shard"] = "99" })
	for args, want := range map[string]string{
		`{"region":"us-west1","at":{"shard":42.0,"dry":true}}`: "[us-west1] [42] [true]",
		`{"region":"","at":{"shard":null}}`:                    "[=?base64??=] [] []",
		`{"region":"a\nb: é"}`:                                 "[=?base64?YQpiOiDDqQ==?=] [] []",
		`{}`:                                                   "[] [] []",
	} {
		r, err := s.Dispatch(t.Context(), testCall("routed", args))
		if err != nil || r.Status != tga.StatusSuccess || !strings.Contains(string(r.Result), want) {
			t.Errorf("%s: %+v %s, %v; want %s", args, r, r.Result, err, want)
		}
	}
	// A call with an argument that no header can carry is not sent.
	for _, args := range []string{`{"region":{}}`, `{"at":{"shard":9007199254740992}}`} {
		_, err := s.Dispatch(t.Context(), testCall("routed", args))
		if !errors.Is(err, runtime.ErrNotSent) || tga.CodeOf(err) != tga.ValidationError || !strings.Contains(err.Error(), "Mcp-Param-") {
			t.Errorf("%s: %v", args, err)
		}
	}
}

// modern is a scripted endpoint of revision 2026-07-28.
type modern struct {
	*httptest.Server
	mu      sync.Mutex
	tools   string // the member tools of its lists
	header  string // a header that a call of the tool "a" must have, "Name: value"; "" = none
	wrote   []string
	streams int
	status  map[string]int                // by method: an HTTP status in place of an answer
	listen  func(n int, say func(string)) // one stream; nil = there is none
}

func newModern(t *testing.T) *modern {
	m := &modern{tools: `[]`}
	m.Server = httptest.NewServer(m)
	t.Cleanup(m.Close)
	return m
}

func (m *modern) change(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}

func (m *modern) seen(what string) (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range m.wrote {
		if w == what {
			n++
		}
	}
	return n
}

func (m *modern) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	method := mcpraw.ScalarText(mcpraw.At(body, "/method"))
	id := mcpraw.At(body, "/id")
	m.mu.Lock()
	m.wrote = append(m.wrote, method)
	tools, header, listen, status := m.tools, m.header, m.listen, m.status[method]
	if method == "subscriptions/listen" {
		m.streams++
	}
	n := m.streams
	m.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	say := func(what string) { fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,%s}`, id, what) }
	switch {
	case status != 0:
		w.WriteHeader(status)
	case r.Header.Get("Mcp-Method") != method || r.Header.Get("Mcp-Protocol-Version") != "2026-07-28":
		w.WriteHeader(http.StatusBadRequest)
		say(`"error":{"code":-32020,"message":"standard headers"}`)
	case method == "server/discover":
		say(`"result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true}}}`)
	case method == "tools/list":
		say(`"result":{"resultType":"complete","ttlMs":0,"cacheScope":"public","tools":` + tools + `}`)
	case method == "tools/call":
		name, value, _ := strings.Cut(header, ": ")
		if header != "" && r.Header.Get(name) != value {
			w.WriteHeader(http.StatusBadRequest)
			say(`"error":{"code":-32020,"message":"want ` + header + `"}`)
			return
		}
		m.change(func() { m.wrote = append(m.wrote, "effect") })
		say(`"result":{"resultType":"complete","content":[]}`)
	case method == "subscriptions/listen" && listen != nil:
		events(w)
		listen(n, func(what string) {
			fmt.Fprintf(w, "data: %s\n\n", what)
			_ = http.NewResponseController(w).Flush()
		})
	case method == "subscriptions/listen":
		w.WriteHeader(http.StatusNotFound)
		say(`"error":{"code":-32601,"message":"no such method"}`)
	default:
		w.WriteHeader(http.StatusAccepted)
	}
}

func tool(name, header string) string {
	return `{"name":"` + name + `","inputSchema":{"properties":{"x":{"type":"string","x-mcp-header":"` + header + `"}}}}`
}

// TestHeadersThatHaveChanged: if a server wants other headers than its definitions said, the call
// counts as not sent. The next call has the headers of the new definitions.
func TestHeadersThatHaveChanged(t *testing.T) {
	m := newModern(t)
	m.tools, m.header = "["+tool("a", "Old")+"]", "Mcp-Param-Old: v"
	s, err := New("m", Options{URL: m.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	call := func() error {
		_, err := s.Dispatch(t.Context(), testCall("a", `{"x":"v"}`))
		return err
	}
	if err := call(); err != nil {
		t.Fatal(err)
	}
	m.change(func() { m.tools, m.header = "["+tool("a", "New")+"]", "Mcp-Param-New: v" })
	if err := call(); !errors.Is(err, runtime.ErrNotSent) {
		t.Errorf("a call with the old header: %v", err)
	}
	if err := call(); err != nil {
		t.Errorf("a call after it: %v", err)
	}
	if calls, lists, effects := m.seen("tools/call"), m.seen("tools/list"), m.seen("effect"); calls != 3 || lists != 2 || effects != 2 {
		t.Errorf("%d calls, %d lists, %d effects", calls, lists, effects)
	}
	// If the newly read definition does not match the server either, the refusal is recorded.
	m.change(func() { m.header = "Mcp-Param-Other: v" })
	_ = call()
	r, err := s.Dispatch(t.Context(), testCall("a", `{"x":"v"}`))
	if err != nil || r.Status != tga.StatusFailure || r.ErrorCode != string(tga.ValidationError) {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestToolsThatBreakTheRules: only tools that break the rules for headers are left out of the list.
func TestToolsThatBreakTheRules(t *testing.T) {
	m := newModern(t)
	m.tools = "[" + tool("a", "A") + "," + tool("bad", "A b") + "]"
	s, err := New("m", Options{URL: m.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	tools, err := s.ListTools(t.Context())
	if err != nil || len(tools) != 1 || tools[0].Name != "a" {
		t.Errorf("tools %+v, %v", tools, err)
	}
	if _, err := s.Dispatch(t.Context(), testCall("bad", `{}`)); !errors.Is(err, runtime.ErrNotSent) {
		t.Errorf("a call of it: %v", err)
	}
	if _, err := s.Dispatch(t.Context(), testCall("a", `{"x":"v"}`)); err != nil {
		t.Errorf("a call of the other: %v", err)
	}
	if n := m.seen("effect"); n != 1 {
		t.Errorf("%d effects", n)
	}
}

const (
	ackLine     = `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{"toolsListChanged":true}}}`
	changedLine = `{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{}}`
)

// TestSubscriptionThatBreaks: the subscription is made again, and a change during the break is
// assumed.
func TestSubscriptionThatBreaks(t *testing.T) {
	m := newModern(t)
	end := make(chan struct{})
	m.listen = func(n int, say func(string)) {
		switch n {
		case 1: // breaks before the acknowledgement
		case 2:
			say(ackLine)
			say(changedLine)
		default:
			say(ackLine)
			<-end
		}
	}
	said := make(chan struct{}, 16)
	s, err := New("m", Options{URL: m.URL, OnToolsChanged: func() { said <- struct{}{} }})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	defer close(end)
	if _, err := s.ListTools(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-said // the notification of the second stream
	<-said // the third stream: what was missed after the second
	if n := m.seen("subscriptions/listen"); n != 3 {
		t.Errorf("%d streams", n)
	}
	select {
	case <-said:
		t.Error("told once more")
	default:
	}
}

// TestServerThatHasNoSubscriptions: such a server is asked only once, in whichever way it says so.
func TestServerThatHasNoSubscriptions(t *testing.T) {
	for _, status := range []int{0, 400, 404, 405} {
		t.Run(fmt.Sprint(status), func(t *testing.T) { hasNoSubscriptions(t, status) })
	}
}

func hasNoSubscriptions(t *testing.T, status int) {
	m := newModern(t)
	m.status = map[string]int{"subscriptions/listen": status}
	s, err := New("m", Options{URL: m.URL, OnToolsChanged: func() {}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.ListTools(t.Context()); err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	go func() {
		s.work.Wait() // subscribe has given up by itself
		close(over)
	}()
	select {
	case <-over:
	case <-time.After(time.Second):
		t.Error("the server is asked for ever")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if n := m.seen("subscriptions/listen"); n != 1 {
		t.Errorf("asked %d times", n)
	}
}

// TestStreamsThatEndAtOnce: a server that acknowledges a subscription and ends it at once is asked at growing intervals.
func TestStreamsThatEndAtOnce(t *testing.T) {
	m := newModern(t)
	m.listen = func(_ int, say func(string)) { say(ackLine) }
	s, err := New("m", Options{URL: m.URL, OnToolsChanged: func() {}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.ListTools(t.Context()); err != nil {
		t.Fatal(err)
	}
	time.Sleep(10 * firstSubscribePause)
	if n := m.seen("subscriptions/listen"); n > 5 {
		t.Errorf("asked %d times in %v", n, 10*firstSubscribePause)
	}
}

// TestListThatFailsOnce: the definitions cannot be had, and the server refuses the call for its headers. That is not the call's outcome.
func TestListThatFailsOnce(t *testing.T) {
	m := newModern(t)
	m.tools, m.header, m.status = "["+tool("a", "X")+"]", "Mcp-Param-X: v", map[string]int{"tools/list": 503}
	s, err := New("m", Options{URL: m.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if r, err := s.Dispatch(t.Context(), testCall("a", `{"x":"v"}`)); !errors.Is(err, runtime.ErrNotSent) {
		t.Errorf("without the list: %+v, %v", r, err)
	}
	m.change(func() { m.status = nil })
	if _, err := s.Dispatch(t.Context(), testCall("a", `{"x":"v"}`)); err != nil {
		t.Error(err)
	}
}

// TestNobodyWhoListensIsSubscribed: without OnToolsChanged there is no stream.
func TestNobodyWhoListensIsSubscribed(t *testing.T) {
	m := newModern(t)
	s, err := New("m", Options{URL: m.URL})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.ListTools(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if n := m.seen("subscriptions/listen"); n != 0 {
		t.Errorf("asked %d times", n)
	}
}

// TestOfficialServerTellsSubscribers: the official server's notifications arrive over stdin and
// stdout, and over HTTP.
func TestOfficialServerTellsSubscribers(t *testing.T) {
	server := sdkServer()
	h := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, &sdk.StreamableHTTPOptions{Stateless: true}))
	t.Cleanup(h.Close)
	for _, way := range []string{"stdio", "http"} {
		t.Run(way, func(t *testing.T) {
			said := make(chan struct{}, 16)
			hook := func(o *Options) { o.OnToolsChanged = func() { said <- struct{}{} } }
			var s *Server
			if way == "http" {
				s = newHTTP(t, h.URL, hook)
			} else {
				s = newScripted(t, "sdk", hook).Server
			}
			before, err := s.ListTools(t.Context())
			if err != nil || s.current.version != "2026-07-28" {
				t.Fatal(s.current.version, err)
			}
			for end := time.Now().Add(20 * time.Second); s.acknowledgements() == 0; time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("no subscription")
				}
			}
			if _, err := s.Dispatch(t.Context(), testCall("grow", "{}")); err != nil {
				t.Fatal(err)
			}
			<-said
			after, err := s.ListTools(t.Context())
			if err != nil || len(after) != len(before)+1 {
				t.Errorf("%d tools, and %d before: %v", len(after), len(before), err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

package mcpfront

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/mcpfront/fronttest"
	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/internal/testlog"
	"github.com/tgad/tgad/schemas/tga"
)

const wantsToken = `Bearer resource_metadata="https://tools.example/.well-known/oauth-protected-resource", scope="pay"`

// guarded is a tool server over HTTP that wants a token, and repeats it where it can.
type guarded struct {
	t    *testing.T
	url  string
	mu   sync.Mutex
	good map[string]bool // tokens it takes
	seen map[string]int  // Authorization headers, and how often
	ran  []string        // who called charge
	hold chan struct{}   // a call's answer waits for it; nil = at once
	bad  int             // a status for every call in place of an answer
}

func guard(t *testing.T, tokens ...string) *guarded {
	g := &guarded{t: t, good: map[string]bool{}, seen: map[string]int{}}
	for _, token := range tokens {
		g.good["Bearer "+token] = true
	}
	srv := httptest.NewServer(g)
	t.Cleanup(srv.Close)
	g.url = srv.URL + "/v1/mcp"
	return g
}

func (g *guarded) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	auth := r.Header.Get("Authorization")
	// All of it first: a refusal that overtakes the request cuts it off, and that is doubt.
	raw, err := io.ReadAll(r.Body)
	g.mu.Lock()
	g.seen[auth]++
	good, hold, bad := g.good[auth], g.hold, g.bad
	g.mu.Unlock()
	if strings.HasPrefix(r.URL.Path, "/.well-known/") {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"at":%q,"auth":%q}`, r.URL.Path, auth)
		return
	}
	if !good {
		w.Header().Set("WWW-Authenticate", wantsToken)
		http.Error(w, "no such token: "+auth, http.StatusUnauthorized)
		return
	}
	if err != nil || len(raw) == 0 {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	id := mcpraw.At(raw, "/id")
	var result string
	switch mcpraw.ScalarText(mcpraw.At(raw, "/method")) {
	case "initialize":
		w.Header().Set("Mcp-Session-Id", "of "+auth[len(auth)-4:])
		result = `{"protocolVersion":"2025-03-26","capabilities":{},"serverInfo":{"name":"g","version":"1"}}`
	case "tools/list":
		result = `{"tools":[{"name":"charge","inputSchema":{"type":"object"}}]}`
	case "tools/call":
		if bad != 0 {
			http.Error(w, "cannot: "+auth, bad)
			return
		}
		g.mu.Lock()
		g.ran = append(g.ran, auth)
		g.mu.Unlock()
		if hold != nil {
			<-hold
		}
		result = fmt.Sprintf(`{"content":[{"type":"text","text":"paid by %s"}]}`, auth[len(auth)-4:])
	default:
		w.WriteHeader(http.StatusAccepted)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result)
}

func (g *guarded) runs() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.ran)
}

func (g *guarded) set(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f()
}

// forwarding is a world whose shim passes credentials on to g.
func forwarding(t *testing.T, g *guarded) *world {
	w := newWorld(t)
	w.opts.URL, w.opts.ForwardAuth = g.url, true
	return w
}

// charge makes a call as the holder of a token; "" is nobody.
func charge(t *testing.T, url, token, args, meta string, header ...string) (status int, body string, got http.Header) {
	t.Helper()
	if meta != "" {
		meta = `,"_meta":` + meta
	}
	req, err := http.NewRequest(http.MethodPost, url, strings.NewReader(
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"charge","arguments":`+args+meta+`}}`))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := (&http.Client{Timeout: time.Minute}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(raw), resp.Header
}

// TestTokensGoToTheToolServerAlone: every way to an error is gone, and then all that was
// written anywhere is searched for the tokens.
func TestTokensGoToTheToolServerAlone(t *testing.T) {
	const alice, mallory = "tok-1f6e0c-alice", "tok-93ab77-mallory"
	g := guard(t, alice)
	w := forwarding(t, g)
	var said testlog.Buffer
	w.opts.Logger = slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelDebug}))
	url := w.listening()
	var answers strings.Builder
	call := func(token, args, meta string, header ...string) int {
		status, body, _ := charge(t, url, token, args, meta, header...)
		answers.WriteString(body)
		return status
	}
	if status := call(alice, `{"a":1}`, ""); status != 200 {
		t.Fatalf("%d %s", status, &answers)
	}
	call(alice, `{"a":2}`, `{"dev.tgad/idempotencyKey":"k"}`)
	call(mallory, `{"a":3}`, "")
	call(mallory, `{"a":4}`, `{"dev.tgad/idempotencyKey":"k"}`)
	call(alice, `{"a":1}`, "", "Mcp-Session-Id", "none")
	for _, bad := range []int{400, 403, 404, 429, 500} { // with a body that has the token in it
		g.set(func() { g.bad = bad })
		call(alice, fmt.Sprintf(`{"bad":%d}`, bad), "")
	}
	g.set(func() { g.bad, g.good = 0, map[string]bool{} })
	call(alice, `{"a":5}`, "")
	if status, _ := fronttest.Post(t, url, `{"jsonrpc":"2.0","method":"tools/call","params":{"name":"charge"}}`, "Authorization", "Bearer "+alice); status != http.StatusAccepted {
		t.Errorf("a call without an id: %d", status) // it is dropped, and that is logged
	}
	if n := g.runs(); n != 2 {
		t.Errorf("%d runs, want 2", n)
	}
	for auth := range g.seen {
		if auth != "Bearer "+alice && auth != "Bearer "+mallory {
			t.Errorf("the tool server saw %q", auth)
		}
	}
	if err := w.DB.Close(); err != nil {
		t.Fatal(err)
	}
	search := func(where, text string) {
		for _, token := range []string{alice, mallory} {
			if strings.Contains(text, token) {
				t.Errorf("%s has the token %s: %.300s", where, token, text[max(0, strings.Index(text, token)-100):])
			}
		}
	}
	files := 0
	err := filepath.WalkDir(w.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		raw, err := os.ReadFile(path)
		files++
		search(path, string(raw))
		return err
	})
	if err != nil || files < 5 {
		t.Errorf("%d files, %v", files, err)
	}
	search("what was logged", said.String())
	search("an answer", answers.String())
	if !strings.Contains(said.String(), "level=") {
		t.Error("nothing was logged: the search of it says nothing")
	}
}

// TestWithoutForwardAuthNoTokenPasses: a token that a client sends to the shim is the shim's.
func TestWithoutForwardAuthNoTokenPasses(t *testing.T) {
	g := guard(t, "tok-alice")
	w := newWorld(t)
	w.opts.URL = g.url
	url := w.listening()
	if status, body, _ := charge(t, url, "tok-alice", `{"a":1}`, ""); status != 200 || !strings.Contains(body, "401") {
		t.Errorf("%d %s", status, body)
	}
	if len(g.seen) != 1 || g.seen[""] == 0 {
		t.Errorf("the tool server saw %v", g.seen)
	}
	resp, err := http.Get(strings.Replace(url, "/mcp", "/.well-known/oauth-protected-resource", 1))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		t.Error("a document about authorization came from a shim that forwards none")
	}
}

// TestUsersOfOneShimAreKeptApart: what is identical but for the user is two calls, and neither
// user is served what the other one was answered.
func TestUsersOfOneShimAreKeptApart(t *testing.T) {
	g := guard(t, "tok-alic", "tok-bobb", "tok-ali2")
	w := forwarding(t, g)
	url := w.listening()
	for _, meta := range []string{"", `{"dev.tgad/scope":"s"}`} {
		before := g.runs()
		// Nobody takes alice's answer: it is undelivered, and a repeat of hers is served it.
		hold := make(chan struct{})
		g.set(func() { g.hold = hold })
		gone := lostCall(t, url, "tok-alic", `{"a":1}`, meta)
		fronttest.Eventually(t, "the call is at the tool server", func() bool { return g.runs() == before+1 })
		gone()
		g.set(func() { g.hold = nil })
		close(hold)
		_, body, _ := charge(t, url, "tok-bobb", `{"a":1}`, meta)
		fronttest.Has(t, body, "paid by bobb")
		fronttest.Lacks(t, body, "dev.tgad/replayed", "alic")
		if n := g.runs(); n != before+2 {
			t.Errorf("meta %s: %d runs, want alice's and bob's", meta, n-before)
		}
		_, body, _ = charge(t, url, "tok-alic", `{"a":1}`, meta)
		fronttest.Has(t, body, "paid by alic", "dev.tgad/replayed")
		if n := g.runs(); n != before+2 {
			t.Errorf("meta %s: alice's repeat ran", meta)
		}
	}
	// A key is neither shared nor run twice.
	key := `{"dev.tgad/idempotencyKey":"order-7"}`
	before := g.runs()
	_, body, _ := charge(t, url, "tok-alic", `{"a":2}`, key)
	fronttest.Has(t, body, "paid by alic")
	for _, other := range []string{"tok-bobb", "tok-ali2"} {
		_, body, _ = charge(t, url, other, `{"a":2}`, key)
		fronttest.Has(t, body, string(tga.IdempotencyKeyConflict), "another user")
		fronttest.Lacks(t, body, "paid by")
	}
	_, body, _ = charge(t, url, "tok-alic", `{"a":2}`, key)
	fronttest.Has(t, body, "paid by alic", "dev.tgad/replayed")
	if n := g.runs(); n != before+1 {
		t.Errorf("%d runs under one key", n-before)
	}
}

// lostCall makes a call whose client goes away.
func lostCall(t *testing.T, url, token, args, meta string) (gone func()) {
	t.Helper()
	if meta != "" {
		meta = `,"_meta":` + meta
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"charge","arguments":`+args+meta+`}}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	tr := &http.Transport{DisableKeepAlives: true}
	done := make(chan struct{})
	ctx, cancel := context.WithCancel(req.Context())
	go func() {
		defer close(done)
		if resp, err := tr.RoundTrip(req.WithContext(ctx)); err == nil {
			_ = resp.Body.Close()
		}
	}()
	return func() { cancel(); <-done }
}

// TestSessionIsOfOneToken: a session's id is of no use with another token, or without.
func TestSessionIsOfOneToken(t *testing.T) {
	g := guard(t, "tok-alic", "tok-bobb")
	url := forwarding(t, g).listening()
	id := initialize(t, url, "tok-alic")
	for token, want := range map[string]int{"tok-alic": 200, "tok-bobb": 404, "": 404} {
		if status, body, _ := charge(t, url, token, `{"a":1}`, "", "Mcp-Session-Id", id); status != want {
			t.Errorf("token %q: %d %s, want %d", token, status, body, want)
		}
	}
	if n := g.runs(); n != 1 {
		t.Errorf("%d runs", n)
	}
}

// initialize makes a handshake and returns the session's id, "" where there is none.
func initialize(t *testing.T, url, token string) string {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, url, strings.NewReader(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-03-26","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusUnauthorized && resp.Header.Get("WWW-Authenticate") != wantsToken {
		t.Errorf("401 with %q", resp.Header)
	}
	return resp.Header.Get("Mcp-Session-Id")
}

// TestChallengeComesBack: 401 with its WWW-Authenticate, wherever it is met, and then the same
// call with a token runs, also under its key.
func TestChallengeComesBack(t *testing.T) {
	g := guard(t, "tok-alic")
	w := forwarding(t, g)
	s, url := w.served()
	if id := initialize(t, url, ""); id != "" {
		t.Errorf("a session %q for who may not have one", id)
	}
	fronttest.Eventually(t, "it is gone", func() bool { return s.Conversations() == 0 })
	meta := `{"dev.tgad/idempotencyKey":"k"}`
	modernMeta := `{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"dev.tgad/idempotencyKey":"m"}`
	for _, c := range []struct {
		name, meta string
		header     []string
	}{
		{"a call", "", nil},
		{"a call with a key", meta, nil},
		{"a call that asks for the definitions first", modernMeta, []string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "charge"}},
	} {
		before := g.runs()
		for _, token := range []string{"", "tok-expired"} {
			status, body, h := charge(t, url, token, `{"a":1}`, c.meta, c.header...)
			if status != http.StatusUnauthorized || h.Get("WWW-Authenticate") != wantsToken || !json.Valid([]byte(body)) {
				t.Errorf("%s, token %q: %d %q %s", c.name, token, status, h, body)
			}
		}
		if n := g.runs(); n != before {
			t.Errorf("%s ran without a token", c.name)
		}
		if status, body, _ := charge(t, url, "tok-alic", `{"a":1}`, c.meta, c.header...); status != 200 || !strings.Contains(body, "paid by alic") {
			t.Errorf("%s, with a token: %d %s", c.name, status, body)
		}
	}
	// An array has one status.
	id := initialize(t, url, "tok-alic")
	g.set(func() { g.good = map[string]bool{} })
	status, body := fronttest.Post(t, url, `[{"jsonrpc":"2.0","id":7,"method":"tools/list"}]`, "Mcp-Session-Id", id, "Authorization", "Bearer tok-alic")
	if status != http.StatusUnauthorized {
		t.Errorf("an array: %d %s", status, body)
	}
}

// TestAuthorizationDocumentsPass: those that a client of MCP looks for, and no others.
func TestAuthorizationDocumentsPass(t *testing.T) {
	g := guard(t)
	base := strings.TrimSuffix(forwarding(t, g).listening(), "/mcp")
	get := func(path string) (int, string) {
		req, err := http.NewRequest(http.MethodGet, base+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer tok-alic")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		raw, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(raw)
	}
	for _, place := range []string{"/.well-known/oauth-protected-resource", "/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"} {
		for asked, want := range map[string]string{place: place, place + "/mcp": place + "/v1/mcp"} {
			if status, body := get(asked); status != 200 || body != fmt.Sprintf(`{"at":%q,"auth":""}`, want) {
				t.Errorf("%s: %d %s", asked, status, body)
			}
		}
	}
	for _, path := range []string{"/.well-known/other", "/.well-known/oauth-protected-resourceX", "/mcp"} {
		if status, body := get(path); status == 200 {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
}

// TestWhereNoTokenMayGo: configurations that would show it to others are refused.
func TestWhereNoTokenMayGo(t *testing.T) {
	for _, c := range []struct {
		url     string
		headers map[string]string
		ok      bool
	}{
		{"https://tools.example/mcp", nil, true},
		{"http://127.0.0.1:1/mcp", nil, true},
		{"http://[::1]:1/mcp", nil, true},
		{"http://localhost/mcp", nil, true},
		{"http://tools.example/mcp", nil, false},
		{"http://10.0.0.1/mcp", nil, false},
		{"", nil, false},
		{"https://tools.example/mcp", map[string]string{"X-Api-Key": "k"}, true},
		{"https://tools.example/mcp", map[string]string{"Authorization": "Bearer x"}, false},
	} {
		w := newWorld(t)
		o := w.options()
		o.URL, o.Headers, o.ForwardAuth, o.Command = c.url, c.headers, true, nil
		if c.url == "" {
			o.Command = []string{"x"}
		}
		s, err := New(o)
		if (err == nil) != c.ok {
			t.Errorf("%s %v: %v", c.url, c.headers, err)
		}
		if err == nil {
			_ = s.Close()
		}
	}
}

package mcpfront

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/mcpfront/fronttest"
	"github.com/tgad/tgad/internal/mcpfront/subject"
	"github.com/tgad/tgad/internal/testlog"
	"github.com/tgad/tgad/schemas/tga"
)

// forwarding is a world whose shim passes credentials on to g.
func forwarding(t *testing.T, g *fronttest.Guarded) *world {
	w := newWorld(t)
	w.opts.URL, w.opts.ForwardAuth = g.URL, subject.Authorization
	return w
}

// charge makes a call with a token, "" for none.
func charge(t *testing.T, url, token, args, meta string, header ...string) (status int, body string, got http.Header) {
	t.Helper()
	return fronttest.CallAs(t, url, "charge", token, args, meta, header...)
}

// TestTokensGoToTheToolServerAlone takes every path to an error, and then searches everything that was
// written anywhere for the tokens.
func TestTokensGoToTheToolServerAlone(t *testing.T) {
	const alice, mallory = "tok-1f6e0c-alice", "tok-93ab77-mallory"
	g := fronttest.Guard(t, alice)
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
		g.Set(func() { g.Bad = bad })
		call(alice, fmt.Sprintf(`{"bad":%d}`, bad), "")
	}
	g.Set(func() { g.Bad, g.Good = 0, map[string]bool{} })
	call(alice, `{"a":5}`, "")
	if status, _ := fronttest.Post(t, url, `{"jsonrpc":"2.0","method":"tools/call","params":{"name":"charge"}}`, "Authorization", "Bearer "+alice); status != http.StatusAccepted {
		t.Errorf("a call without an id: %d", status) // the call is dropped, which is logged
	}
	if n := g.Runs(); n != 2 {
		t.Errorf("%d runs, want 2", n)
	}
	for auth := range g.Seen {
		if auth != "Bearer "+alice && auth != "Bearer "+mallory {
			t.Errorf("the tool server saw %q", auth)
		}
	}
	if err := w.DB.Close(); err != nil {
		t.Fatal(err)
	}
	search := fronttest.SearchFor(t, w.Dir, alice, mallory)
	search("what was logged", said.String())
	search("an answer", answers.String())
	if !strings.Contains(said.String(), "level=") {
		t.Error("nothing was logged: the search of it says nothing")
	}
}

// TestWithoutForwardAuthNoTokenPasses: without --forward-auth a client's token does not reach the tool server.
func TestWithoutForwardAuthNoTokenPasses(t *testing.T) {
	g := fronttest.Guard(t, "tok-alice")
	w := newWorld(t)
	w.opts.URL = g.URL
	url := w.listening()
	if status, body, _ := charge(t, url, "tok-alice", `{"a":1}`, ""); status != 200 || !strings.Contains(body, "401") {
		t.Errorf("%d %s", status, body)
	}
	if len(g.Seen) != 1 || g.Seen[""] == 0 {
		t.Errorf("the tool server saw %v", g.Seen)
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

// TestUsersOfOneShimAreKeptApart: identical calls of two users are two calls, and no user is served the
// other's answer.
func TestUsersOfOneShimAreKeptApart(t *testing.T) {
	g := fronttest.Guard(t, "tok-alic", "tok-bobb", "tok-ali2")
	w := forwarding(t, g)
	url := w.listening()
	for _, meta := range []string{"", `{"dev.tgad/scope":"s"}`} {
		before := g.Runs()
		// Nobody takes alice's answer, so it is undelivered, and her repeat is served it.
		hold := make(chan struct{})
		g.Set(func() { g.Hold = hold })
		gone := fronttest.LostCall(t, url, "charge", "tok-alic", `{"a":1}`, meta)
		fronttest.Eventually(t, "the call is at the tool server", func() bool { return g.Runs() == before+1 })
		gone()
		g.Set(func() { g.Hold = nil })
		close(hold)
		_, body, _ := charge(t, url, "tok-bobb", `{"a":1}`, meta)
		fronttest.Has(t, body, "paid by bobb")
		fronttest.Lacks(t, body, "dev.tgad/replayed", "alic")
		if n := g.Runs(); n != before+2 {
			t.Errorf("meta %s: %d runs, want alice's and bob's", meta, n-before)
		}
		_, body, _ = charge(t, url, "tok-alic", `{"a":1}`, meta)
		fronttest.Has(t, body, "paid by alic", "dev.tgad/replayed")
		if n := g.Runs(); n != before+2 {
			t.Errorf("meta %s: alice's repeat ran", meta)
		}
	}
	// A key of one user is refused to the other, and does not run twice.
	key := `{"dev.tgad/idempotencyKey":"order-7"}`
	before := g.Runs()
	_, body, _ := charge(t, url, "tok-alic", `{"a":2}`, key)
	fronttest.Has(t, body, "paid by alic")
	for _, other := range []string{"tok-bobb", "tok-ali2"} {
		_, body, _ = charge(t, url, other, `{"a":2}`, key)
		fronttest.Has(t, body, string(tga.IdempotencyKeyConflict), "another user")
		fronttest.Lacks(t, body, "paid by")
	}
	_, body, _ = charge(t, url, "tok-alic", `{"a":2}`, key)
	fronttest.Has(t, body, "paid by alic", "dev.tgad/replayed")
	if n := g.Runs(); n != before+1 {
		t.Errorf("%d runs under one key", n-before)
	}
}

// TestSessionIsOfOneToken: a session's id does not work with another token, or without one.
func TestSessionIsOfOneToken(t *testing.T) {
	g := fronttest.Guard(t, "tok-alic", "tok-bobb")
	url := forwarding(t, g).listening()
	id := fronttest.SessionAs(t, url, "tok-alic")
	for token, want := range map[string]int{"tok-alic": 200, "tok-bobb": 404, "": 404} {
		if status, body, _ := charge(t, url, token, `{"a":1}`, "", "Mcp-Session-Id", id); status != want {
			t.Errorf("token %q: %d %s, want %d", token, status, body, want)
		}
	}
	if n := g.Runs(); n != 1 {
		t.Errorf("%d runs", n)
	}
}

// TestChallengeComesBack: the client gets the 401 and its WWW-Authenticate, at whatever request the tool
// server sends it. Then the same call runs with a token, even with the same key.
func TestChallengeComesBack(t *testing.T) {
	g := fronttest.Guard(t, "tok-alic")
	w := forwarding(t, g)
	s, url := w.served()
	if id := fronttest.SessionAs(t, url, ""); id != "" {
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
		before := g.Runs()
		for _, token := range []string{"", "tok-expired"} {
			status, body, h := charge(t, url, token, `{"a":1}`, c.meta, c.header...)
			if status != http.StatusUnauthorized || h.Get("WWW-Authenticate") != fronttest.WantsToken || !json.Valid([]byte(body)) {
				t.Errorf("%s, token %q: %d %q %s", c.name, token, status, h, body)
			}
		}
		if n := g.Runs(); n != before {
			t.Errorf("%s ran without a token", c.name)
		}
		if status, body, _ := charge(t, url, "tok-alic", `{"a":1}`, c.meta, c.header...); status != 200 || !strings.Contains(body, "paid by alic") {
			t.Errorf("%s, with a token: %d %s", c.name, status, body)
		}
	}
	// An array has a single status.
	id := fronttest.SessionAs(t, url, "tok-alic")
	g.Set(func() { g.Good = map[string]bool{} })
	status, body := fronttest.Post(t, url, `[{"jsonrpc":"2.0","id":7,"method":"tools/list"}]`, "Mcp-Session-Id", id, "Authorization", "Bearer tok-alic")
	if status != http.StatusUnauthorized {
		t.Errorf("an array: %d %s", status, body)
	}
}

// TestTaskIsAskedAboutByItsUserAlone: two users may have tasks with the same id at a tool server.
func TestTaskIsAskedAboutByItsUserAlone(t *testing.T) {
	g := fronttest.Guard(t, "tok-alic", "tok-bobb")
	w := forwarding(t, g)
	url := w.listening()
	const modern = `{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
	header := []string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "job"}
	_, body, _ := fronttest.CallAs(t, url, "job", "tok-alic", `{"a":1}`, modern, header...)
	fronttest.Has(t, body, `"taskId":"t1"`)
	polls := func(who string) (n int) {
		g.Set(func() { n = g.Polled[who] })
		return n
	}
	_, body, _ = charge(t, url, "tok-bobb", `{"a":1}`, "")
	fronttest.Has(t, body, "paid by bobb")
	before := polls("alic")
	fronttest.Eventually(t, "alice's task to be asked about", func() bool { return polls("alic") > before+3 })
	if n := polls("bobb"); n != 0 {
		t.Errorf("alice's task was asked about %d times with bob's token", n)
	}
	g.Set(func() { g.Done = true })
	fronttest.Eventually(t, "its end", func() bool {
		_, body, _ = fronttest.CallAs(t, url, "job", "tok-alic", `{"a":1}`, modern, header...)
		return strings.Contains(body, "done for alic")
	})
}

// TestAuthorizationDocumentsPass: the documents that an MCP client looks for pass, and no others.
func TestAuthorizationDocumentsPass(t *testing.T) {
	g := fronttest.Guard(t)
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

// TestWhereNoTokenMayGo: configurations that would reveal a token to others are refused.
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
		o.URL, o.Headers, o.ForwardAuth, o.Command = c.url, c.headers, subject.Authorization, nil
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

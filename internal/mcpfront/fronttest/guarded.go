package fronttest

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/mcpfront/say"
	"github.com/tgad/tgad/internal/mcpraw"
)

// WantsToken is the WWW-Authenticate of a [Guarded].
const WantsToken = `Bearer resource_metadata="https://tools.example/.well-known/oauth-protected-resource", scope="pay"`

// Guarded is a tool server over HTTP that wants a token. It repeats the token wherever it can, so
// that a test finds a place where a token leaks.
type Guarded struct {
	URL string
	t   *testing.T

	mu   sync.Mutex
	Good map[string]bool // Authorization headers that it accepts
	Seen map[string]int  // how often it has seen each Authorization header
	Ran  []string        // the callers of charge
	Args []string        // the arguments of these calls
	Hold chan struct{}   // a call is answered once it is closed; nil = at once
	Bad  int             // a status to answer every call with; 0 = answer normally

	Polled map[string]int // by user, the questions about the user's own task "t1" of the tool job
	Done   bool           // these tasks are completed
}

func Guard(t *testing.T, tokens ...string) *Guarded {
	g := &Guarded{t: t, Good: map[string]bool{}, Seen: map[string]int{}, Polled: map[string]int{}}
	for _, token := range tokens {
		g.Good["Bearer "+token] = true
	}
	srv := httptest.NewServer(g)
	t.Cleanup(srv.Close)
	g.URL = srv.URL + "/v1/mcp"
	return g
}

func (g *Guarded) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	auth := r.Header.Get("Authorization")
	who := auth[max(0, len(auth)-4):]
	// Read the whole request first: a refusal before its end would cut it off, which is doubt.
	raw, err := io.ReadAll(r.Body)
	g.mu.Lock()
	g.Seen[auth]++
	good, hold, bad := g.Good[auth], g.Hold, g.Bad
	g.mu.Unlock()
	if strings.HasPrefix(r.URL.Path, "/.well-known/") {
		w.Header().Set("Content-Type", "application/json")
		g.say(w, `{"at":%q,"auth":%q}`, r.URL.Path, auth)
		return
	}
	if !good {
		w.Header().Set("WWW-Authenticate", WantsToken)
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
		w.Header().Set("Mcp-Session-Id", "of "+who)
		result = `{"protocolVersion":"2025-03-26","capabilities":{},"serverInfo":{"name":"g","version":"1"}}`
	case "tools/list":
		result = `{"tools":[{"name":"charge","inputSchema":{"type":"object"}}]}`
	case "tasks/get":
		g.mu.Lock()
		g.Polled[who]++
		status := `"status":"working"`
		if g.Done {
			status = `"status":"completed","result":{"content":[{"type":"text","text":"done for ` + who + `"}]}`
		}
		g.mu.Unlock()
		result = fmt.Sprintf(`{"resultType":"complete","taskId":%s,%s,"createdAt":"2026-01-01T00:00:00Z","lastUpdatedAt":"2026-01-01T00:00:00Z","ttlMs":null,"pollIntervalMs":20}`, mcpraw.At(raw, "/params/taskId"), status)
	case "tools/call":
		if mcpraw.ScalarText(mcpraw.At(raw, "/params/name")) == "job" {
			result = `{"resultType":"task","taskId":"t1","status":"working","ttlMs":null,"pollIntervalMs":20,"createdAt":"2026-01-01T00:00:00Z","lastUpdatedAt":"2026-01-01T00:00:00Z"}`
			break
		}
		if bad != 0 {
			http.Error(w, "cannot: "+auth, bad)
			return
		}
		g.mu.Lock()
		g.Ran, g.Args = append(g.Ran, auth), append(g.Args, string(mcpraw.At(raw, "/params/arguments")))
		g.mu.Unlock()
		if hold != nil {
			<-hold
		}
		result = fmt.Sprintf(`{"content":[{"type":"text","text":"paid by %s"}],"structuredContent":{"said":"ok","args":%s}}`, who, cmp.Or(string(mcpraw.At(raw, "/params/arguments")), "null"))
	case "server/discover":
		result = `{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{},"resources":{}}}`
	case "resources/list":
		result = `{"resources":[{"uri":"pay:` + who + `","name":"p"}]}`
	case "resources/read":
		result = `{"contents":[],"by":"` + who + `"}`
	case say.Listen:
		g.stream(w, r, id)
		return
	default:
		if id == nil {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		g.say(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}`, id)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	g.say(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result)
}

// stream begins a subscription, and returns when its client is gone.
func (g *Guarded) stream(w http.ResponseWriter, r *http.Request, id []byte) {
	w.Header().Set("Content-Type", "text/event-stream")
	g.say(w, "data: {\"jsonrpc\":\"2.0\",\"method\":%q,\"params\":{\"_meta\":{%q:%s},\"notifications\":{\"toolsListChanged\":true}}}\n\n", say.Ack, say.MetaSubscription, id)
	if err := http.NewResponseController(w).Flush(); err != nil {
		g.t.Logf("nobody heard the beginning of a stream: %v", err)
	}
	<-r.Context().Done()
}

// say writes an answer. Some tests kill the client meanwhile, so a failed write is no failure of the test and is only
// logged.
func (g *Guarded) say(w io.Writer, format string, of ...any) {
	if _, err := fmt.Fprintf(w, format, of...); err != nil {
		g.t.Logf("nobody heard an answer of the tool server: %v", err)
	}
}

func (g *Guarded) Runs() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.Ran)
}

func (g *Guarded) Set(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f()
}

// posting makes a request with a token, "" for none. header has names and values of headers in turn.
func posting(t *testing.T, url, token, body string, header []string) *http.Request {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return req
}

// calling makes the request of a call.
func calling(t *testing.T, url, tool, token, args, meta string, header []string) *http.Request {
	t.Helper()
	if meta != "" {
		meta = `,"_meta":` + meta
	}
	return posting(t, url, token, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"`+tool+`","arguments":`+args+meta+`}}`, header)
}

// CallAs makes a call of a tool with a token, "" for none.
func CallAs(t *testing.T, url, tool, token, args, meta string, header ...string) (status int, body string, got http.Header) {
	t.Helper()
	req := calling(t, url, tool, token, args, meta, header)
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

// LostCall makes a call whose client goes away.
func LostCall(t *testing.T, url, tool, token, args, meta string, header ...string) (gone func()) {
	t.Helper()
	req := calling(t, url, tool, token, args, meta, header)
	tr := &http.Transport{DisableKeepAlives: true}
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		resp, err := tr.RoundTrip(req.WithContext(ctx))
		if err != nil {
			done <- nil // the client is gone, as intended
			return
		}
		done <- resp.Body.Close()
	}()
	return func() {
		t.Helper()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the answer of a lost call: %v", err)
		}
	}
}

// SessionAs makes a handshake and returns the session's id, "" if there is none.
func SessionAs(t *testing.T, url, token string, header ...string) string {
	t.Helper()
	req := posting(t, url, token, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-03-26","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`, header)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusUnauthorized && resp.Header.Get("WWW-Authenticate") != WantsToken {
		t.Errorf("401 with %q", resp.Header)
	}
	return resp.Header.Get("Mcp-Session-Id")
}

// SearchFor searches every file in a directory for secrets, and returns a function that searches further texts.
func SearchFor(t *testing.T, dir string, secrets ...string) (search func(where, text string)) {
	t.Helper()
	search = func(where, text string) {
		for _, secret := range secrets {
			if i := strings.Index(text, secret); i >= 0 {
				t.Errorf("%s has the secret %s: %.300s", where, secret, text[max(0, i-100):])
			}
		}
	}
	files := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		raw, err := os.ReadFile(path)
		files++
		search(path, string(raw))
		return err
	})
	if err != nil || files < 5 {
		t.Errorf("%d files were searched, %v", files, err)
	}
	return search
}

// Sightings is the number of requests that it got.
func (g *Guarded) Sightings() (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, of := range g.Seen {
		n += of
	}
	return n
}

package mcpfront

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tgad/tgad/internal/mcpfront/asklog"
	"github.com/tgad/tgad/internal/mcpfront/entry"
	"github.com/tgad/tgad/internal/mcpfront/fronttest"
	"github.com/tgad/tgad/internal/mcpfront/toolcall"
	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

func TestSDKClientOverHTTP(t *testing.T) {
	w := newWorld(t)
	url := w.listening()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for range 2 { // each client has its own session and tool server
		client := mcp.NewClient(&mcp.Implementation{Name: "t", Version: "1"}, nil)
		s, err := client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: url, MaxRetries: -1}, nil)
		if err != nil {
			t.Fatal(err)
		}
		tools, err := s.ListTools(ctx, nil)
		if err != nil || len(tools.Tools) != 2 {
			t.Fatalf("tools %+v, %v", tools, err)
		}
		for range 2 {
			res, err := s.CallTool(ctx, &mcp.CallToolParams{Name: "charge", Arguments: map[string]any{"a": 1}})
			if err != nil || res.IsError || res.Meta["dev.tgad/replayed"] != nil {
				t.Fatalf("result %+v, %v", res, err)
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if n := len(w.Effects()); n != 4 {
		t.Errorf("%d effects, want 4: two calls in each of two conversations", n)
	}
}

func TestRequestsWithoutASession(t *testing.T) {
	w := newWorld(t)
	url := w.listening()
	post := func(body string, header ...string) (int, string) {
		t.Helper()
		req, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
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
	// Independent clients use the same ids and progress tokens.
	answers := make(chan string)
	for i := range 8 {
		go func() {
			_, got := post(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,`+"\n"+`"method":"echo","params":{"i":%d,"_meta":{"progressToken":1}}}`, i))
			answers <- got
		}()
	}
	seen := map[string]bool{}
	for range 8 {
		got := <-answers
		fronttest.Has(t, got, `"id":1}`)
		seen[got] = true
	}
	if len(seen) != 8 {
		t.Errorf("%d different answers of 8: %v", len(seen), seen)
	}
	if status, got := post(`{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"charge","arguments":{"a":1,"a":2}}}`); status != 200 || !strings.Contains(got, `"id":"x","error"`) {
		t.Errorf("%d %s", status, got)
	}
	if status, got := post(`{`); status != 200 || !strings.Contains(got, `"id":null,"error"`) {
		t.Errorf("%d %s", status, got)
	}
	if status, _ := post(`{"jsonrpc":"2.0","method":"notifications/x"}`); status != http.StatusAccepted {
		t.Errorf("a notification: %d", status)
	}
	if status, _ := post(`{}`, "Mcp-Session-Id", "none"); status != http.StatusNotFound {
		t.Errorf("an unknown session: %d", status)
	}
	if status, _ := post(`{}`, "Origin", "https://evil.example"); status != http.StatusForbidden {
		t.Errorf("a foreign origin: %d", status)
	}
	for address, ok := range map[string]bool{"0.0.0.0:0": false, ":0": false, "example.com:80": false, "127.0.0.1:0": true, "[::1]:0": true, "unix:" + filepath.Join(w.Dir, "s"): true} {
		l, err := entry.ListenOn(address)
		if (err == nil) != ok && !strings.Contains(fmt.Sprint(err), "cannot assign") {
			t.Errorf("listen on %s: %v", address, err)
		}
		if err == nil {
			_ = l.Close()
		}
	}
}

// TestToolServerBehindAURL: stdio to HTTP to stdio. The far shim passes calls ungoverned, so that
// only the near shim's log has them.
func TestToolServerBehindAURL(t *testing.T) {
	far := newWorld(t)
	far.opts.Tools = func(string) toolcall.Tool { return toolcall.Tool{Ungoverned: true} }
	w := newWorld(t)
	w.opts.URL = far.listening()
	w.opts.Command = nil
	h := w.start()
	h.Handshake()
	if got := h.Ask("1", "echo", `{"n":9007199254740993,"f":1.0}`); got != `{"result":{"n":9007199254740993,"f":1.0},"jsonrpc":"2.0","id":1}` {
		t.Errorf("got %s", got)
	}
	fronttest.Lacks(t, h.Call("2", "charge", `{"a":1}`), "replayed")
	e := far.Effects()
	if len(e) != 1 || e[0].Key == "" || w.Record("charge", e[0].Key) == nil {
		t.Fatalf("effects %+v", e)
	}
	h.Write(`{"jsonrpc":"2.0","id":3,"method":"ask","params":{}}`)
	fronttest.Has(t, h.ReadLine(), "sampling/createMessage")
	h.Write(`{"jsonrpc":"2.0","id":"q1","result":{"v":1}}`)
	fronttest.Has(t, h.Answer("3"), `"heard":{"v":1}`)
	if got := h.Call("4", "charge", `{"mib":3}`); len(got) < 3<<20 {
		t.Errorf("%d bytes", len(got))
	}
}

// endpointAnswer is how an endpoint answers a call.
type endpointAnswer struct {
	do      func(http.ResponseWriter)
	has     string
	writes  int64
	recalls string // what a repeat gets
}

func endpointAnswers() map[string]endpointAnswer {
	json := func(body string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, body)
		}
	}
	return map[string]endpointAnswer{
		"500":      {func(w http.ResponseWriter) { w.WriteHeader(500) }, "OUTCOME UNKNOWN", 1, "OUTCOME UNKNOWN"},
		"cut":      {func(w http.ResponseWriter) { c, _, _ := http.NewResponseController(w).Hijack(); _ = c.Close() }, "OUTCOME UNKNOWN", 1, "OUTCOME UNKNOWN"},
		"redirect": {func(w http.ResponseWriter) { w.Header().Set("Location", "/other"); w.WriteHeader(307) }, "OUTCOME UNKNOWN", 1, "OUTCOME UNKNOWN"},
		"no json": {func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, "{")
		}, "OUTCOME UNKNOWN", 1, "OUTCOME UNKNOWN"},
		"other id": {func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, `{"jsonrpc":"2.0","id":99,"result":{"content":[]}}`)
		}, "OUTCOME UNKNOWN", 1, "OUTCOME UNKNOWN"},
		"short sse": {func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"x\"}\n\n")
		}, "OUTCOME UNKNOWN", 1, "OUTCOME UNKNOWN"},
		"sse with a line end in a text": {func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, "data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"a\ndata: b\"}]}}\n\n")
		}, "OUTCOME UNKNOWN", 1, "OUTCOME UNKNOWN"},
		"json with a line end in a text": {json("{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"a\nb\"}]}}"), "OUTCOME UNKNOWN", 1, "OUTCOME UNKNOWN"},
		"lines":                          {json("{\r\n  \"jsonrpc\": \"2.0\",\n\"id\": 1,\n  \"result\": {\n\"content\": [\n ]\n}\n}\n"), `"content": [`, 1, "replayed"},
		"empty array":                    {json(`[]`), "OUTCOME UNKNOWN", 1, "OUTCOME UNKNOWN"},
		"array without the answer":       {json(`[{"jsonrpc":"2.0","method":"x"},{"jsonrpc":"2.0","id":99,"result":{"content":[]}}]`), "OUTCOME UNKNOWN", 1, "OUTCOME UNKNOWN"},
		"array that is too long":         {json(`[` + strings.Repeat(`{"jsonrpc":"2.0","method":"x"},`, 300) + `{"jsonrpc":"2.0","id":1,"result":{"content":[]}}]`), "OUTCOME UNKNOWN", 1, "OUTCOME UNKNOWN"},
		"array with the answer":          {json(`[{"jsonrpc":"2.0","method":"x"},{"jsonrpc":"2.0","id":1,"result":{"content":[]}}]`), `"result":{"content":[]}`, 1, "replayed"},
		"result with a code":             {json(`{"jsonrpc":"2.0","id":1,"result":{"code":0,"msg":"ok"}}`), `"result":{"code":0,"msg":"ok"}`, 1, `"result":{"code":0,"msg":"ok","_meta":{"dev.tgad/replayed"`},
		"failure with a code":            {json(`{"jsonrpc":"2.0","id":1,"result":{"isError":true,"code":7}}`), `"result":{"isError":true,"code":7}`, 1, `"result":{"isError":true,"code":7,"_meta":{"dev.tgad/replayed"`},
		"error":                          {json(`{"jsonrpc":"2.0","id":1,"error":{"code":7,"message":"no"}}`), `"error":{"code":7,"message":"no"}`, 1, `"error":{"code":7,"message":"no"}`},
		"id as a string":                 {json(`{"jsonrpc":"2.0","id":"1","result":{"content":[]}}`), `"id":1,"result":{"content":[]}`, 1, "replayed"},
		"id as a string in a stream": {func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, "data: {\"jsonrpc\":\"2.0\",\"id\":\"1\",\"result\":{\"content\":[]}}\n\n")
		}, `"id":1,"result":{"content":[]}`, 1, "replayed"},
		"answer with an id as a string that does not pass": {func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, "data: {\"jsonrpc\":\"2.0\",\"id\":\"1\",\"result\":{},\"Result\":{}}\n\n")
		}, "OUTCOME UNKNOWN", 1, "OUTCOME UNKNOWN"},
		"result and an error that is null": {json(`{"jsonrpc":"2.0","id":1,"result":{"content":[]},"error":null}`), `"result":{"content":[]}`, 1, "replayed"},
		"error and a result that is null":  {json(`{"jsonrpc":"2.0","id":1,"result":null,"error":{"code":7,"message":"no"}}`), `"error":{"code":7`, 1, `"error":{"code":7`},
		"result and an error":              {json(`{"jsonrpc":"2.0","id":1,"result":{"content":[]},"error":{"code":7,"message":"no"}}`), "OUTCOME UNKNOWN", 1, "OUTCOME UNKNOWN"},
		"answer with status 201": {func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(201)
			io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`)
		}, `"result":{"content":[]}`, 1, "replayed"},
		"no answer with status 202": {func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(202)
			io.WriteString(w, `{"accepted":true}`)
		}, "OUTCOME UNKNOWN", 1, "OUTCOME UNKNOWN"},
		"busy":      {func(w http.ResponseWriter) { w.WriteHeader(429) }, "not sent", 2, "not sent"},
		"forbidden": {func(w http.ResponseWriter) { w.WriteHeader(403) }, "not sent", 2, "not sent"},
		"sse answer": {func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, "event: message\ndata: {\"jsonrpc\":\"2.0\",\r\ndata:\"id\":1,\"result\":{\"content\":[]}}\n\n")
		}, `"result":{"content":[]}`, 1, "replayed"},
	}
}

// TestOneWriteOnAnEndpointThatFails: however an endpoint fails, it gets a call only once, and a call
// without a clear answer is in doubt.
func TestOneWriteOnAnEndpointThatFails(t *testing.T) {
	for name, a := range endpointAnswers() {
		t.Run(name, func(t *testing.T) {
			var calls atomic.Int64
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				raw, _ := io.ReadAll(r.Body)
				switch {
				case strings.Contains(string(raw), "tools/call"), r.URL.Path == "/other":
					calls.Add(1)
					a.do(w)
				default:
					w.WriteHeader(http.StatusAccepted)
				}
			}))
			defer srv.Close()
			w := newWorld(t)
			w.opts.URL = srv.URL
			h := w.start()
			const key = `{"dev.tgad/idempotencyKey":"k"}`
			fronttest.Has(t, h.Call("1", "charge", `{}`, key), a.has)
			fronttest.Has(t, h.Call("1", "charge", `{}`, key), a.recalls)
			if n := calls.Load(); n != a.writes {
				t.Errorf("%d writes, want %d", n, a.writes)
			}
		})
	}
	// If nobody listens at the endpoint, the call was certainly not sent.
	w := newWorld(t)
	w.opts.URL = "http://127.0.0.1:1/"
	h := w.start()
	fronttest.Has(t, h.Call("1", "charge", `{}`), "not sent")
	fronttest.Has(t, h.Ask("2", "echo", `{}`), `"error":{"code":-32000`)
}

// waits is a log that notes the Retry-After that it is told.
type waits struct {
	asklog.Log
	mu   sync.Mutex
	told []string
}

func (l *waits) tell(what string, wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told = append(l.told, what+" "+wait.String())
}

func (l *waits) NotSent(ctx context.Context, trace tga.ID, permit runtime.Permit, reason string, wait time.Duration) (runtime.Result, error) {
	l.tell("not sent", wait)
	return l.Log.NotSent(ctx, trace, permit, reason, wait)
}

func (l *waits) GiveUp(ctx context.Context, trace tga.ID, permit runtime.Permit, cause string, wait time.Duration) error {
	l.tell("given up", wait)
	return l.Log.GiveUp(ctx, trace, permit, cause, wait)
}

func (l *waits) Finish(ctx context.Context, trace tga.ID, permit runtime.Permit, f runtime.Finished) (runtime.Result, error) {
	l.tell("finished", f.RetryAfter)
	return l.Log.Finish(ctx, trace, permit, f)
}

// TestRetryAfterOfAnEndpointReachesTheLog: the log is told the Retry-After of an endpoint, whatever
// answer it comes with. For an answer without Retry-After it is told none.
func TestRetryAfterOfAnEndpointReachesTheLog(t *testing.T) {
	const refusal = `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"not now"}}`
	for name, c := range map[string]struct {
		status int
		asks   string
		body   string
		want   string
	}{
		"busy":                      {429, "7", "", "not sent 7s"},
		"busy, and asks nothing":    {429, "", "", "not sent 0s"},
		"busy for over a day":       {429, "86401", "", "not sent 24h0m0s"},
		"refused, asks nothing":     {429, "", refusal, "finished 0s"},
		"refused, in its own words": {429, "7", refusal, "finished 7s"},
		"down":                      {503, "7", "", "given up 7s"},
		"broken":                    {500, "", "", "given up 0s"},
		"no answer":                 {202, "7", "", "given up 7s"},
	} {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				raw, _ := io.ReadAll(r.Body)
				if !strings.Contains(string(raw), "tools/call") {
					w.WriteHeader(http.StatusAccepted)
					return
				}
				if c.asks != "" {
					w.Header().Set("Retry-After", c.asks)
				}
				w.WriteHeader(c.status)
				io.WriteString(w, c.body)
			}))
			defer srv.Close()
			w := newWorld(t)
			w.opts.URL = srv.URL
			log := &waits{Log: w.Local()}
			w.log = log
			w.start().Call("1", "charge", `{}`, `{"dev.tgad/idempotencyKey":"k"}`)
			log.mu.Lock()
			defer log.mu.Unlock()
			if got := strings.Join(log.told, ", "); got != c.want {
				t.Errorf("the log is told %q, want %q", got, c.want)
			}
		})
	}
}

// TestSessionIsOverInTheHandshake: the tool server forgets its session between its answer to the handshake and the client's
// notifications/initialized. The shim makes a session anew, and the client's requests go on in it.
func TestSessionIsOverInTheHandshake(t *testing.T) {
	var mu sync.Mutex
	session, greeted, n, bare := "", false, 0, 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		method := string(mcpraw.At(raw, "/method"))
		mu.Lock()
		defer mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		switch {
		case method == `"initialize"`:
			n++
			session, greeted = fmt.Sprint("s", n), false
			w.Header().Set("Mcp-Session-Id", session)
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"fake","version":"1"}}}`, mcpraw.At(raw, "/id"))
		case r.Header.Get("Mcp-Session-Id") == "":
			bare++
			w.WriteHeader(http.StatusBadRequest)
		case r.Header.Get("Mcp-Session-Id") != session:
			w.WriteHeader(http.StatusNotFound)
		case method == `"notifications/initialized"`:
			greeted = true
			w.WriteHeader(http.StatusAccepted)
		case mcpraw.At(raw, "/id") == nil:
			w.WriteHeader(http.StatusMethodNotAllowed)
		case !greeted && method != `"ping"`:
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32600,"message":"not initialized"}}`, mcpraw.At(raw, "/id"))
		default:
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{}}`, mcpraw.At(raw, "/id"))
		}
	}))
	defer srv.Close()
	w := newWorld(t)
	w.opts.URL = srv.URL
	h := w.start()
	h.Ask("0", "initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}`)
	mu.Lock()
	session = "" // it was started again
	mu.Unlock()
	fronttest.Eventually(t, "a new beginning", func() bool {
		h.Ask("1", "ping", `{}`)
		mu.Lock()
		defer mu.Unlock()
		return n == 2 || bare > 0
	})
	h.Write(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	fronttest.Eventually(t, "a session", func() bool { return strings.Contains(h.Ask("2", "tools/list", `{}`), `"result"`) })
}

// TestRefusedSessionLosesNoAnswer: a tool server that has forgotten a session refuses the requests of it one by one. A call that it has
// still answers gets its answer, one that it refuses was not sent, and one that comes in between goes to the next session.
func TestRefusedSessionLosesNoAnswer(t *testing.T) {
	for status, said := range map[int]string{404: "", 400: `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad Request: No valid session ID provided"}}`} {
		t.Run(fmt.Sprint(status), func(t *testing.T) { testRefusedSession(t, status, said) })
	}
}

func testRefusedSession(t *testing.T, status int, said string) {
	var mu sync.Mutex
	sessions, calls := 0, map[string]int{}
	came, late := make(chan string, 8), make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		method, id := mcpraw.Text(mcpraw.At(raw, "/method")), string(mcpraw.At(raw, "/id"))
		mu.Lock()
		first := r.Header.Get("Mcp-Session-Id") == "s1"
		if method == "initialize" {
			sessions++
			w.Header().Set("Mcp-Session-Id", fmt.Sprint("s", sessions))
		}
		if method == "tools/call" {
			calls[id]++
		}
		mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		switch {
		case method == "initialize":
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"fake","version":"1"}}}`, id)
			return
		case method != "tools/call":
			w.WriteHeader(http.StatusAccepted)
			return
		case first && id != "4":
			came <- id
			<-late
		}
		if first && id != "1" {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, said)
			return
		}
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[]}}`, id)
	}))
	defer srv.Close()
	w := newWorld(t)
	w.opts.URL = srv.URL
	h := w.start()
	h.Handshake()
	call := func(id string) {
		h.Write(`{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"charge","arguments":{"n":` + id + `}}}`)
	}
	call("1")
	call("2")
	<-came
	<-came
	fronttest.Has(t, h.Call("4", "charge", `{"n":4}`), "not sent", fmt.Sprint(status))
	call("5")
	close(late)
	for range 3 {
		switch got := h.ReadLine(); {
		case strings.Contains(got, `"id":1`), strings.Contains(got, `"id":5`):
			fronttest.Has(t, got, `"result":{"content":[]}`)
		default:
			fronttest.Has(t, got, `"id":2`, "not sent", fmt.Sprint(status))
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for _, id := range []string{"1", "2", "4", "5"} {
		if calls[id] != 1 {
			t.Errorf("call %s came %d times", id, calls[id])
		}
	}
}

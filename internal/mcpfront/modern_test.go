package mcpfront

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tgad/tgad/internal/mcpfront/fronttest"
	"github.com/tgad/tgad/internal/mcpfront/toolcall"
	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/ledger"
)

// strict is an endpoint of revision 2026-07-28 that refuses, as the revision demands, headers that
// differ from the body and requests without their _meta.
type strict struct {
	*httptest.Server
	t *testing.T

	mu     sync.Mutex
	tools  string // the member tools of its lists
	want   string // a header that each call must have: "Name: value", or ""
	asked  []string
	seen   []http.Header // headers of the calls
	ended  []string      // methods of the requests whose client closed the stream
	handle map[string]func(e *exchanged)
}

// exchanged is a request that a strict endpoint has accepted.
type exchanged struct {
	w    http.ResponseWriter
	r    *http.Request
	id   []byte
	body []byte
	n    int // requests of this method so far
}

func (e *exchanged) result(members string) {
	fmt.Fprintf(e.w, `{"jsonrpc":"2.0","id":%s,"result":{%s}}`, e.id, members)
}

func (e *exchanged) event(line string) {
	e.w.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprintf(e.w, "data: %s\n\n", line)
	_ = http.NewResponseController(e.w).Flush()
}

func newStrict(t *testing.T) *strict {
	s := &strict{t: t, tools: `[]`, handle: map[string]func(*exchanged){}}
	s.handle["server/discover"] = func(e *exchanged) {
		e.result(`"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true}}`)
	}
	s.handle["tools/list"] = func(e *exchanged) {
		s.mu.Lock()
		defer s.mu.Unlock()
		e.result(`"resultType":"complete","ttlMs":0,"cacheScope":"public","tools":` + s.tools)
	}
	s.handle["tools/call"] = func(e *exchanged) {
		e.result(`"resultType":"complete","content":[{"type":"text","text":"ok"}]`)
	}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *strict) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *strict) count(method string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.asked {
		if m == method {
			n++
		}
	}
	return n
}

func decoded(v string) string {
	if from, ok := strings.CutPrefix(v, "=?base64?"); ok {
		b, err := base64.StdEncoding.DecodeString(strings.TrimSuffix(from, "?="))
		if err != nil {
			return err.Error()
		}
		return string(b)
	}
	return v
}

func (s *strict) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		s.t.Error(err)
	}
	at := func(pointer string) string { return mcpraw.ScalarText(mcpraw.At(body, pointer)) }
	e := &exchanged{w: w, r: r, id: mcpraw.At(body, "/id"), body: body}
	w.Header().Set("Content-Type", "application/json")
	refuse := func(status, code int, words string) {
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%q}}`, cmp.Or(string(e.id), "null"), code, words)
	}
	method := at("/method")
	s.mu.Lock()
	s.asked = append(s.asked, method)
	e.n = 0
	for _, m := range s.asked {
		if m == method {
			e.n++
		}
	}
	want, handle := s.want, s.handle[method]
	if method == "tools/call" {
		s.seen = append(s.seen, r.Header.Clone())
	}
	s.mu.Unlock()
	version := at("/params/_meta/io.modelcontextprotocol~1protocolVersion")
	header, value, _ := strings.Cut(want, ": ")
	switch {
	case r.Method != http.MethodPost:
		w.WriteHeader(http.StatusMethodNotAllowed)
	case version == "" || mcpraw.At(body, "/params/_meta/io.modelcontextprotocol~1clientCapabilities") == nil:
		refuse(400, -32602, "the request does not say what it is of")
	case r.Header.Get("Mcp-Protocol-Version") != version || r.Header.Get("Mcp-Method") != method:
		refuse(400, -32020, "the standard headers are not those of the body")
	case decoded(r.Header.Get("Mcp-Name")) != mcpraw.NameOf(method, mcpraw.At(body, "/params")):
		refuse(400, -32020, "the header Mcp-Name is not the name of the body")
	case method == "tools/call" && want != "" && r.Header.Get(header) != value:
		refuse(400, -32020, "want "+want)
	case handle == nil:
		refuse(404, -32601, "no such method")
	default:
		handle(e)
		if r.Context().Err() != nil {
			s.change(func() { s.ended = append(s.ended, method) })
		}
	}
}

// at makes a shim of a tool server at a URL.
func (w *world) at(url string) *shim {
	w.opts.URL, w.opts.Command = url, nil
	return w.start()
}

func marked(name, header string) string {
	return `{"name":"` + name + `","inputSchema":{"type":"object","properties":{"x":{"type":"string","x-mcp-header":"` + header + `"}}}}`
}

// TestHeadersOfTheOfficialServer: the official server refuses a call whose headers differ from its
// arguments. The client of the shim is on stdin and stdout and sends no headers.
func TestHeadersOfTheOfficialServer(t *testing.T) {
	server := mcp.NewServer(&mcp.Implementation{Name: "sdk", Version: "1"}, nil)
	schema := json.RawMessage(`{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"},"key":{"type":"string","x-mcp-header":"Key"},` +
		`"at":{"type":"object","properties":{"shard":{"type":"integer","x-mcp-header":"Shard"}}}}}`)
	for _, name := range []string{"charge", "free"} {
		server.AddTool(&mcp.Tool{Name: name, InputSchema: schema}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			h := r.Extra.Header
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprint(h.Values("Mcp-Param-Region"), h.Values("Mcp-Param-Shard"), h.Values("Mcp-Param-Key"))}}}, nil
		})
	}
	server.AddPrompt(&mcp.Prompt{Name: "hello"}, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return &mcp.GetPromptResult{Description: "said"}, nil
	})
	srv := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: true}))
	t.Cleanup(srv.Close)
	w := newWorld(t)
	w.opts.Tools = func(tool string) toolcall.Tool {
		return toolcall.Tool{Ungoverned: tool == "free", KeyArgument: "/key", Block: tool == "charge"}
	}
	h := w.at(srv.URL)
	for i, c := range []struct{ tool, args, want string }{
		{"free", `{"region":"us-west1","at":{"shard":42.0}}`, "[us-west1] [42] []"},
		{"charge", `{"region":" é","at":{"shard":-7}}`, "[=?base64?IMOp?=] [-7] [k1]"},
		{"charge", `{"region":null,"key":"mine"}`, "[] [] [mine]"},
	} {
		meta := strings.Replace(fronttest.ModernMeta, "{", fmt.Sprintf(`{"dev.tgad/idempotencyKey":"k%d",`, i), 1)
		got := h.Call(fmt.Sprint(i), c.tool, c.args, meta)
		fronttest.Has(t, got, c.want, `"result"`)
	}
	for i, args := range []string{`{"region":["a"]}`, `{"at":{"shard":1e30}}`} {
		fronttest.Has(t, h.Call(fmt.Sprint(10+i), "charge", args, fronttest.ModernMeta), `"code":-32602`, "/params/arguments/", "Mcp-Param-")
		fronttest.Has(t, h.Call(fmt.Sprint(20+i), "free", args, fronttest.ModernMeta), `"code":-32602`, "Mcp-Param-")
	}
	fronttest.Has(t, h.Ask("30", "prompts/get", `{"name":"hello","_meta":`+fronttest.ModernMeta+`}`), "said")
	fronttest.Has(t, h.Ask("31", "tools/list", `{"_meta":`+fronttest.ModernMeta+`}`), `"x-mcp-header":"Region"`)
}

// TestHeadersThatHaveChanged: if a call is refused for its headers, its permit is returned, and the
// call is sent again, once, with the headers of the tool server's current definition.
func TestHeadersThatHaveChanged(t *testing.T) {
	srv := newStrict(t)
	srv.tools, srv.want = "["+marked("charge", "Old")+"]", "Mcp-Param-Old: v"
	w := newWorld(t)
	h := w.at(srv.URL)
	call := func(id string) string {
		return h.Call(id, "charge", `{"x":"v"}`, strings.Replace(fronttest.ModernMeta, "{", `{"dev.tgad/idempotencyKey":"k`+id+`",`, 1))
	}
	fronttest.Has(t, call("1"), `"ok"`)
	srv.change(func() { srv.tools, srv.want = "["+marked("charge", "New")+"]", "Mcp-Param-New: v" })
	fronttest.Has(t, call("2"), `"ok"`)
	if r := w.Record("charge", "k2"); r.Class != ledger.ClassCommitted || r.Attempts.Count != 1 || r.Attempts.Unsent != 0 {
		t.Errorf("record %+v", r)
	}
	if calls, lists := srv.count("tools/call"), srv.count("tools/list"); calls != 3 || lists != 2 {
		t.Errorf("%d calls, %d lists", calls, lists)
	}
	// The definition does not match what the tool server wants: the refusal is final after one re-send.
	srv.change(func() { srv.want = "Mcp-Param-Other: v" })
	fronttest.Has(t, call("3"), `"code":-32020`)
	if calls := srv.count("tools/call"); calls != 4 {
		t.Errorf("%d calls", calls)
	}
}

// TestToolsThatBreakTheRulesForHeaders: tools that break the rules for headers are not offered and not called.
func TestToolsThatBreakTheRulesForHeaders(t *testing.T) {
	srv := newStrict(t)
	good := marked("charge", "X") + `, {"name":"look","n":9007199254740993,"inputSchema":{}}`
	srv.tools = "[ " + marked("bad", "X y") + "," + good + "]"
	w := newWorld(t)
	h := w.at(srv.URL)
	fronttest.Has(t, h.Call("1", "bad", `{}`, fronttest.ModernMeta), `"code":-32602`, "breaks the rules for headers", "VALIDATION_ERROR")
	fronttest.Has(t, h.Call("2", "charge", `{"x":"v"}`, fronttest.ModernMeta), `"ok"`)
	got := h.Ask("3", "tools/list", `{"_meta":`+fronttest.ModernMeta+`}`)
	fronttest.Has(t, got, `"tools":[`+strings.Replace(good, ", ", ",", 1)+`]`)
	srv.change(func() { srv.tools = "[ " + good + "]" })
	fronttest.Has(t, h.Ask("4", "tools/list", `{"_meta":`+fronttest.ModernMeta+`}`), `"tools":[ `+good+`]`) // byte for byte
	if n := srv.count("tools/call"); n != 1 {
		t.Errorf("%d calls", n)
	}
}

// TestCancellationClosesTheStream: over HTTP a request of the revision is cancelled by closing its
// stream. The revision has no cancellation notification over HTTP.
func TestCancellationClosesTheStream(t *testing.T) {
	srv := newStrict(t)
	wait := func(e *exchanged) {
		e.event(`{"jsonrpc":"2.0","method":"notifications/message","params":{}}`)
		<-e.r.Context().Done()
	}
	srv.handle["tools/call"], srv.handle["slow"] = wait, wait
	w := newWorld(t)
	h := w.at(srv.URL)
	meta := strings.Replace(fronttest.ModernMeta, "{", `{"dev.tgad/idempotencyKey":"k",`, 1)
	h.Write(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"charge","arguments":{},"_meta":` + meta + `}}`)
	h.Write(`{"jsonrpc":"2.0","id":2,"method":"slow","params":{"_meta":` + fronttest.ModernMeta + `}}`)
	fronttest.Has(t, h.ReadLine(), "notifications/message")
	fronttest.Has(t, h.ReadLine(), "notifications/message")
	for id := 1; id <= 2; id++ {
		h.Write(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, id))
	}
	fronttest.Eventually(t, "the ends of the streams", func() bool {
		srv.mu.Lock()
		defer srv.mu.Unlock()
		return len(srv.ended) == 2
	})
	fronttest.Has(t, h.Call("3", "charge", `{}`, meta), "OUTCOME UNKNOWN")
	if n, calls := srv.count("notifications/cancelled"), srv.count("tools/call"); n != 0 || calls != 1 {
		t.Errorf("%d notifications, %d calls", n, calls)
	}
	// The id of the cancelled request can be used again.
	srv.change(func() { srv.handle["slow"] = func(e *exchanged) { e.result(`"n":1`) } })
	fronttest.Has(t, h.Ask("2", "slow", `{"_meta":`+fronttest.ModernMeta+`}`), `"n":1`)
}

// TestTaskOfAModernServer: questions about a task have the form that the revision wants, from the next shim too.
func TestTaskOfAModernServer(t *testing.T) {
	srv := newStrict(t)
	const task = `"taskId":"job-1","createdAt":"2026-01-01T00:00:00Z","lastUpdatedAt":"2026-01-01T00:00:00Z","ttlMs":null,"pollIntervalMs":20`
	srv.handle["tools/call"] = func(e *exchanged) { e.result(`"resultType":"task","status":"working",` + task) }
	srv.handle["tasks/get"] = func(e *exchanged) {
		if mcpraw.At(e.body, "/params/_meta/io.modelcontextprotocol~1clientCapabilities/extensions/io.modelcontextprotocol~1tasks") == nil {
			fmt.Fprintf(e.w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32021,"message":"tasks are not declared"}}`, e.id)
			return
		}
		e.result(`"resultType":"complete","status":"completed","result":{"content":[{"type":"text","text":"job done"}]},` + task)
	}
	w := newWorld(t)
	w.opts.Tasks = TasksOff
	h := w.at(srv.URL)
	fronttest.Has(t, h.Call("1", "job", `{}`, strings.Replace(tasksMeta, "{", `{"dev.tgad/idempotencyKey":"k",`, 1)), `"taskId":"job-1"`)
	fronttest.Eventually(t, "the effect of the task", func() bool {
		r := w.Record("job", "k")
		return r != nil && r.Status == ledger.Settled
	})
}

// TestTaskOfABusyServer: a tool server that answers a question about a task with an error of its own is asked again. A tool server that
// says that it has no such task is not.
func TestTaskOfABusyServer(t *testing.T) {
	for code, again := range map[int]bool{-32603: true, -32000: true, -32602: false} {
		srv := newStrict(t)
		const task = `"taskId":"job-1","createdAt":"2026-01-01T00:00:00Z","lastUpdatedAt":"2026-01-01T00:00:00Z","ttlMs":null,"pollIntervalMs":20`
		srv.handle["tools/call"] = func(e *exchanged) { e.result(`"resultType":"task","status":"working",` + task) }
		asked := new(atomic.Int64)
		srv.handle["tasks/get"] = func(e *exchanged) {
			if asked.Add(1) == 1 {
				fmt.Fprintf(e.w, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":"no"}}`, e.id, code)
				return
			}
			e.result(`"resultType":"complete","status":"completed","result":{"content":[{"type":"text","text":"job done"}]},` + task)
		}
		w := newWorld(t)
		w.opts.Tasks = TasksOff
		h := w.at(srv.URL)
		fronttest.Has(t, h.Call("1", "job", `{}`, strings.Replace(tasksMeta, "{", `{"dev.tgad/idempotencyKey":"k",`, 1)), `"taskId":"job-1"`)
		if again {
			fronttest.Eventually(t, "the effect of the task", func() bool {
				r := w.Record("job", "k")
				return r != nil && r.Status == ledger.Settled
			})
			continue
		}
		fronttest.Eventually(t, "the question", func() bool { return asked.Load() == 1 })
		time.Sleep(3 * pollDefault / 2)
		if n := asked.Load(); n != 1 {
			t.Errorf("%d: asked %d times", code, n)
		}
	}
}

// TestInspectAModernServer: a tool server without a handshake is inspected without one.
func TestInspectAModernServer(t *testing.T) {
	srv := newStrict(t)
	srv.tools = "[" + marked("charge", "X") + "]"
	w := newWorld(t)
	w.opts.URL, w.opts.Command = srv.URL, nil
	s, err := New(w.options())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	tools, err := s.Inspect(ctx, false)
	if err != nil || len(tools) != 1 || tools[0].Name != "charge" {
		t.Errorf("%+v, %v", tools, err)
	}
}

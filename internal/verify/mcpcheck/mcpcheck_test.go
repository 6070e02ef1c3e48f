package mcpcheck

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/tgad/tgad/internal/verify"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/mcp"
	"github.com/tgad/tgad/schemas/tga"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var soon = verify.Patience{Timeout: 20 * time.Second, Tries: 2, Delay: time.Millisecond, MaxDelay: time.Millisecond, SettleEvery: time.Millisecond}

func settling(questions int) verify.Patience {
	p := soon
	p.Settle = time.Duration(questions-1) * p.SettleEvery
	return p
}

// provider is a real MCP server over HTTP with a tool that charges and tools that only look. It shows what
// it did only after the given number of questions, and can lose an answer.
type provider struct {
	mu      sync.Mutex
	charges map[string]string // key: result
	keys    []string          // idempotency keys of the questions
	args    []string          // arguments of the questions
	hidden  int               // number of questions for which nothing shows
	lose    int               // number of answers to tools/call that get lost after the tool ran
	memory  map[string]*sdk.CallToolResult
}

// set begins a case without any questions.
func (p *provider) set(hidden, lose int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keys, p.args, p.hidden, p.lose = nil, nil, hidden, lose
}

// questions returns the keys and the arguments of the questions since then.
func (p *provider) questions() (keys, args []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.keys), slices.Clone(p.args)
}

const keyName = "dev.tgad/idempotencyKey"

func object(text string) *sdk.CallToolResult {
	return &sdk.CallToolResult{
		Content:           []sdk.Content{&sdk.ImageContent{MIMEType: "image/png"}, &sdk.TextContent{Text: text}},
		StructuredContent: json.RawMessage(text),
	}
}

func problem(text string) *sdk.CallToolResult {
	return &sdk.CallToolResult{IsError: true, Content: []sdk.Content{&sdk.TextContent{Text: text}}}
}

// start returns the provider, and its connection as the runtime makes it.
func start(t *testing.T) (*provider, *mcp.Server) {
	t.Helper()
	p := &provider{charges: map[string]string{}, memory: map[string]*sdk.CallToolResult{}}
	server := sdk.NewServer(&sdk.Implementation{Name: "provider", Version: "1"}, nil)
	for name, tool := range map[string]func(ctx context.Context, key string, args map[string]any) (*sdk.CallToolResult, error){
		"charge": p.charge, "find": p.find, "get": p.get, "hang": hang,
	} {
		server.AddTool(&sdk.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)}, func(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			key, _ := r.Params.Meta[keyName].(string)
			var args map[string]any
			if err := json.Unmarshal(r.Params.Arguments, &args); err != nil {
				return nil, err
			}
			if name != "charge" {
				p.mu.Lock()
				p.keys, p.args = append(p.keys, key), append(p.args, string(r.Params.Arguments))
				p.mu.Unlock()
			}
			return tool(ctx, key, args)
		})
	}
	handler := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, &sdk.StreamableHTTPOptions{JSONResponse: true})
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		p.mu.Lock()
		lost := bytes.Contains(body, []byte(`"tools/call"`)) && p.lose > 0
		if lost {
			p.lose--
		}
		p.mu.Unlock()
		if lost {
			handler.ServeHTTP(httptest.NewRecorder(), r) // the tool runs
			panic(http.ErrAbortHandler)                  // and the answer does not arrive
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(web.Close)
	client, err := mcp.New("provider", mcp.Options{URL: web.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	return p, client
}

func (p *provider) charge(_ context.Context, key string, args map[string]any) (*sdk.CallToolResult, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.charges[key] = fmt.Sprintf(`{"amount":%v}`, args["amount"])
	return object(p.charges[key]), nil
}

// find is the question whether a key ran. It deduplicates by key, as a server may do for every tool: a
// repeated key gets the same answer.
func (p *provider) find(_ context.Context, key string, args map[string]any) (*sdk.CallToolResult, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.memory[key]; r != nil {
		return r, nil
	}
	wanted, _ := args["reference"].(string)
	r := object(fmt.Sprintf(`{"key":%q,"found":false}`, wanted))
	if p.hidden--; p.charges[wanted] != "" && p.hidden < 0 {
		r = object(fmt.Sprintf(`{"key":%q,"found":true,"response":%s}`, wanted, p.charges[wanted]))
	}
	p.memory[key] = r
	return r, nil
}

// get is the question for a ticket. The ticket's id says what happens to it.
func (p *provider) get(_ context.Context, _ string, args map[string]any) (*sdk.CallToolResult, error) {
	p.mu.Lock()
	p.hidden--
	hidden := p.hidden >= 0
	p.mu.Unlock()
	id, _ := args["id"].(string)
	switch {
	case hidden || id == "none":
		return problem("ticket " + id + " not found"), nil
	case id == "broken":
		return problem("database is down"), nil
	case id == "fault":
		return nil, errors.New("what?")
	case id == "long":
		return object(`{"id":"long","version":7,"pad":"` + strings.Repeat("x", verify.MaxBody) + `"}`), nil
	case id == "prose":
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "all is well"}}}, nil
	case id == "other":
		return object(`{"id":"1","version":7}`), nil
	}
	return object(fmt.Sprintf(`{"id":%q,"version":7}`, id)), nil
}

func hang(ctx context.Context, _ string, _ map[string]any) (*sdk.CallToolResult, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func ptr(s string) *string { return &s }

// tickets are the rules for get, with pointers into its answer.
func tickets(answer string) Config {
	at := "/structuredContent"
	if answer == AnswerText {
		at = ""
	}
	return Config{
		Server: "provider", Tool: "get", Answer: answer, Arguments: map[string]string{"id": "resource_id", "ref": "external_ref?"}, Patience: soon,
		Checks: []verify.Check{{Pointer: at + "/id", Field: "resource_id"}, {Pointer: at + "/version", Field: "version"}},
		Gone:   []Rule{{Failed: true, Checks: []verify.Check{{Pointer: "/content/0/text", Contains: "not found"}}}},
	}
}

func mustNew(t *testing.T, c Config, d runtime.Dispatcher) runtime.Verifier {
	t.Helper()
	v, err := New(c, d)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestFindings(t *testing.T) {
	const e, g, c, x = runtime.Exists, runtime.Gone, runtime.Changed, runtime.CannotTell
	p, server := start(t)
	for _, answer := range []string{AnswerResult, AnswerText, ""} {
		for _, test := range []struct {
			name, id, version, etag string
			patience                verify.Patience
			hidden, lose            int
			want                    runtime.Finding
			failed                  bool
			asked                   int
		}{
			{"there", "1", "7", "", soon, 0, 0, e, false, 1},
			{"there, no version to compare", "1", "", "", soon, 0, 0, e, false, 1},
			{"another version", "1", "8", "", soon, 0, 0, c, false, 1},
			{"an etag that nothing compares", "1", "7", "e", soon, 0, 0, x, false, 1},
			{"not found", "none", "7", "", soon, 0, 0, g, false, 1},
			{"another error", "broken", "7", "", soon, 0, 0, x, false, 1},
			{"a JSON-RPC error", "fault", "7", "", soon, 0, 0, x, false, 1},
			{"about another ticket", "other", "7", "", soon, 0, 0, c, false, 1},
			{"prose", "prose", "7", "", soon, 0, 0, x, false, 1},
			{"too long", "long", "7", "", soon, 0, 0, x, false, 1},
			{"visible late", "1", "7", "", settling(3), 2, 0, e, false, 3},
			{"visible too late", "1", "7", "", settling(3), 3, 0, g, false, 3},
			{"answer lost once", "1", "7", "", soon, 0, 1, e, false, 2},
			{"answer lost twice", "1", "7", "", soon, 0, 2, x, true, 2},
		} {
			config := tickets(answer)
			config.Patience = test.patience
			p.set(test.hidden, test.lose)
			f, evidence, err := mustNew(t, config, server).Verify(t.Context(), tga.StateChange{ResourceType: "ticket", ResourceID: test.id, Version: test.version, ETag: test.etag})
			if keys, _ := p.questions(); f != test.want || (err != nil) != test.failed || len(keys) != test.asked {
				t.Errorf("%q, %s: got %v, %v after %d: %.300s", answer, test.name, f, err, len(keys), evidence.Detail)
			}
			if !json.Valid(evidence.Detail) || len(evidence.Detail) > verify.MaxEvidence || !strings.HasPrefix(evidence.Source, `tool get on provider {"id":`) {
				t.Errorf("%s: evidence %q: %.300s", test.name, evidence.Source, evidence.Detail)
			}
		}
	}
}

var call = runtime.Call{
	TraceID: tga.ID{1, 6: 0x70, 8: 0x80}, ToolCallID: tga.ID{2, 6: 0x70, 8: 0x80}, Attempt: 1, Server: "provider", Tool: "charge",
	Key: "order-1", Args: []byte(`{"amount":12,"customer":{"id":"c1"}}`),
}

func charges() ProberConfig {
	key := verify.Check{Pointer: "/structuredContent/key", Field: "key"}
	found := func(s string) verify.Check {
		return verify.Check{Pointer: "/structuredContent/found", Equals: &s}
	}
	return ProberConfig{
		AskServer: "provider", AskTool: "find", Patience: soon,
		Arguments: map[string]string{"reference": "key", "customer": "/customer/id", "limit": "=1", "note": "/note?"},
		Ran:       []Rule{{Checks: []verify.Check{key, found("true")}}},
		NotRan:    []Rule{{Checks: []verify.Check{key, found("false")}}},
		Reply:     Reply{Result: "/structuredContent/response"},
	}
}

func mustProber(t *testing.T, c ProberConfig, d runtime.Dispatcher) runtime.Prober {
	t.Helper()
	b, err := NewProber(c, d)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestLostAcknowledgement: the charge runs and its answer is lost. The probe finds it, although it shows
// late, and although the server answers a repeated key from memory.
func TestLostAcknowledgement(t *testing.T) {
	p, server := start(t)
	if got, err := mustProber(t, charges(), server).Probe(t.Context(), call); got.Answer != ledger.ProbeNotRan || got.Fenced || err != nil {
		t.Fatalf("before: got %+v, %v", got, err)
	}
	p.set(0, 1)
	if r, err := server.Dispatch(t.Context(), call); err == nil || errors.Is(err, runtime.ErrNotSent) {
		t.Fatalf("the acknowledgement arrived: %+v, %v", r, err)
	}
	p.set(3, 0)
	c := charges()
	c.Patience = settling(4)
	got, err := mustProber(t, c, server).Probe(t.Context(), call)
	if err != nil || got.Answer != ledger.ProbeRan || string(got.Reply.Result) != `{"amount":12}` || got.Reply.Status != tga.StatusSuccess {
		t.Errorf("got %+v, %v", got, err)
	}
	p.mu.Lock()
	charged := len(p.charges)
	p.mu.Unlock()
	if _, args := p.questions(); charged != 1 || len(args) != 4 || args[0] != `{"customer":"c1","limit":1,"reference":"order-1"}` {
		t.Errorf("%d charges, questions %q", charged, args)
	}
}

func TestQuestionHasAKeyOfItsOwn(t *testing.T) {
	p, server := start(t)
	c := charges()
	c.Patience = settling(3)
	if _, err := mustProber(t, c, server).Probe(t.Context(), call); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{"": true, call.Key: true}
	keys, _ := p.questions()
	for _, key := range keys {
		if seen[key] {
			t.Errorf("questions carried %q", keys)
		}
		seen[key] = true
	}
	if len(keys) != 3 {
		t.Errorf("%d questions", len(keys))
	}
}

// canned is a tool that always gives the same answer.
func canned(r runtime.Reply, err error) runtime.Dispatcher {
	return runtime.DispatcherFunc(func(context.Context, runtime.Call) (runtime.Reply, error) { return r, err })
}

func TestAnswers(t *testing.T) {
	const ran, not, unknown = ledger.ProbeRan, ledger.ProbeNotRan, ledger.ProbeUnknown
	result := func(text string) runtime.Reply {
		return runtime.Reply{Status: tga.StatusSuccess, Result: []byte(`{"content":[],"structuredContent":` + text + `}`)}
	}
	c := charges()
	c.NotRan = append(c.NotRan, Rule{Failed: true, Checks: []verify.Check{{Pointer: "/message", Contains: "no such"}}})
	c.Reply.Failure = []Rule{{Checks: []verify.Check{{Pointer: "/structuredContent/state", Equals: ptr("failed")}}}}
	for name, test := range map[string]struct {
		tool   runtime.Dispatcher
		want   ledger.ProbeAnswer
		status string
		failed bool
	}{
		"ran":                           {canned(result(`{"key":"order-1","found":true,"response":{}}`), nil), ran, tga.StatusSuccess, false},
		"ran and failed":                {canned(result(`{"key":"order-1","found":true,"response":{},"state":"failed"}`), nil), ran, tga.StatusFailure, false},
		"did not run":                   {canned(result(`{"key":"order-1","found":false}`), nil), not, "", false},
		"of another key":                {canned(result(`{"key":"order-2","found":false}`), nil), unknown, "", false},
		"found twice":                   {canned(result(`{"key":"order-1","found":true,"found":false,"response":{}}`), nil), unknown, "", false},
		"nothing to record":             {canned(result(`{"key":"order-1","found":true}`), nil), unknown, "", false},
		"an error that says so":         {canned(runtime.Reply{Status: tga.StatusFailure, Result: []byte(`{"code":1,"message":"no such call"}`)}, nil), not, "", false},
		"an error that does not":        {canned(runtime.Reply{Status: tga.StatusFailure, Result: []byte(`{"code":1,"message":"trouble"}`)}, nil), unknown, "", false},
		"an error with an answer in it": {canned(runtime.Reply{Status: tga.StatusFailure, Result: []byte(`{"structuredContent":{"key":"order-1","found":false}}`)}, nil), unknown, "", false},
		"a result with an error in it":  {canned(runtime.Reply{Status: tga.StatusSuccess, Result: []byte(`{"message":"no such call"}`)}, nil), unknown, "", false},
		"refused":                       {canned(runtime.Reply{Status: tga.StatusDenied, Result: []byte(`{"message":"no such call"}`)}, nil), unknown, "", false},
		"truncated":                     {canned(runtime.Reply{Status: tga.StatusError, Truncated: true, ResultBytes: 1 << 30}, nil), unknown, "", false},
		"no JSON":                       {canned(runtime.Reply{Status: tga.StatusSuccess, Result: []byte("hello")}, nil), unknown, "", false},
		"not sent":                      {canned(runtime.Reply{}, fmt.Errorf("%w: dial", runtime.ErrNotSent)), unknown, "", true},
		"doubt":                         {canned(result(`{"key":"order-1","found":false}`), errors.New("reset")), unknown, "", true},
	} {
		got, err := mustProber(t, c, test.tool).Probe(t.Context(), call)
		if got.Answer != test.want || got.Reply.Status != test.status || (err != nil) != test.failed || got.Fenced || !json.Valid(got.Evidence.Detail) {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
	}
	c.Fences = true
	got, err := mustProber(t, c, canned(result(`{"key":"order-1","found":false}`), nil)).Probe(t.Context(), call)
	if got.Answer != not || !got.Fenced || err != nil {
		t.Errorf("got %+v, %v", got, err)
	}
}

// TestErrorIsNotThere: an error of the tool whose text looks like a result.
func TestErrorIsNotThere(t *testing.T) {
	answer := []byte(`{"isError":true,"content":[],"structuredContent":{"id":"1","version":7}}`)
	for status, want := range map[string]runtime.Finding{tga.StatusSuccess: runtime.Exists, tga.StatusFailure: runtime.CannotTell} {
		tool := canned(runtime.Reply{Status: status, Result: answer}, nil)
		f, _, err := mustNew(t, tickets(AnswerResult), tool).Verify(t.Context(), tga.StateChange{ResourceID: "1", Version: "7"})
		if f != want || err != nil {
			t.Errorf("%s: got %v, %v", status, f, err)
		}
	}
}

func TestTimeOutAndCancel(t *testing.T) {
	_, server := start(t)
	c := charges()
	c.AskTool, c.Timeout, c.Tries = "hang", 100*time.Millisecond, 1
	if got, err := mustProber(t, c, server).Probe(t.Context(), call); got.Answer != ledger.ProbeUnknown || err == nil {
		t.Errorf("got %+v, %v", got, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	c.Timeout = time.Minute
	if got, err := mustProber(t, c, server).Probe(ctx, call); got.Answer != ledger.ProbeUnknown || err == nil || ctx.Err() == nil {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestConfigIsChecked(t *testing.T) {
	tool := canned(runtime.Reply{}, nil)
	for _, test := range []struct {
		change func(*Config)
		tool   runtime.Dispatcher
		key    string
	}{
		{func(*Config) {}, tool, ""},
		{func(*Config) {}, nil, "server"},
		{func(c *Config) { c.Tool = "" }, tool, "tool"},
		{func(c *Config) { c.Answer = "json" }, tool, "answer"},
		{func(c *Config) { c.Arguments = map[string]string{"x": "key"} }, tool, "arguments.x"},
		{func(c *Config) { c.Checks = nil }, tool, "check"},
		{func(c *Config) { c.Checks = []verify.Check{{Field: "/x"}} }, tool, "check.0.field"},
		{func(c *Config) { c.Gone = []Rule{{Failed: true}} }, tool, "gone.0"},
		{func(c *Config) { c.Gone[0].Checks[0].Pointer = "x" }, tool, "gone.0.check.0.pointer"},
		{func(c *Config) { c.Ignore = []string{"x"} }, tool, "ignore"},
		{func(c *Config) { c.Settle = -1 }, tool, "settle"},
	} {
		c := tickets(AnswerResult)
		test.change(&c)
		v, err := New(c, test.tool)
		wantKey(t, v != nil, err, test.key)
	}
	for _, test := range []struct {
		change func(*ProberConfig)
		tool   runtime.Dispatcher
		key    string
	}{
		{func(*ProberConfig) {}, tool, ""},
		{func(*ProberConfig) {}, nil, "server"},
		{func(c *ProberConfig) { c.AskTool = "" }, tool, "ask_tool"},
		{func(c *ProberConfig) { c.Answer = "json" }, tool, "answer"},
		{func(c *ProberConfig) { c.Arguments = nil }, tool, "arguments"},
		{func(c *ProberConfig) { c.Arguments = map[string]string{"x": "tool"} }, tool, "arguments"},
		{func(c *ProberConfig) { c.Arguments["x"] = "version" }, tool, "arguments.x"},
		{func(c *ProberConfig) { c.Ran, c.NotRan = nil, nil }, tool, "ran"},
		{func(c *ProberConfig) { c.NotRan = []Rule{{}} }, tool, "not_ran.0"},
		{func(c *ProberConfig) { c.Reply.Failure = []Rule{{}} }, tool, "reply.failure.0"},
		{func(c *ProberConfig) { c.Reply.Result = "x" }, tool, "reply.result"},
		{func(c *ProberConfig) { c.Tries = -1 }, tool, "tries"},
	} {
		c := charges()
		test.change(&c)
		b, err := NewProber(c, test.tool)
		wantKey(t, b != nil, err, test.key)
	}
}

func wantKey(t *testing.T, made bool, err error, key string) {
	t.Helper()
	if (err == nil) != (key == "") || made != (err == nil) || err != nil && (!errors.Is(err, tga.ValidationError) || !strings.Contains(err.Error(), " "+key+": ")) {
		t.Errorf("got %v, want an error about %q", err, key)
	}
}

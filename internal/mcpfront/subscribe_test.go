package mcpfront

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tgad/tgad/internal/mcpfront/attempt"
	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpfront/fronttest"
	"github.com/tgad/tgad/internal/mcpfront/owntask"
	"github.com/tgad/tgad/internal/mcpfront/say"
	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

func listenFor(id, filter, meta string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"subscriptions/listen","params":{"notifications":%s,"_meta":%s}}`, id, filter, meta)
}

const subMeta = `"_meta":{"io.modelcontextprotocol/subscriptionId":`

// TestSubscriptionPasses: a subscription passes in both directions byte for byte, and survives the end
// of the tool server. The next tool server is asked for what the client was promised, and the client
// gets no second acknowledgement.
func TestSubscriptionPasses(t *testing.T) {
	w := newWorld(t)
	h := w.start()
	h.Handshake()
	h.Write(listenFor(`"s\u0031"`, `{"toolsListChanged":true,"x":9007199254740993}`, fronttest.ModernMeta))
	if got, want := h.ReadLine(), `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{`+subMeta+`"s\u0031"},"notifications":{"toolsListChanged":true,"x":9007199254740993}}}`; got != want {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
	changed := `{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{` + subMeta + `"s\u0031"},"n":9007199254740993}}`
	grow := func() {
		h.Said = nil
		h.Ask("1", "grow", `{}`)
		if len(h.Said) != 1 || h.Said[0] != changed {
			t.Fatalf("heard %q\nwant  %s", h.Said, changed)
		}
	}
	grow()
	fronttest.Has(t, h.Ask("2", "die", `{}`), `"error"`)
	fronttest.Eventually(t, "the subscription at the next tool server", func() bool {
		h.Said = nil
		got := h.Ask("3", "grow", `{}`)
		for _, line := range h.Said {
			fronttest.Lacks(t, line, "acknowledged")
		}
		return strings.Contains(got, "result") && len(h.Said) == 1 && h.Said[0] == changed
	})
	h.Said = nil
	h.Write(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"s\u0031"}}`)
	fronttest.Has(t, h.Ask("4", "echo", `{}`), "result")
	for _, line := range h.Said {
		fronttest.Lacks(t, line, "acknowledged")
	}
	fronttest.Has(t, h.Ask("5", "die", `{}`), `"error"`)
	h.Said = nil
	fronttest.Eventually(t, "the next tool server", func() bool { return strings.Contains(h.Ask("6", "echo", `{}`), "result") })
	fronttest.Has(t, h.Ask("7", "grow", `{}`), "result")
	for _, line := range h.Said {
		fronttest.Lacks(t, line, `"s\u0031"`) // this subscription is not requested again
	}
}

// TestSubscriptionDoesNotHoldTheEnd: when a client closes its end, the shim waits for its requests but
// not for its subscriptions.
func TestSubscriptionDoesNotHoldTheEnd(t *testing.T) {
	w := newWorld(t)
	w.opts.Command = []string{"none"}
	s, err := New(w.options())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c := s.newConv(discard{}, nil)
	defer c.end()
	request := &waiting{id: []byte("2")}
	for _, one := range []*waiting{{id: []byte("1"), sub: &subscription{}}, request} {
		if err := c.register(one); err != nil {
			t.Fatal(err)
		}
	}
	if n := c.Underway(); n != 1 {
		t.Errorf("%d requests are waited for, want the one that is no subscription", n)
	}
	c.unregister(request)
	if n := c.Underway(); n != 0 {
		t.Errorf("%d are waited for: a subscription is", n)
	}
}

// TestSubscriptionOverHTTPThatBreaks: the stream is requested again until the client gives it up, which
// closes the stream.
func TestSubscriptionOverHTTPThatBreaks(t *testing.T) {
	srv := newStrict(t)
	srv.handle[say.Listen] = func(e *exchanged) {
		meta := fmt.Sprintf(`{"io.modelcontextprotocol/subscriptionId":%s}`, e.id)
		ack := func() {
			e.event(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["file:///é"]},"_meta":` + meta + `}}`)
		}
		switch e.n {
		case 1:
			ack() // then the stream breaks
		case 2:
			e.w.WriteHeader(http.StatusServiceUnavailable)
		default:
			ack()
			e.event(`{"jsonrpc":"2.0","method":"notifications/prompts/list_changed","params":{"_meta":` + meta + `}}`)
			<-e.r.Context().Done()
		}
	}
	w := newWorld(t)
	h := w.at(srv.URL)
	h.Write(listenFor("1", `{"toolsListChanged":true}`, fronttest.ModernMeta))
	fronttest.Has(t, h.ReadLine(), "acknowledged")
	// First the changes that may have happened during the break, then the tool server's notification.
	for _, want := range []string{
		`"notifications/tools/list_changed","params":{` + subMeta + `1}}}`,
		`"notifications/resources/updated","params":{` + subMeta + `1},"uri":"file:///é"}}`,
		"prompts/list_changed",
	} {
		fronttest.Has(t, h.ReadLine(), want)
	}
	h.Write(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	fronttest.Eventually(t, "the end of the stream", func() bool {
		srv.mu.Lock()
		defer srv.mu.Unlock()
		return len(srv.ended) == 1
	})
	// A subscription that was never acknowledged gets the tool server's refusal.
	srv.change(func() { delete(srv.handle, say.Listen) })
	h.Write(listenFor("2", `{"toolsListChanged":true}`, fronttest.ModernMeta))
	fronttest.Has(t, h.Answer("2"), `"code":-32601`)
	if n := srv.count(say.Listen); n != 4 {
		t.Errorf("asked %d times", n)
	}
}

// TestSubscribersOverHTTP: two official clients share one shim before an official server over HTTP, and
// use the same ids.
func TestSubscribersOverHTTP(t *testing.T) {
	server := mcp.NewServer(&mcp.Implementation{Name: "sdk", Version: "1"}, nil)
	add := func(name string) {
		server.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: name}}}, nil
		})
	}
	add("charge")
	srv := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: true}))
	t.Cleanup(srv.Close)
	w := newWorld(t)
	w.opts.URL, w.opts.Command = srv.URL, nil
	url := w.listening()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	said := make(chan int, 16)
	var sessions []*mcp.ClientSession
	for i := range 2 {
		client := mcp.NewClient(&mcp.Implementation{Name: "t", Version: "1"}, &mcp.ClientOptions{
			ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { said <- i },
		})
		s, err := client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: url, MaxRetries: -1}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if v := s.InitializeResult().ProtocolVersion; v != "2026-07-28" {
			t.Fatalf("revision %s", v)
		}
		sessions = append(sessions, s)
		res, err := s.CallTool(ctx, &mcp.CallToolParams{Name: "charge", Arguments: map[string]any{"i": i}})
		if err != nil || res.IsError {
			t.Fatalf("%+v, %v", res, err)
		}
	}
	fronttest.Eventually(t, "both to hear", func() bool {
		add(fmt.Sprint("grown", time.Now().UnixNano()))
		heard := map[int]bool{}
		for deadline := time.After(300 * time.Millisecond); len(heard) < 2; {
			select {
			case i := <-said:
				heard[i] = true
			case <-deadline:
				return false
			}
		}
		return true
	})
	for _, s := range sessions {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestSubscriptionsOfClientsThatShare: each client gets its own notifications, with its own id. A client
// that closes its stream gives its subscription up.
func TestSubscriptionsOfClientsThatShare(t *testing.T) {
	w := newWorld(t)
	url := w.listening()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var bodies []*bufio.Reader
	for i := range 2 {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(listenFor("1", fmt.Sprintf(`{"n":%d,"toolsListChanged":true}`, i), fronttest.ModernMeta)))
		if err != nil {
			t.Fatal(err)
		}
		mcpraw.Mirror(req.Header, "2026-07-28", say.Listen, "", nil)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if kind := resp.Header.Get("Content-Type"); kind != "text/event-stream" {
			t.Errorf("type %q", kind)
		}
		bodies = append(bodies, bufio.NewReader(resp.Body))
	}
	event := func(i int) string {
		t.Helper()
		for {
			line, err := fronttest.ReadWithin(bodies[i], 10*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			if data, ok := strings.CutPrefix(line, "data: "); ok {
				return data
			}
		}
	}
	for i := range bodies {
		fronttest.Has(t, event(i), "acknowledged", subMeta+"1}", fmt.Sprintf(`"n":%d`, i))
	}
	post := func(method string) {
		t.Helper()
		resp, err := http.Post(url, "application/json", strings.NewReader(`{"jsonrpc":"2.0","id":1000,"method":"`+method+`","params":{}}`))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
	}
	post("grow") // the tool server notifies the newest subscription only
	fronttest.Has(t, event(1), "tools/list_changed", subMeta+"1}")
	cancel()
	fronttest.Eventually(t, "the end of the subscription", func() bool {
		raw, err := os.ReadFile(w.Journal + ".cancelled")
		return err == nil && len(raw) > 0
	})
}

// taskNote reads the next notification about a task.
func (h *shim) taskNote(sub, id, status string) string {
	h.T.Helper()
	line := h.ReadLine()
	// A notification may also come for a change that changes no answer, for example when the call is sent.
	for status == "completed" && strings.Contains(line, `"status":"working"`) {
		line = h.ReadLine()
	}
	fronttest.Has(h.T, line, `"method":"notifications/tasks","params":{`+subMeta+sub+`},"taskId":"`+id+`"`, `"status":"`+status+`"`, `"createdAt":"`, `"ttlMs":`)
	fronttest.Lacks(h.T, line, "resultType\":\"task", `"resultType":"complete","taskId"`)
	return line
}

// TestOwnTaskTellsItsSubscriber: a subscriber gets the same status as an answer to a question, first and
// at each change. The notification of the end delivers the answer.
func TestOwnTaskTellsItsSubscriber(t *testing.T) {
	w := newWorld(t)
	h := w.start()
	h.Handshake()
	path, arg, open := w.gate()
	id := taskID(t, h.Call("1", "charge", arg, tasksMeta))
	none := owntask.Prefix + attempt.NewID().String()
	h.Write(listenFor(`"l"`, `{"taskIds":["`+none+`","`+id+`"]}`, tasksMeta))
	if got, want := h.ReadLine(), `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{`+subMeta+`"l"},"notifications":{"taskIds":["`+id+`"]}}}`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	h.taskNote(`"l"`, id, "working")
	open()
	done := h.taskNote(`"l"`, id, "completed")
	fronttest.Has(t, done, `"result":{"content":[{"type":"text","text":"ok"}]`, `9007199254740993,"one":1.0`)
	// The answer was delivered, so the same call is a new call.
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	fronttest.Eventually(t, "another task", func() bool {
		next := taskID(t, h.Call("2", "charge", arg, tasksMeta))
		return next != id
	})
	open()
	fronttest.Eventually(t, "the second effect", func() bool { return len(w.Effects()) == 2 })
	// A later subscriber is told that the task is over, by the next shim too.
	_ = h.Stop()
	h = w.start()
	h.Handshake()
	h.Write(listenFor("3", `{"taskIds":["`+id+`"]}`, tasksMeta))
	fronttest.Has(t, h.ReadLine(), "acknowledged")
	fronttest.Has(t, h.taskNote("3", id, "completed"), `"dev.tgad/replayed":true`)
	h.Write(listenFor("4", `{"taskIds":["`+id+`"]}`, fronttest.ModernMeta))
	fronttest.Has(t, h.Answer("4"), `"code":-32021`, `"requiredCapabilities"`)
	if n := len(w.Effects()); n != 2 {
		t.Errorf("%d effects", n)
	}
}

// TestOwnTaskTellsOfApprovals: a subscriber is told what the task waits for, and after a restart the outcome.
func TestOwnTaskTellsOfApprovals(t *testing.T) {
	w := peopleWorld(t)
	h := w.start()
	h.Handshake()
	_, arg, open := w.gate()
	id := taskID(t, h.Call("1", "charge", arg, tasksMeta))
	for i := range 2 {
		h.Write(listenFor("7", `{"taskIds":["`+id+`"]}`, tasksMeta))
		fronttest.Has(t, h.ReadLine(), "acknowledged")
		fronttest.Eventually(t, "what it waits for", func() bool { return strings.Contains(h.taskNote("7", id, "working"), "tgad approve") })
		if i == 0 {
			_ = h.Stop()
			h = w.start()
			h.Handshake()
		}
	}
	if _, err := w.RT.Decide(t.Context(), w.waiting()[0].TraceID, runtime.Vote{Who: "boss", Approve: true, Rationale: "seen the invoice"}); err != nil {
		t.Log("decide:", err)
	}
	fronttest.Eventually(t, "what it waits for then", func() bool { return strings.Contains(h.taskNote("7", id, "working"), "waiting for the tool server") })
	open()
	fronttest.Eventually(t, "the end", func() bool {
		line := h.ReadLine()
		fronttest.Has(t, line, "notifications/tasks")
		return strings.Contains(line, `"status":"completed"`) && strings.Contains(line, `"text":"ok"`)
	})
	if n := len(w.Effects()); n != 1 {
		t.Errorf("%d effects", n)
	}
}

// TestOwnTasksBesideTheServersSubscriptions: one request asks for both. The tool server does not see the
// shim's tasks. A client that gives the request up gets no more notifications.
func TestOwnTasksBesideTheServersSubscriptions(t *testing.T) {
	w := peopleWorld(t)
	h := w.start()
	h.Handshake()
	id := taskID(t, h.Call("1", "charge", `{"a":1}`, tasksMeta))
	h.Write(listenFor("5", `{"taskIds":["theirs","`+id+`"],"toolsListChanged":true}`, tasksMeta))
	fronttest.Has(t, h.ReadLine(), `"notifications":{"taskIds":["theirs","`+id+`"],"toolsListChanged":true}`)
	fronttest.Eventually(t, "what it waits for", func() bool { return strings.Contains(h.taskNote("5", id, "working"), "tgad approve") })
	h.Said = nil
	h.Ask("2", "grow", `{}`)
	if len(h.Said) != 1 || !strings.Contains(h.Said[0], "tools/list_changed") {
		t.Errorf("heard %q", h.Said)
	}
	h.Write(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}`)
	fronttest.Has(t, h.Answer("5"), `"resultType":"complete"`) // the tool server's own answer
	h.Said = nil
	if _, err := w.RT.Decide(t.Context(), w.waiting()[0].TraceID, runtime.Vote{Who: "boss", Approve: true, Rationale: "seen the invoice"}); err != nil {
		t.Log("decide:", err)
	}
	h.comesTo(id, "completed")
	for _, line := range h.Said {
		fronttest.Lacks(t, line, "notifications/tasks"+`"`)
	}
	h.Write(listenFor("8", `{"taskIds":["theirs","`+id+`"]}`, tasksMeta))
	fronttest.Has(t, h.ReadLine(), `"notifications":{"taskIds":["theirs","`+id+`"]}`)
	h.taskNote("8", id, "completed")
	// The shim answers a subscription that asks only for its own tasks.
	h.Write(listenFor("6", `{"taskIds":["`+id+`"],"toolsListChanged":false,"resourceSubscriptions":[]}`, tasksMeta))
	fronttest.Has(t, h.ReadLine(), `"notifications":{"taskIds":["`+id+`"]}`)
	h.taskNote("6", id, "completed")
	h.Write(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":6}}`)
	fronttest.Has(t, h.Ask("6", "echo", `{}`), "result") // the id can be used again
}

func TestAcknowledgementsWithTasks(t *testing.T) {
	id := attempt.NewID()
	name := `"` + owntask.Prefix + id.String() + `"`
	for notifications, want := range map[string]string{
		`{}`:                  `{"taskIds":[` + name + `]}`,
		`{"a":1}`:             `{"taskIds":[` + name + `],"a":1}`,
		`{"taskIds":[]}`:      `{"taskIds":[` + name + `]}`,
		`{"taskIds":[ "x" ]}`: `{"taskIds":[ "x" ,` + name + `]}`,
	} {
		f := frames.NewFrame([]byte(`{"jsonrpc":"2.0","method":"m","params":{"notifications":` + notifications + `}}`))
		got := owntask.Granted(f, []tga.ID{id})
		if s := string(mcpraw.At(got.Head[got.Params.From:got.Params.To], "/notifications")); s != want || got.Bad != "" {
			t.Errorf("%s: got %s, want %s", notifications, s, want)
		}
	}
}

// TestHeadersAreThoseOfTheBody: a request of 2026-07-28 whose headers differ from its body is refused
// and does nothing.
func TestHeadersAreThoseOfTheBody(t *testing.T) {
	w := newWorld(t)
	url := w.listening()
	post := func(version, method, name string) (int, string) {
		t.Helper()
		req, err := http.NewRequest(http.MethodPost, url, strings.NewReader(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"charge é","arguments":{},"_meta":`+fronttest.ModernMeta+`}}`))
		if err != nil {
			t.Fatal(err)
		}
		for k, v := range map[string]string{"Mcp-Protocol-Version": version, "Mcp-Method": method, "Mcp-Name": name} {
			if v != "" {
				req.Header.Set(k, v)
			}
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
	const name = "=?base64?Y2hhcmdlIMOp?="
	for _, bad := range [][3]string{
		{"", "tools/call", name}, {"2025-11-25", "tools/call", name}, {"2026-07-28", "", name}, {"2026-07-28", "tools/list", name},
		{"2026-07-28", "tools/call", ""}, {"2026-07-28", "tools/call", "charge"}, {"2026-07-28", "tools/call", "=?base64?!?="},
	} {
		if status, got := post(bad[0], bad[1], bad[2]); status != 400 || !strings.Contains(got, `"id":7,"error":{"code":-32020`) {
			t.Errorf("%v: %d %s", bad, status, got)
		}
	}
	if n := len(w.Effects()); n != 0 {
		t.Fatalf("%d effects", n)
	}
	if status, got := post("2026-07-28", "tools/call", name); status != 200 || strings.Contains(got, "-32020") {
		t.Errorf("%d %s", status, got)
	}
}

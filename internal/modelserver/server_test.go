package modelserver

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func start(t *testing.T, o Options) *Server {
	t.Helper()
	s, err := Start(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func stop(t *testing.T, s *Server) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// ask posts a chat and returns the status and the body; status 0 = there was no answer.
func ask(t *testing.T, s *Server, path, key, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, s.URL()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Anthropic-Version", "2023-06-01")
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		return 0, ""
	}
	defer resp.Body.Close()
	out, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, ""
	}
	return resp.StatusCode, string(out)
}

const (
	chat     = `{"model":"m","messages":[{"role":"user","content":"a"}]}`
	longer   = `{"model":"m","messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"}]}`
	messages = `{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"a"}]}`
)

// TestCountsOutliveTheServer: the counts by which a killed client is judged are on disk before it is
// answered, and the next server continues them.
func TestCountsOutliveTheServer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	o := Options{Journal: path, Script: []Answer{{Text: "one"}, {Status: 500, Code: "api_error"}, {Text: "two", Cut: 1}, {Text: "three"}}}
	s := start(t, o)
	if code, body := ask(t, s, "/chat/completions", "k1", chat); code != 200 || !strings.Contains(body, "one") {
		t.Fatalf("%d %s", code, body)
	}
	ask(t, s, "/messages", "k2", messages)
	if code, _ := ask(t, s, "/chat/completions", "k3", chat); code != 0 {
		t.Errorf("an answer that was to be cut came whole: %d", code)
	}
	ask(t, s, "/chat/completions", "k3", `{`)
	want := Counts{Requests: 4, Asked: 3, Failed: 1, Refused: 1, Answered: 2, ByKey: map[string]int{"k1": 1, "k2": 1, "k3": 1}}
	check := func(c Counts, err error) {
		t.Helper()
		if err != nil || c.Requests != want.Requests || c.Asked != want.Asked || c.Failed != want.Failed || c.Refused != want.Refused ||
			c.Answered != want.Answered || c.Repeated != want.Repeated || len(c.ByKey) != len(want.ByKey) || c.ByKey["k3"] != want.ByKey["k3"] {
			t.Errorf("got %+v, %v, want %+v", c, err, want)
		}
	}
	stop(t, s)
	check(readCounts(path))

	// The next writer cuts off a line that was never synced.
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"op":"asked","n":9,"key":"a torn line that is longer than those which the next writer puts in its place, all of them together: ` + strings.Repeat("x", 1000)); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	check(readCounts(path))
	s = start(t, o)
	check(s.Counts(), nil)
	if code, body := ask(t, s, "/chat/completions", "k3", chat); code != 200 || !strings.Contains(body, "three") {
		t.Errorf("it does not go on where it was: %d %s", code, body)
	}
	want.Requests, want.Asked, want.Answered, want.ByKey["k3"] = 5, 4, 3, 2
	stop(t, s)
	check(s.Counts(), nil)
	check(readCounts(path))

	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if lines := bytes.Count(raw, []byte("\n")); lines != 8 || !bytes.HasSuffix(raw, []byte("}\n")) {
		t.Errorf("the torn line is still there:\n%s", raw)
	}

	// Any other line that cannot be read is an error.
	if err := os.WriteFile(path, bytes.Replace(raw, []byte(`{"op"`), []byte(`{"OP?"`), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err := Start(o); err == nil {
		stop(t, s)
		t.Error("a damaged journal was taken")
	}
}

func TestDeduplication(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	o := Options{Journal: path, Deduplicate: true, Script: []Answer{{Status: 503}, {Text: "first"}, {Text: "second"}}}
	s := start(t, o)
	for i, want := range []string{"error", "first", "first"} {
		if _, body := ask(t, s, "/chat/completions", "k", chat); !strings.Contains(body, want) {
			t.Errorf("request %d: %s", i, body)
		}
	}
	stop(t, s)
	s = start(t, o)
	defer stop(t, s)
	if _, body := ask(t, s, "/messages", "k", messages); !strings.Contains(body, "first") {
		t.Error(body)
	}
	if _, body := ask(t, s, "/messages", "", messages); !strings.Contains(body, "second") {
		t.Error(body)
	}
	if c := s.Counts(); c.Asked != 3 || c.Repeated != 2 || c.Failed != 1 || c.ByKey["k"] != 4 {
		t.Errorf("%+v", c)
	}
}

func TestAnswersByConversation(t *testing.T) {
	s := start(t, Options{ByConversation: true, Script: []Answer{{Text: "first"}, {Text: "second"}}})
	defer stop(t, s)
	for _, c := range []struct{ body, want string }{{longer, "second"}, {chat, "first"}, {chat, "first"}, {longer, "second"}} {
		if _, body := ask(t, s, "/chat/completions", "", c.body); !strings.Contains(body, c.want) {
			t.Errorf("%s: %s", c.body, body)
		}
	}
}

// TestRequestsThatProvidersRefuse: a mistake of an adapter must show here.
func TestRequestsThatProvidersRefuse(t *testing.T) {
	s := start(t, Options{ByConversation: true, Script: []Answer{{Text: "ok"}, {Text: "ok"}}})
	defer stop(t, s)
	call := `{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]}`
	use := `{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"f","input":{}}]}`
	result := `{"role":"user","content":[{"type":"tool_result","tool_use_id":"c"}]}`
	user := `{"role":"user","content":"x"}`
	openai := func(m ...string) string { return `{"model":"m","messages":[` + strings.Join(m, ",") + `]}` }
	anthropic := func(m ...string) string {
		return `{"model":"m","max_tokens":1,"messages":[` + strings.Join(m, ",") + `]}`
	}
	for _, c := range []struct {
		path, body string
		ok         bool
	}{
		{"/chat/completions", openai(user, call, `{"role":"tool","tool_call_id":"c","content":"y"}`), true},
		{"/chat/completions", openai(), false},
		{"/chat/completions", openai(user, call), false},
		{"/chat/completions", openai(user, call, user), false},
		{"/chat/completions", openai(user, `{"role":"tool","tool_call_id":"c","content":"y"}`), false},
		{"/chat/completions", openai(`{"role":"user","content":null}`), false},
		{"/chat/completions", openai(`{"role":"user","content":[{"type":"image"}]}`), false},
		{"/chat/completions", openai(`{"role":"tool_result","content":"x"}`), false},
		{"/chat/completions", openai(strings.Replace(user, `"x"`, `"x","tool_calls":[{"id":"c"}]`, 1)), false},
		{"/chat/completions", strings.Replace(openai(user), `"m",`, `"m","tools":[{"type":"function","function":{"name":"a.b","parameters":{}}}],`, 1), false},
		{"/messages", anthropic(user, use, result), true},
		{"/messages", anthropic(use, result), false},
		{"/messages", anthropic(user, use), false},
		{"/messages", anthropic(user, use, user), false},
		{"/messages", anthropic(user, result), false},
		{"/messages", anthropic(`{"role":"system","content":"x"}`), false},
		{"/messages", anthropic(`{"role":"user","content":""}`), false},
		{"/messages", anthropic(`{"role":"user","content":[]}`), false},
		{"/messages", strings.Replace(anthropic(user), `"max_tokens":1,`, "", 1), false},
		{"/messages", strings.Replace(anthropic(user), `"m",`, `"m","tools":[{"name":"f","input_schema":{}}],`, 1), false},
	} {
		code, body := ask(t, s, c.path, "", c.body)
		if c.ok != (code == 200) || !c.ok && (code != 400 || !strings.Contains(body, "invalid_request_error")) {
			t.Errorf("%s: %d %s", c.body, code, body)
		}
	}
}

func TestHoldAndClose(t *testing.T) {
	s := start(t, Options{Script: []Answer{{Text: "held", Hold: true}, {Text: "for ever", Hold: true}}})
	answered := make(chan string)
	go func() {
		_, body := ask(t, s, "/chat/completions", "", chat)
		answered <- body
	}()
	<-s.Held()
	if c := s.Counts(); c.Asked != 1 || c.Answered != 0 {
		t.Errorf("%+v", c)
	}
	s.Release()
	if body := <-answered; !strings.Contains(body, "held") {
		t.Error(body)
	}
	go func() {
		_, body := ask(t, s, "/chat/completions", "", chat)
		answered <- body
	}()
	<-s.Held()
	stop(t, s)
	if body := <-answered; body != "" {
		t.Errorf("an answer of a closed server: %s", body)
	}
	if _, err := ReadScript([]byte(`[{"text":"a"},{"tekst":"b"}]`)); err == nil {
		t.Error("a member that there is not was taken")
	}
	if a, err := ReadScript([]byte(`[{"text":"a"},{"status":429,"retry_after":"1"}]`)); err != nil || len(a) != 2 {
		t.Error(a, err)
	}
}

func readCounts(path string) (c Counts, err error) {
	records, _, err := readRecords(path)
	for _, r := range records {
		c.add(r)
	}
	return c, err
}

package model_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tgad/tgad/internal/modelserver"
	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/internal/turn/message"
	"github.com/tgad/tgad/internal/turn/model"
	"github.com/tgad/tgad/runtime"
)

func ptr[T any](v T) *T { return &v }

// conversation has one message of each kind.
func conversation() turn.Question {
	said := func(role message.Role, parts ...message.Part) message.Message {
		return message.Message{Role: role, Content: parts}
	}
	text := func(s string) message.Part { return message.Part{Type: message.Text, Text: s} }
	asks := said(message.Assistant, text("Let me see."))
	asks.ToolCalls = []message.ToolCall{{ID: "c1", Name: "files/read", Arguments: `{"path": "a<b"}`}, {ID: "c2", Name: "files_read", Arguments: "not json"}}
	answer := func(id string, failed bool, parts ...message.Part) message.Message {
		return message.Message{Role: message.Tool, ToolCallID: id, ToolError: failed, Content: parts}
	}
	return turn.Question{
		Model: "m", System: "Be terse.", Key: "turn/1/ask/1",
		Parameters: turn.Parameters{MaxTokens: ptr(int64(77)), Temperature: ptr(0.0), TopP: ptr(0.5), Stop: []string{"END"}, Seed: ptr(int64(4))},
		Tools: []turn.ToolDef{
			{Name: "files/read", Description: "reads", InputSchema: json.RawMessage(`{"type":"object","properties":{"path":{"type":"string"}}}`)},
			{Name: "files_read", Description: "reads too"},
			{Name: "open", InputSchema: json.RawMessage(`{"properties":{}}`)},
		},
		Messages: []message.Message{
			said(message.System, text("Summary of the conversation so far: none")),
			said(message.User, text("Look:"), message.Part{Type: message.Image, MIME: "image/png", Data: []byte{1, 2, 3}},
				message.Part{Type: message.Image, URI: "https://x.test/a.png"}, message.Part{Type: message.File, MIME: "application/pdf", Name: "a.pdf", Data: []byte("%PDF")},
				message.Part{Type: message.File, MIME: "text/csv", Name: "a.csv", Data: []byte("a,b")},
				message.Part{Type: message.File, Name: "logs", URI: "file:///var/log"}),
			asks,
			answer("c1", false, text("here"), message.Part{Type: message.Image, MIME: "image/png", Data: []byte{4}}),
			answer("c2", true, text("bad arguments")),
			said(message.User, text("Go on.")),
		},
	}
}

const wantOpenAI = `{"model":"m","messages":[
{"role":"system","content":"Be terse."},
{"role":"system","content":"Summary of the conversation so far: none"},
{"role":"user","content":[{"type":"text","text":"Look:"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AQID"}},
 {"type":"image_url","image_url":{"url":"https://x.test/a.png"}},{"type":"file","file":{"filename":"a.pdf","file_data":"data:application/pdf;base64,JVBERg=="}},
 {"type":"text","text":"[file a.csv text/csv]\na,b"},{"type":"text","text":"[file logs file:///var/log]"}]},
{"role":"assistant","content":"Let me see.","tool_calls":[{"id":"c1","type":"function","function":{"name":"files_read_2","arguments":"{\"path\": \"a<b\"}"}},
 {"id":"c2","type":"function","function":{"name":"files_read","arguments":"not json"}}]},
{"role":"tool","content":"here\n[image image/png] (shown below)","tool_call_id":"c1"},
{"role":"tool","content":"bad arguments","tool_call_id":"c2"},
{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,BA=="}}]},
{"role":"user","content":"Go on."}],
"tools":[{"type":"function","function":{"name":"files_read_2","description":"reads","parameters":{"type":"object","properties":{"path":{"type":"string"}}}}},
 {"type":"function","function":{"name":"files_read","description":"reads too","parameters":{"type":"object","properties":{}}}},
 {"type":"function","function":{"name":"open","parameters":{"properties":{},"type":"object"}}}],
"max_tokens":77,"temperature":0,"top_p":0.5,"stop":["END"],"seed":4}`

const wantAnthropic = `{"model":"m","max_tokens":77,
"system":[{"type":"text","text":"Be terse."},{"type":"text","text":"Summary of the conversation so far: none"}],
"messages":[{"role":"user","content":[{"type":"text","text":"Look:"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AQID"}},
 {"type":"image","source":{"type":"url","url":"https://x.test/a.png"}},{"type":"document","title":"a.pdf","source":{"type":"base64","media_type":"application/pdf","data":"JVBERg=="}},
 {"type":"document","title":"a.csv","source":{"type":"text","media_type":"text/plain","data":"a,b"}},{"type":"text","text":"[file logs file:///var/log]"}]},
{"role":"assistant","content":[{"type":"text","text":"Let me see."},{"type":"tool_use","id":"c1","name":"files_read_2","input":{"path":"a<b"}},
 {"type":"tool_use","id":"c2","name":"files_read","input":{"invalid_arguments":"not json"}}]},
{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":[{"type":"text","text":"here"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"BA=="}}]},
 {"type":"tool_result","tool_use_id":"c2","content":[{"type":"text","text":"bad arguments"}],"is_error":true},{"type":"text","text":"Go on."}]}],
"tools":[{"name":"files_read_2","description":"reads","input_schema":{"type":"object","properties":{"path":{"type":"string"}}}},
 {"name":"files_read","description":"reads too","input_schema":{"type":"object","properties":{}}},{"name":"open","input_schema":{"properties":{},"type":"object"}}],
"temperature":0,"top_p":0.5,"stop_sequences":["END"]}`

func TestRequestOnTheWire(t *testing.T) {
	each(t, func(t *testing.T, make func(*modelserver.Server, model.Options) turn.Model, stream bool) {
		s := script(t, modelserver.Answer{ToolCalls: []modelserver.ToolCall{{ID: "d", Name: "files_read_2", Arguments: "{}"}}})
		header := http.Header{"Idempotency-Key": {"mine"}, "X-Org": {"o"}, "Content-Type": {"text/plain"}}
		key := func() (string, error) { return "sk-1", nil }
		ctx := runtime.WithSpanContext(context.Background(), runtime.SpanContext{
			Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", Tracestate: "two\r\nlines", Baggage: "a=b",
		})
		a, err := make(s, model.Options{Header: header, Key: key}).Generate(ctx, conversation())
		if err != nil {
			t.Fatal(err)
		}
		if a.Said.ToolCalls[0].Name != "files/read" {
			t.Errorf("the tool's name came back as %q", a.Said.ToolCalls[0].Name)
		}
		want, headers := wantOpenAI, map[string]string{"Authorization": "Bearer sk-1", "X-Api-Key": "", "Anthropic-Version": ""}
		if strings.Contains(t.Name(), "anthropic") {
			want, headers = wantAnthropic, map[string]string{"Authorization": "", "X-Api-Key": "sk-1", "Anthropic-Version": "2023-06-01"}
		}
		for name, value := range map[string]string{"Idempotency-Key": "turn/1/ask/1", "X-Org": "o", "Content-Type": "application/json", "Accept-Encoding": "", "Cookie": "",
			"Traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "Tracestate": "", "Baggage": "a=b"} {
			headers[name] = value
		}
		got := s.Requests()[0]
		for name, value := range headers {
			if v := strings.Join(got.Header.Values(name), ","); v != value {
				t.Errorf("%s: %q, want %q", name, v, value)
			}
		}
		var g, w map[string]any
		if err := json.Unmarshal([]byte(want), &w); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(got.Body, &g); err != nil {
			t.Fatal(err)
		}
		if stream {
			w["stream"] = true
			if strings.Contains(t.Name(), "openai") {
				w["stream_options"] = map[string]any{"include_usage": true}
			}
		}
		if diff := cmp.Diff(w, g); diff != "" {
			t.Error(diff)
		}
		if header.Get("Idempotency-Key") != "mine" {
			t.Error("the configured header was changed")
		}
	})
}

// TestConversationsThatProvidersRefuseAreMended: the test's server is as strict as the providers.
func TestConversationsThatProvidersRefuseAreMended(t *testing.T) {
	empty := message.Message{Role: message.Assistant, Content: []message.Part{}}
	tool := message.Message{Role: message.Assistant, ToolCalls: []message.ToolCall{{ID: "c", Name: "a tool.with/" + strings.Repeat("x", 200), Arguments: " "}}}
	hello := message.TextMessage(message.Assistant, "hello", message.FromModel, 0)
	for name, messages := range map[string][]message.Message{
		"begins with the assistant":     {hello, user("x")},
		"an assistant who said nothing": {user("x"), empty, user("y")},
		"a tool that said nothing":      {user("x"), tool, {Role: message.Tool, ToolCallID: "c"}},
		"a tool that only failed":       {user("x"), tool, {Role: message.Tool, ToolCallID: "c", ToolError: true}},
		"a picture of the assistant's":  {user("x"), {Role: message.Assistant, Content: []message.Part{{Type: message.Image, MIME: "image/png", Data: []byte{1}}}}, user("y")},
		"a tool that sings":             {user("x"), tool, {Role: message.Tool, ToolCallID: "c", Content: []message.Part{{Type: message.File, MIME: "audio/wav", Data: []byte{1}}}}},
		"two users":                     {user("x"), user("y")},
	} {
		each(t, func(t *testing.T, make func(*modelserver.Server, model.Options) turn.Model, _ bool) {
			q := aQuestion()
			q.Messages = messages
			if _, err := make(script(t, modelserver.Answer{Text: "ok"}), model.Options{}).Generate(context.Background(), q); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}

// TestMaxTokensHasTheNameThatTheServerKnows dials a local server under OpenAI's own name.
func TestMaxTokensHasTheNameThatTheServerKnows(t *testing.T) {
	s := script(t, modelserver.Answer{Text: "x"})
	m, err := model.OpenAI(model.Options{BaseURL: "http://api.openai.com/v1", Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, strings.TrimSuffix(strings.TrimPrefix(s.URL(), "http://"), "/v1"))
	}})
	if err != nil {
		t.Fatal(err)
	}
	q := aQuestion()
	q.Parameters.MaxTokens = ptr(int64(5))
	if _, err := m.Generate(context.Background(), q); err != nil {
		t.Fatal(err)
	}
	if body := string(s.Requests()[0].Body); !strings.Contains(body, `"max_completion_tokens":5`) || strings.Contains(body, `"max_tokens"`) {
		t.Error(body)
	}
}

// TestOneRequestPerGenerate runs against a server that keeps connections open, reads the second
// request of a connection and then drops the connection. In this case Go's client sends a POST
// with an Idempotency-Key again, as the control shows.
func TestOneRequestPerGenerate(t *testing.T) {
	const answer = `{"type":"message","stop_reason":"end_turn","content":[],"choices":[{"message":{"content":"x"},"finish_reason":"stop"}]}`
	var requests atomic.Int32
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var open sync.WaitGroup
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		open.Wait()
	})
	open.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			open.Go(func() {
				defer c.Close()
				r := bufio.NewReader(c)
				for i := range 2 {
					req, err := http.ReadRequest(r)
					if err != nil {
						return
					}
					if _, err := io.Copy(io.Discard, req.Body); err != nil {
						return
					}
					requests.Add(1)
					if i == 0 {
						io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: "+strconv.Itoa(len(answer))+"\r\n\r\n"+answer)
					}
				}
			})
		}
	})
	url := "http://" + l.Addr().String()
	const calls = 5
	for _, make := range []func(model.Options) (turn.Model, error){model.OpenAI, model.Anthropic} {
		requests.Store(0)
		m, err := make(model.Options{BaseURL: url})
		if err != nil {
			t.Fatal(err)
		}
		for range calls {
			if _, err := m.Generate(context.Background(), aQuestion()); err != nil {
				t.Fatal(err)
			}
		}
		if n := requests.Load(); n != calls {
			t.Errorf("%d requests arrived for %d questions", n, calls)
		}
	}
	requests.Store(0)
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	for range calls {
		req, err := http.NewRequest(http.MethodPost, url, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Idempotency-Key", "k")
		resp, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	if n := requests.Load(); n <= calls {
		t.Errorf("%d requests arrived for %d: the server does not provoke the re-send, so the test above proves nothing", n, calls)
	}
}

// TestRedirectsAreNotFollowed: following one would be a second request, which would carry the
// key.
func TestRedirectsAreNotFollowed(t *testing.T) {
	s := script(t, modelserver.Answer{Status: 307, Body: "elsewhere", Location: "/v1/messages"}, modelserver.Answer{Text: "x"})
	m, err := model.Anthropic(model.Options{BaseURL: s.URL()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Generate(context.Background(), aQuestion()); !failure(t, err).Permanent || s.Counts().Requests != 1 {
		t.Errorf("got %v, %d requests", err, s.Counts().Requests)
	}
}

func TestTLSWithoutHTTP2(t *testing.T) {
	w := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 1 {
			t.Errorf("spoken: %s", r.Proto)
		}
		rw.Header().Set("Content-Type", "application/json")
		io.WriteString(rw, `{"choices":[{"message":{"content":"x"},"finish_reason":"stop"}]}`)
	}))
	w.EnableHTTP2 = true
	w.Config.ErrorLog = log.New(io.Discard, "", 0)
	w.StartTLS()
	defer w.Close()
	roots := x509.NewCertPool()
	roots.AddCert(w.Certificate())
	m, err := model.OpenAI(model.Options{BaseURL: w.URL, TLS: &tls.Config{RootCAs: roots, NextProtos: []string{"h2"}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Generate(context.Background(), aQuestion()); err != nil {
		t.Error(err)
	}
	if m, err = model.OpenAI(model.Options{BaseURL: w.URL}); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Generate(context.Background(), aQuestion()); err == nil {
		t.Error("an unknown authority was trusted")
	}
}

// TestWhatAnAPIHasOfItsOwn: the longest name of a tool, and the format of an answer. Both APIs
// are asked for a stream if the question has an OnDelta.
func TestWhatAnAPIHasOfItsOwn(t *testing.T) {
	each(t, func(t *testing.T, make func(*modelserver.Server, model.Options) turn.Model, stream bool) {
		longest, format := 64, message.FormatOpenAI
		if strings.Contains(t.Name(), "anthropic") {
			longest, format = 128, message.FormatAnthropic
		}
		for _, told := range []bool{false, true} {
			s := script(t, modelserver.Answer{Text: "hi"})
			q := aQuestion()
			q.Tools = []turn.ToolDef{{Name: strings.Repeat("n", 200)}}
			if told {
				q.OnDelta = func(string) {}
			}
			a, err := make(s, model.Options{}).Generate(context.Background(), q)
			if err != nil || a.Said.Metadata.OriginalFormat != format {
				t.Errorf("got %+v, %v", a, err)
			}
			body := string(s.Requests()[0].Body)
			if !strings.Contains(body, `"`+strings.Repeat("n", longest)+`"`) {
				t.Errorf("the tool has another name: %s", body)
			}
			if got := strings.Contains(body, `"stream":true`); got != (stream || told) {
				t.Errorf("asked for a stream: %v, told %v", got, told)
			}
		}
	})
}

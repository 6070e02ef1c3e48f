package agent

import (
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	trace "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/tgad/tgad/internal/agent/otlptest"
	"github.com/tgad/tgad/internal/assemble"
	"github.com/tgad/tgad/internal/modelserver"
	"github.com/tgad/tgad/internal/turn"
)

// host opens an agent whose model asks for a tool and then answers. telemetry is the address that
// the environment has for telemetry.
func host(t *testing.T, telemetry string, warn func(string)) *Host {
	t.Helper()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", telemetry)
	t.Setenv("OTEL_SERVICE_NAME", "desk")
	m, err := modelserver.Start(modelserver.Options{ByConversation: true, Script: []modelserver.Answer{
		{ToolCalls: []modelserver.ToolCall{{ID: "c1", Name: "look", Arguments: `{"at":"memory"}`}}, Input: 10, Output: 5},
		{Text: "seen", Input: 20, Output: 7},
	}})
	if err != nil {
		t.Fatal(err)
	}
	tool := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"there":true}`)
	}))
	t.Cleanup(func() {
		tool.Close()
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.yaml": "apiVersion: ossa/v0.2.9\nkind: Agent\nmetadata: {name: clerk, version: 1.2.0}\nspec:\n  role: r\n  llm: {provider: local, model: m1}\n  tools: [{type: http, server: desk, name: look}]\n",
		"tgad.toml": fmt.Sprintf("[[model]]\nprovider = \"local\"\ntype = \"openai\"\nurl = %q\n[[server]]\nid = \"desk\"\ntype = \"http\"\nurl = %q\n"+
			"[[tool]]\nserver = \"desk\"\nname = \"look\"\nclass = \"read\"\n[[rule]]\ndecision = \"APPROVE\"\nrationale = \"all calls are approved here\"\n", m.URL(), tool.URL),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	conf, err := assemble.Load(filepath.Join(dir, "tgad.toml"))
	if err != nil {
		t.Fatal(err)
	}
	h, err := Open(Options{Data: filepath.Join(dir, "data"), Config: conf, Manifests: []string{filepath.Join(dir, "a.yaml")}, Warn: warn})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

const caller = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// TestTurnsReachACollector: the collector gets the spans of two turns as a tree under the
// caller's span, with their attributes, and the metrics.
func TestTurnsReachACollector(t *testing.T) {
	c := otlptest.Start(false)
	defer c.Close()
	h := host(t, c.URL, func(text string) { t.Errorf("warned: %s", text) })
	res, err := h.Run(t.Context(), turn.Request{Agent: "clerk", SessionID: "s1", Message: []byte("look"), SpanContext: turn.SpanContext{Traceparent: caller}})
	if err != nil || res.Text != "seen" {
		t.Fatalf("%+v, %v", res, err)
	}
	if err := h.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if len(c.Bad()) > 0 {
		t.Error(c.Bad())
	}

	invoke, turns := c.Spans("ossa.agent.invoke"), c.Spans("ossa.agent.turn")
	chats, tools := c.Spans("gen_ai.chat"), c.Spans("ossa.tool.call")
	if len(invoke) != 1 || len(turns) != 2 || len(chats) != 2 || len(tools) != 1 || len(c.Spans("ossa.state.save")) != 2 {
		t.Fatalf("%d invocations, %d turns, %d chats, %d tools", len(invoke), len(turns), len(chats), len(tools))
	}
	if got := hex.EncodeToString(invoke[0].ParentSpanId); got != "b7ad6b7169203331" {
		t.Errorf("the invocation's parent is %s", got)
	}
	child := func(s, of otlptest.Span) {
		t.Helper()
		if string(s.ParentSpanId) != string(of.SpanId) || string(s.TraceId) != string(of.TraceId) || hex.EncodeToString(s.TraceId) != "0af7651916cd43dd8448eb211c80319c" {
			t.Errorf("%s is no child of %s in the caller's trace", s.Name, of.Name)
		}
	}
	child(turns[0], invoke[0])
	child(turns[1], invoke[0])
	child(chats[0], turns[0])
	child(tools[0], turns[0])
	child(chats[1], turns[1])
	for _, want := range []struct {
		span        otlptest.Span
		name, value string
	}{
		{invoke[0], "ossa.agent.name", "clerk"}, {invoke[0], "ossa.agent.version", "1.2.0"}, {invoke[0], "ossa.session.id", "s1"},
		{turns[0], "ossa.turn.number", "1"}, {turns[1], "ossa.turn.number", "2"}, {turns[1], "ossa.interaction.id", res.InteractionID.String()},
		{chats[0], "gen_ai.request.model", "m1"}, {chats[0], "gen_ai.usage.input_tokens", "10"}, {chats[1], "gen_ai.usage.output_tokens", "7"},
		{tools[0], "ossa.tool.name", "look"}, {tools[0], "ossa.tool.source", "http://desk/look"}, {tools[0], "tgad.trace_id", res.Effects[0].TraceID.String()},
	} {
		if got := want.span.Attr[want.name]; got != want.value {
			t.Errorf("%s: %s is %q, want %q", want.span.Name, want.name, got, want.value)
		}
	}
	for _, s := range [][]otlptest.Span{invoke, turns, chats, tools} {
		for _, s := range s {
			if s.Resource["service.name"] != "desk" || s.Status.GetCode() != trace.Status_STATUS_CODE_OK || s.EndTimeUnixNano < s.StartTimeUnixNano {
				t.Errorf("%s of %v: %v", s.Name, s.Resource, s.Status)
			}
		}
	}

	for name, want := range map[string]float64{
		"ossa.agent.invocations": 1, "ossa.agent.turns": 2, "ossa.tokens.input": 30, "ossa.tokens.output": 12, "ossa.tool.calls": 1,
	} {
		p := c.Points(name)
		if len(p) != 1 || p[0].Value != want || p[0].Attr["ossa.agent.id"] != "clerk" || p[0].Attr["gen_ai.request.model"] != "m1" || len(p[0].Attr) != 3 {
			t.Errorf("%s: %+v, want %v", name, p, want)
		}
	}
	if p := c.Points("ossa.agent.latency"); len(p) != 1 || p[0].Count != 2 {
		t.Errorf("latency %+v", p)
	}
	if p := c.Points("ossa.agent.errors"); len(p) != 0 {
		t.Errorf("errors %+v", p)
	}
}

// TestNoCollectorIsNoFailure: a collector that is dead or does not answer does not affect the
// turn, and the process waits for it no longer than the bound.
func TestNoCollectorIsNoFailure(t *testing.T) {
	c := otlptest.Start(true)
	defer c.Close() // runs last: a host that waited for the collector would wait for ever
	t.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "3600000")
	for name, url := range map[string]string{"dead": "http://127.0.0.1:1", "hanging": c.URL} {
		warned := make(chan string, 16)
		h := host(t, url, func(text string) { warned <- text })
		res, err := h.Run(t.Context(), turn.Request{Agent: "clerk", Message: []byte("look")})
		if err != nil || res.Status != turn.Completed || res.Text != "seen" {
			t.Errorf("%s: %+v, %v", name, res, err)
		}
		if err := h.Close(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		close(warned)
		told := ""
		for text := range warned {
			told += text + "\n"
		}
		if strings.Count(told, "spans are ") != 1 || strings.Count(told, "metrics are ") != 1 {
			t.Errorf("%s: warned %q", name, told)
		}
	}
}

// TestNothingIsSentForNothing: a process that runs no turn does not contact the collector.
func TestNothingIsSentForNothing(t *testing.T) {
	c := otlptest.Start(false)
	defer c.Close()
	h := host(t, c.URL, func(text string) { t.Errorf("warned: %s", text) })
	if err := h.Close(t.Context()); err != nil || len(c.Requests()) > 0 {
		t.Errorf("%v, %v", c.Requests(), err)
	}
}

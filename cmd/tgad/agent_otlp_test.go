package main

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/agent/otlptest"
	"github.com/tgad/tgad/internal/modelserver"
)

// TestAgentRunExports: tgad agent run sends spans and metrics if the environment asks for it. Whatever
// happens to them, the answer is the same and the exit code is 0.
func TestAgentRunExports(t *testing.T) {
	m, err := modelserver.Start(modelserver.Options{ByConversation: true, Script: []modelserver.Answer{
		{ToolCalls: []modelserver.ToolCall{{ID: "a", Name: "charge", Arguments: `{"account":"a","amount":1}`}}, Input: 3, Output: 2},
		{Text: "paid", Input: 4, Output: 1},
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}()
	// run runs the agent and returns its stderr.
	run := func(t *testing.T, env ...string) string {
		t.Helper()
		dir := t.TempDir()
		config, manifest := filepath.Join(dir, "tgad.toml"), filepath.Join(dir, "payer.yaml")
		for file, text := range map[string]string{config: testConfig(filepath.Join(dir, "payments.journal")) + modelConfig(m.URL()), manifest: payer} {
			if err := os.WriteFile(file, []byte(text), 0o640); err != nil {
				t.Fatal(err)
			}
		}
		var out, errs bytes.Buffer
		cmd := exec.CommandContext(t.Context(), "tgad", "agent", "run", manifest, "--data", filepath.Join(dir, "data"), "--config", config, "--message", "pay",
			"--traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
		cmd.Env = append(os.Environ(), env...)
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Run(); err != nil || strings.TrimSpace(out.String()) != "paid" {
			t.Errorf("%v, %q\n%s", err, out.String(), errs.String())
		}
		return errs.String()
	}
	const warning = "tgad: warning: "

	t.Run("collector", func(t *testing.T) {
		c := otlptest.Start(false)
		defer c.Close()
		if errs := run(t, "OTEL_EXPORTER_OTLP_ENDPOINT="+c.URL, "OTEL_EXPORTER_OTLP_HEADERS=x-tenant=acme"); strings.Contains(errs, warning) {
			t.Error(errs)
		}
		invoke, tools := c.Spans("ossa.agent.invoke"), c.Spans("ossa.tool.call")
		if len(invoke) != 1 || len(c.Spans("ossa.agent.turn")) != 2 || len(tools) != 1 {
			t.Fatalf("%v, %v", invoke, tools)
		}
		if got := hex.EncodeToString(invoke[0].ParentSpanId); got != "b7ad6b7169203331" || invoke[0].Resource["service.name"] != "tgad" {
			t.Errorf("parent %s, resource %v", got, invoke[0].Resource)
		}
		chats, asked := c.Spans("gen_ai.chat"), m.Requests()
		if len(chats) != 2 || len(asked) != 2 {
			t.Fatalf("%d spans of questions, %d questions", len(chats), len(asked))
		}
		slices.SortFunc(chats, func(a, b otlptest.Span) int { return cmp.Compare(a.StartTimeUnixNano, b.StartTimeUnixNano) })
		for n, s := range chats {
			want := "00-" + hex.EncodeToString(s.TraceId) + "-" + hex.EncodeToString(s.SpanId) + "-01"
			if got := asked[n].Header.Get("Traceparent"); got != want {
				t.Errorf("the model was told %s, the span of question %d is %s", got, n, want)
			}
		}
		if tools[0].Attr["ossa.tool.source"] != "mcp://payments/charge" {
			t.Errorf("%v", tools[0].Attr)
		}
		if p := c.Points("ossa.tokens.input"); len(p) != 1 || p[0].Value != 7 {
			t.Errorf("%+v", p)
		}
		for _, r := range c.Requests() {
			if r.Header.Get("X-Tenant") != "acme" {
				t.Errorf("%s: %v", r.Path, r.Header)
			}
		}
	})
	t.Run("another protocol", func(t *testing.T) {
		c := otlptest.Start(false)
		defer c.Close()
		if errs := run(t, "OTEL_EXPORTER_OTLP_ENDPOINT="+c.URL, "OTEL_EXPORTER_OTLP_PROTOCOL=grpc"); !strings.Contains(errs, warning+"spans are not sent: OTEL_EXPORTER_OTLP_PROTOCOL") {
			t.Error(errs)
		}
		if len(c.Requests()) > 0 {
			t.Error(c.Requests())
		}
	})
	t.Run("dead", func(t *testing.T) {
		if errs := run(t, "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1"); strings.Count(errs, warning+"spans are not sent") != 1 || strings.Count(errs, warning) != 2 {
			t.Error(errs)
		}
	})
	t.Run("hanging", func(t *testing.T) {
		c := otlptest.Start(true)
		defer c.Close() // it answers nothing before: a command that waited for it would not end
		if errs := run(t, "OTEL_EXPORTER_OTLP_ENDPOINT="+c.URL, "OTEL_EXPORTER_OTLP_TIMEOUT=3600000"); !strings.Contains(errs, warning+"spans are lost") {
			t.Error(errs)
		}
	})
	t.Run("off", func(t *testing.T) {
		c := otlptest.Start(false)
		defer c.Close()
		if errs := run(t, "OTEL_EXPORTER_OTLP_ENDPOINT="+c.URL, "OTEL_SDK_DISABLED=true"); strings.Contains(errs, warning) || len(c.Requests()) > 0 {
			t.Error(errs, c.Requests())
		}
	})
}

package main

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/modelserver"
	"github.com/tgad/tgad/internal/serial"
)

// TestKilledErasureOfASealedAgent runs an agent on a sealed store, kills it in the middle of a call and resumes it. Then
// it erases a turn, the session and the working state, and kills tgad erase with SIGKILL, each time a bit later, until
// the erasure is done. The store verifies. In the end nothing that the agent was told is in the store's
// directory, the agent still works, and no call was made again.
func TestKilledErasureOfASealedAgent(t *testing.T) {
	t.Parallel()
	const secret = "nobody-reads-this"
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	tools := &appender{t: t, work: at("work"), point: "half"}
	server := httptest.NewServer(tools)
	defer server.Close()
	m, err := modelserver.Start(modelserver.Options{
		Script: []modelserver.Answer{
			{ToolCalls: []modelserver.ToolCall{
				{ID: "a", Name: "state_set", Arguments: `{"key":"name","value":"` + secret + `"}`}, {ID: "b", Name: "add", Arguments: `{"who":"` + secret + `"}`},
			}}, {Text: "added"},
		},
		ByConversation: true, Deduplicate: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}()
	for file, text := range map[string]string{
		"tgad.toml": fmt.Sprintf("[store]\nlow_water_bytes = 1\n[keyring]\npath = %q\nkek_file = %q\n[[server]]\nid = \"files\"\ntype = \"http\"\nurl = %q\n[[tool]]\nserver = \"files\"\nname = \"add\"\nlicence = \"dedupe_args\"\n[[rule]]\ndecision = \"APPROVE\"\nrationale = \"all are approved\"\n", at("ring"), at("kek"), server.URL) + modelConfig(m.URL()),
		"a.yaml": "apiVersion: ossa/v0.2.9\nkind: Agent\nmetadata: {name: adder}\nspec:\n  role: You add.\n  llm: {provider: local, model: m1}\n" +
			"  workspace: {directory: work}\n  tools: [{type: http, server: files, name: add}, {type: mcp, server: tgad-state}]\n",
		"kek": strings.Repeat("0f", 32),
	} {
		if err := os.WriteFile(at(file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(tools.work, 0o755); err != nil {
		t.Fatal(err)
	}
	tgad := func(after time.Duration, args ...string) (string, error) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		cmd := exec.CommandContext(ctx, "tgad", args...)
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if after > 0 {
			defer time.AfterFunc(after, cancel).Stop()
		}
		if after < 0 {
			tools.mu.Lock()
			tools.kill = cancel
			tools.mu.Unlock()
		}
		err := cmd.Wait()
		if err != nil {
			err = fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, errs.String())
		}
		return strings.TrimSpace(out.String()), err
	}
	must := func(args ...string) string {
		t.Helper()
		out, err := tgad(0, args...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	store := []string{"--data", at("data"), "--config", at("tgad.toml")}
	with := func(args ...string) []string { return append(args, store...) }
	must("keyring", "init", at("ring"), "--kek-file", at("kek"))
	run := func(session, id string) []string {
		return with("agent", "run", at("a.yaml"), "--session", session, "--id", id, "--message", "add "+secret)
	}
	const first, second = "01936a8b-4c2d-7000-8000-000000000001", "01936a8b-4c2d-7000-8000-000000000002"
	if _, err := tgad(-1, run("s", first)...); err == nil {
		t.Error("the agent was not killed")
	}
	if text := must(run("s", first)...); text != "added" {
		t.Errorf("resumed: %q", text)
	}
	must(run("t", second)...)
	list := must(with("state", "ls", "--json")...)
	_, list, _ = strings.Cut(list, `"id":"`)
	state, _, _ := strings.Cut(list, `"`)
	if found := filesWith(t, at("data"), secret); found != nil {
		t.Errorf("before: it stands in %v", found)
	}
	calls, kills, step := tools.calls, 0, time.Duration(10) // one of four
	if serial.Whole() {
		step = 5
	}
	for _, what := range [][]string{{"--turn", second}, {"--session", "adder/s"}, {"--session", "adder/t"}, {"--state", state}} {
		if what[1] == "adder/t" && !serial.Whole() {
			continue
		}
		for after := 20 * time.Millisecond; ; after = after * step / 4 {
			_, err := tgad(after, append(with("erase", "--reason", "r", "--yes"), what...)...)
			if err == nil {
				break
			}
			if kills++; serial.Whole() {
				must(with("verify")...)
			}
			if t.Failed() || after > time.Minute {
				t.Fatalf("%v is not erased after %s: %v", what, after, err)
			}
		}
		must(with("verify")...)
		if out := must(append(with("erase", "--reason", "r", "--yes"), what...)...); !strings.Contains(out, "erased 0 traces, destroyed 0 keys") {
			t.Errorf("%v is erased once more: %s", what, out)
		}
	}
	t.Logf("%d kills", kills)
	if kills == 0 {
		t.Error("nothing was killed")
	}
	if found := filesWith(t, at("data"), secret); found != nil {
		t.Errorf("it stands in %v", found)
	}
	for _, id := range []string{first, second} {
		if text, err := tgad(0, run("s", id)...); err == nil || !strings.Contains(err.Error(), "IDEMPOTENCY_KEY_EXPIRED") {
			t.Errorf("an erased turn is run again: %q, %v", text, err)
		}
	}
	if tools.calls != calls {
		t.Errorf("%d calls of the tool, before %d", tools.calls, calls)
	}
	must(run("s", "01936a8b-4c2d-7000-8000-000000000003")...)
	if tools.calls != calls+1 {
		t.Errorf("the session goes on with %d calls, want 1", tools.calls-calls)
	}
	must(with("verify")...)
}

// filesWith lists the files below a directory that contain a text.
func filesWith(t *testing.T, dir, text string) (found []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if bytes.Contains(b, []byte(text)) {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

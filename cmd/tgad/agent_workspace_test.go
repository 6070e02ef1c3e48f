package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/tgad/tgad/internal/modelserver"
)

// appender is a tool server whose calls are not safe to repeat: each call adds a line to two
// files of the agent's workspace. It kills the agent's process at one point of its first call.
type appender struct {
	t     *testing.T
	work  string
	point string
	mu    sync.Mutex
	kill  func() // nil: no longer
	calls int
}

func (a *appender) add(name string) {
	f, err := os.OpenFile(filepath.Join(a.work, name), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err == nil {
		_, err = f.WriteString("line\n")
	}
	if err != nil {
		a.t.Error(err)
		return
	}
	if err := f.Close(); err != nil {
		a.t.Error(err)
	}
}

func (a *appender) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls++
	kill := a.kill
	a.kill = nil
	at := func(point string) bool {
		if kill == nil || point != a.point {
			return false
		}
		kill()
		return true
	}
	if at("begun") {
		return
	}
	a.add("one")
	if at("half") {
		return
	}
	a.add("two")
	if at("done") {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprint(w, `{}`)
	if kill != nil {
		after, err := time.ParseDuration(a.point)
		if err != nil {
			a.t.Error(err)
		}
		time.AfterFunc(after, kill)
	}
}

// TestKilledAgentsWorkspaceIsWhole kills tgad agent with SIGKILL at each step of a call that
// works on its workspace: before the tool does anything, in its middle, at its end, and while
// the state after it is snapshotted and recorded. The call is sent again. In the end the files
// have the changes of each of the agent's calls exactly once.
func TestKilledAgentsWorkspaceIsWhole(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"begun", "half", "done", "3ms", "30ms"} {
		dir := t.TempDir()
		tools := &appender{t: t, work: filepath.Join(dir, "work"), point: point}
		server := httptest.NewServer(tools)
		m, err := modelserver.Start(modelserver.Options{
			Script: []modelserver.Answer{
				{ToolCalls: []modelserver.ToolCall{{ID: "a", Name: "add", Arguments: `{}`}, {ID: "b", Name: "add", Arguments: `{}`}}}, {Text: "added"},
			},
			ByConversation: true, Deduplicate: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		config, manifest := filepath.Join(dir, "tgad.toml"), filepath.Join(dir, "a.yaml")
		for file, text := range map[string]string{
			config: fmt.Sprintf("[[server]]\nid = \"files\"\ntype = \"http\"\nurl = %q\n[[tool]]\nserver = \"files\"\nname = \"add\"\nlicence = \"dedupe_args\"\n[[rule]]\ndecision = \"APPROVE\"\nrationale = \"all are approved\"\n", server.URL) + modelConfig(m.URL()),
			manifest: "apiVersion: ossa/v0.2.9\nkind: Agent\nmetadata: {name: adder}\nspec:\n  role: You add.\n  llm: {provider: local, model: m1}\n" +
				"  workspace: {directory: work}\n  tools: [{type: http, server: files, name: add}]\n",
		} {
			if err := os.WriteFile(file, []byte(text), 0o640); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Mkdir(tools.work, 0o755); err != nil {
			t.Fatal(err)
		}
		id := uuid.Must(uuid.NewV7()).String()
		run := func(kill bool) (string, error) {
			var out, errs bytes.Buffer
			cmd := exec.CommandContext(t.Context(), "tgad", "agent", "run", manifest, "--data", filepath.Join(dir, "data"), "--config", config,
				"--id", id, "--session", "s", "--message", "add")
			cmd.Stdout, cmd.Stderr = &out, &errs
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if kill {
				tools.mu.Lock()
				// An agent that has ended already needs no kill.
				tools.kill = func() { _ = cmd.Process.Kill() }
				tools.mu.Unlock()
			}
			err := cmd.Wait()
			if err != nil {
				err = fmt.Errorf("%w\n%s", err, errs.String())
			}
			return strings.TrimSpace(out.String()), err
		}
		_, first := run(true)
		text, err := run(false)
		if err != nil || text != "added" {
			t.Errorf("killed at %s (%v): %q, %v", point, first != nil, text, err)
		}
		for _, name := range []string{"one", "two"} {
			raw, err := os.ReadFile(filepath.Join(tools.work, name))
			if err != nil || string(raw) != "line\nline\n" {
				t.Errorf("killed at %s: after %d calls of the tool, %s has %q, %v", point, tools.calls, name, raw, err)
			}
		}
		if want := 2; tools.calls < want || point == "half" && tools.calls != 3 {
			t.Errorf("killed at %s: %d calls of the tool", point, tools.calls)
		}
		server.Close()
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
}

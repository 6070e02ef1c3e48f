package agent

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/runtime/turn"
	"github.com/tgad/tgad/runtime/turn/state"
	"github.com/tgad/tgad/schemas/tga"
)

// TestExampleIsTakenWhole: nothing of the manifest that newcomers copy is ignored.
func TestExampleIsTakenWhole(t *testing.T) {
	a, report, err := Read("../../examples/agent/treasurer.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Ignored) > 0 || len(report.Contradictions) > 0 || len(report.Warnings) > 0 {
		t.Errorf("ignored %v, contradicted %v, warned %v", report.Ignored, report.Contradictions, report.Warnings)
	}
	if a.Name != "treasurer" || a.Model.Provider != "openai" || a.Constraints.Timeout != 2*time.Minute || a.State.Isolation != state.Serializable || len(a.Tools) != 1 {
		t.Errorf("%+v", a)
	}
}

func TestManifestsOfADirectory(t *testing.T) {
	dir := t.TempDir()
	if _, err := ReadAll([]string{dir}); tga.CodeOf(err) != tga.NotFound {
		t.Errorf("an empty directory: %v", err)
	}
	if _, err := ReadAll([]string{filepath.Join(dir, "no")}); tga.CodeOf(err) != tga.NotFound {
		t.Errorf("nothing there: %v", err)
	}
	for name, text := range map[string]string{
		"a.yaml": "kind: Agent\nmetadata: {name: one}\nspec: {role: r, llm: {provider: p, model: m}}\n",
		"b.yml":  "kind: Agent\nmetadata: {name: two}\nspec: {role: r, llm: {provider: p, model: m}}\n",
		"c.json": `{"kind":"Agent","metadata":{"name":"three"},"spec":{"role":"r","llm":{"provider":"p","model":"m"}}}`,
		"d.txt":  "no manifest",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	agents, err := ReadAll([]string{dir})
	if err != nil || len(agents) != 3 || agents[0].Name != "one" || agents[1].Name != "two" || agents[2].Name != "three" {
		t.Errorf("%d agents, %v", len(agents), err)
	}
}

// TestModelsMayBeAskedUnlessARuleSaysOtherwise: a configuration that names a model means it
// to be asked; of tools nothing follows from that.
func TestModelsMayBeAskedUnlessARuleSaysOtherwise(t *testing.T) {
	for _, c := range []struct {
		rules  []config.Rule
		server string
		want   string
	}{
		{nil, turn.ModelServer("p"), tga.Approve},
		{nil, turn.ModelServer("q"), tga.Deny},
		{nil, "payments", tga.Deny},
		{[]config.Rule{{Server: turn.ModelServer("p"), Decision: tga.Deny}}, turn.ModelServer("p"), tga.Deny},
		{[]config.Rule{{Decision: tga.Deny}}, turn.ModelServer("p"), tga.Approve},
	} {
		conf := config.Default()
		conf.Models, conf.Rules = []config.Model{{Provider: "p", Type: config.OpenAI}}, c.rules
		rules, err := conf.Supervisor()
		if err != nil {
			t.Fatal(err)
		}
		request := &tga.Artifact{Type: tga.RequestType, Request: &tga.ActionRequest{Proposal: tga.Proposal{ToolServer: c.server, ToolName: "generate"}}}
		v, err := supervisor{rules, conf}.Decide(t.Context(), request)
		if err != nil || v.Decision != c.want {
			t.Errorf("%+v: %+v, %v", c, v, err)
		}
	}
}

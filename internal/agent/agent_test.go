package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/internal/turn/state"
	"github.com/tgad/tgad/schemas/tga"
)

// TestExampleIsTakenWhole: nothing in the manifest that newcomers copy is ignored.
func TestExampleIsTakenWhole(t *testing.T) {
	docs, err := Reading{}.Read("../../examples/agent/treasurer.yaml")
	if err != nil || len(docs) != 1 {
		t.Fatal(docs, err)
	}
	a, report := docs[0].Agent, docs[0].Report
	if len(report.Ignored) > 0 || len(report.Contradictions) > 0 || len(report.Warnings) > 0 {
		t.Errorf("ignored %v, contradicted %v, warned %v", report.Ignored, report.Contradictions, report.Warnings)
	}
	if a.Name != "treasurer" || a.Model.Provider != "openai" || a.Constraints.Timeout != 2*time.Minute || a.State.Isolation != state.Serializable || len(a.Tools) != 1 {
		t.Errorf("%+v", a)
	}
}

func TestManifestsOfADirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "agents [old] *?")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := (Reading{}).ReadAll([]string{dir}); tga.CodeOf(err) != tga.NotFound {
		t.Errorf("an empty directory: %v", err)
	}
	if _, err := (Reading{}).ReadAll([]string{filepath.Join(dir, "no")}); tga.CodeOf(err) != tga.NotFound {
		t.Errorf("nothing there: %v", err)
	}
	for name, text := range map[string]string{
		"a.yaml": "kind: Agent\nmetadata: {name: one}\nspec: {role: r, llm: {provider: p, model: m}}\n",
		"b.yml":  "kind: Agent\nmetadata: {name: two}\nspec: {role: r, llm: {provider: p, model: m}}\n",
		"c.json": `{"kind":"Agent","metadata":{"name":"three"},"spec":{"role":"r","llm":{"provider":"p","model":"m"}}}`,
		"d.txt":  "no manifest",
		"e.json": "metadata: {name: four}\n---\nmetadata: {name: five}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	agents, err := Reading{}.ReadAll([]string{dir})
	if err != nil || len(agents) != 5 || agents[0].Name != "one" || agents[1].Name != "two" || agents[2].Name != "three" || agents[3].Name != "four" || agents[4].Name != "five" {
		t.Errorf("%d agents, %v", len(agents), err)
	}
}

// TestModelsMayBeAskedUnlessARuleSaysOtherwise: a model that the configuration names may be
// asked. That says nothing about tools.
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

// TestModelOfAnAgent: the manifest's model, or the given one. If there is none, the error says
// how to give one.
func TestModelOfAnAgent(t *testing.T) {
	conf := func(providers ...string) *config.Config {
		c := config.Default()
		for _, p := range providers {
			c.Models = append(c.Models, config.Model{Provider: p, Type: config.OpenAI})
		}
		return c
	}
	for _, c := range []struct {
		has, given, provider, model string
		conf                        *config.Config
	}{
		{"p/m", "", "p", "m", conf("p")},
		{"p/m", "q/other", "q", "other", conf("p", "q")},
		{"p/m", "other", "p", "other", conf("p", "q")},
		{"p/m", "org/other", "p", "org/other", conf("p", "q")},
		{"/", "other", "p", "other", conf("p")},
		{"/", "p/org/other", "p", "org/other", conf("p", "q")},
		{"/m", "", "p", "m", conf("p")},
		{"/", "", "", "", conf("p")},
		{"p/", "", "", "", conf("p")},
	} {
		provider, model, _ := strings.Cut(c.has, "/")
		a := &turn.Agent{Name: "a", Model: turn.ModelSpec{Provider: provider, Model: model}}
		err := Options{Config: c.conf, Model: c.given}.models([]*turn.Agent{a})
		if c.model == "" {
			if tga.CodeOf(err) != tga.ValidationError || !strings.Contains(err.Error(), "--model PROVIDER/MODEL") {
				t.Errorf("%+v: %v", c, err)
			}
		} else if err != nil || a.Model.Provider != c.provider || a.Model.Model != c.model {
			t.Errorf("%+v: %+v, %v", c, a.Model, err)
		}
	}
}

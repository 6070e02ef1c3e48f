package manifest_test

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/internal/turn/manifest"
	"github.com/tgad/tgad/schemas/tga"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares got with the file beside a manifest.
func golden(t *testing.T, file string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != string(got) {
		t.Errorf("not as in %s; got:\n%s", file, got)
	}
}

func manifests(t *testing.T, dir string) []string {
	t.Helper()
	all, err := filepath.Glob("testdata/" + dir + "/*")
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, f := range all {
		if e := filepath.Ext(f); e == ".yaml" || e == ".json" {
			list = append(list, f)
		}
	}
	if len(list) < 8 {
		t.Fatalf("only %d manifests in testdata/%s", len(list), dir)
	}
	return list
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// TestManifestsBecomeAgents: each manifest in testdata/good becomes the agent and the report in
// the file beside it.
func TestManifestsBecomeAgents(t *testing.T) {
	for _, file := range manifests(t, "good") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			agent, report, err := manifest.Read(read(t, file))
			if err != nil {
				t.Fatal(err)
			}
			got, err := json.MarshalIndent(struct {
				Agent  *turn.Agent
				Report manifest.Report
			}{agent, report}, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			golden(t, file+".golden", append(got, '\n'))
		})
	}
}

// TestMistakesAreShownWhereTheyAre: each manifest in testdata/broken is refused with the lines in
// the file beside it.
func TestMistakesAreShownWhereTheyAre(t *testing.T) {
	for _, file := range manifests(t, "broken") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			agent, _, err := manifest.Read(read(t, file))
			if err == nil || agent != nil {
				t.Fatalf("read: agent %v, error %v", agent, err)
			}
			var all *manifest.Error
			if !errors.As(err, &all) || len(all.Mistakes) == 0 {
				t.Fatalf("error %T lists no mistake", err)
			}
			for _, m := range all.Mistakes {
				if m.Line < 1 || m.Column < 1 || !errors.Is(err, m.Code) {
					t.Errorf("mistake without place or code: %+v", m)
				}
			}
			if code := tga.CodeOf(err); code != all.Mistakes[0].Code {
				t.Errorf("the code of the error is %q", code)
			}
			golden(t, file+".golden", []byte(err.Error()+"\n"))
		})
	}
}

// TestSpellingsAgree: the same agent, written in YAML and in JSON, with the names of the
// semantics and of the schema, gives the same result.
func TestSpellingsAgree(t *testing.T) {
	forms := []string{
		"metadata: {name: a}\nspec:\n  llm: {model: m, parameters: {max_tokens: 5, top_p: 0.5}}\n  constraints: {timeout_seconds: 3}\n  state: {mode: persistent}\n  memory: {window_size: 4, summarization: sliding}\n  reliability: {retry: {max_retries: 2, backoff_multiplier: 1}}\n",
		"metadata: {name: a}\nspec:\n  llm: {model: m, maxTokens: 5, topP: 0.5}\n  constraints: {performance: {timeoutSeconds: 3}}\n  state: {mode: long_running, context_window: {max_messages: 4, strategy: sliding_window}}\n  reliability: {retry: {max_attempts: 3, backoff_strategy: fixed}}\n",
		"{\"metadata\": {\"name\": \"a\"}, \"spec\": {\"llm\": {\"model\": \"m\", \"max_tokens\": 5, \"top_p\": 5e-1}, \"constraints\": {\"timeoutSeconds\": 3.0},\n\t\"state\": {\"mode\": \"long-running\"}, \"conversation\": {\"window_size\": 4, \"summarization\": \"sliding\"}, \"reliability\": {\"retry_policy\": {\"max_attempts\": 3, \"multiplier\": 1}}}}",
	}
	var first string
	for i, form := range forms {
		agent, report, err := manifest.Read([]byte(form))
		if err != nil {
			t.Fatal(err)
		}
		if len(report.Ignored)+len(report.Contradictions) > 0 {
			t.Errorf("form %d: ignored %v, contradictions %v", i, report.Ignored, report.Contradictions)
		}
		raw, err := json.Marshal(agent)
		if err != nil {
			t.Fatal(err)
		}
		if first == "" {
			first = string(raw)
		}
		if string(raw) != first {
			t.Errorf("form %d is\n%s\nnot\n%s", i, raw, first)
		}
	}
}

// corpus returns the manifests of a directory, for a fuzz target to start from.
func corpus(f *testing.F, dir string) [][]byte {
	f.Helper()
	names, err := filepath.Glob("testdata/" + dir + "/*.[yj]*")
	if err != nil {
		f.Fatal(err)
	}
	var all [][]byte
	for _, name := range names {
		raw, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		all = append(all, raw)
	}
	return all
}

package manifest_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/tgad/tgad/internal/turn/manifest"
	"github.com/tgad/tgad/schemas/tga"
)

// TestEveryValueIsTakenOrListed puts an unknown member into every object of every manifest. Each
// member is listed as ignored, by its own place or that of an enclosing value, or refused by its
// own place.
func TestEveryValueIsTakenOrListed(t *testing.T) {
	objects := 0
	for _, file := range manifests(t, "good") {
		if filepath.Ext(file) != ".yaml" {
			continue
		}
		for n := 0; ; n++ {
			var doc yaml.Node
			if err := yaml.Unmarshal(read(t, file), &doc); err != nil {
				t.Fatal(err)
			}
			left := n
			pointer, put := plant(&doc, "", &left)
			if !put {
				break
			}
			objects++
			raw, err := yaml.Marshal(&doc)
			if err != nil {
				t.Fatal(err)
			}
			_, report, err := manifest.Read(raw)
			if refused(err, pointer) {
				continue
			}
			if err != nil {
				t.Fatalf("%s: %v\n%s", pointer, err, raw)
			}
			if !listed(report, pointer) {
				t.Errorf("%s: %s is neither taken nor listed: %v", file, pointer, report.Ignored)
			}
		}
	}
	if objects < 100 {
		t.Errorf("only %d objects were tried", objects)
	}
}

// refused reports whether a manifest is refused only for the value at a pointer, in a part that
// exists to restrict.
func refused(err error, pointer string) bool {
	var all *manifest.Error
	return errors.As(err, &all) && len(all.Mistakes) == 1 && all.Mistakes[0].Pointer == pointer && all.Mistakes[0].Code == tga.PolicyViolation
}

// plant puts an unknown member into the object that comes after left others.
func plant(n *yaml.Node, pointer string, left *int) (string, bool) {
	switch n.Kind {
	case yaml.DocumentNode:
		return plant(n.Content[0], pointer, left)
	case yaml.SequenceNode:
		for i, item := range n.Content {
			if p, ok := plant(item, fmt.Sprintf("%s/%d", pointer, i), left); ok {
				return p, true
			}
		}
	case yaml.MappingNode:
		if *left--; *left < 0 {
			n.Content = append(n.Content,
				&yaml.Node{Kind: yaml.ScalarNode, Value: "zz"}, &yaml.Node{Kind: yaml.ScalarNode, Value: "unknown"})
			return pointer + "/zz", true
		}
		for i := 0; i < len(n.Content); i += 2 {
			if p, ok := plant(n.Content[i+1], pointer+"/"+strings.ReplaceAll(n.Content[i].Value, "/", "~1"), left); ok {
				return p, true
			}
		}
	}
	return "", false
}

// listed reports whether pointer, or an enclosing value, is in the report. A value that is taken
// as a whole, such as a schema, is listed among the taken places.
func listed(r manifest.Report, pointer string) bool {
	within := func(p string) bool { return p == pointer || strings.HasPrefix(pointer, p+"/") }
	for _, p := range r.Ignored {
		if within(p) {
			return true
		}
	}
	whole := []string{"Tools[].InputSchema", "Tools[].Fallback", "Handlers[].Fallback", "Examples[].Input", "Examples[].Output", "Delegation.Context"}
	for _, taken := range r.Taken {
		for _, field := range whole {
			if taken.Field == field && within(taken.From) {
				return true
			}
		}
	}
	// The value of a contradiction that was not taken is listed there.
	for _, c := range r.Contradictions {
		if within(c.Other) {
			return true
		}
	}
	return false
}

// TestLimits: at each limit a manifest is read, one past it LIMIT_EXCEEDED.
func TestLimits(t *testing.T) {
	const head = "metadata: {name: a}\n"
	nodes := func(n int) string { // head and the list are 4
		return head + "x: [" + strings.TrimSuffix(strings.Repeat("1,", n-4), ",") + "]\n"
	}
	depth := func(n int) string { return head + "x: " + strings.Repeat("[", n) + strings.Repeat("]", n) + "\n" }
	bytes := func(n int) string { return head + "#" + strings.Repeat("x", n-len(head)-1) }
	asJSON := func(n int) string {
		return `{"metadata":{"name":"a"},"x":` + strings.Repeat("[", n) + strings.Repeat("]", n) + "}"
	}
	for _, c := range []struct {
		name  string
		of    func(int) string
		limit int
	}{
		{"bytes", bytes, manifest.MaxBytes},
		{"values", nodes, manifest.MaxNodes},
		{"depth", depth, manifest.MaxDepth},
		{"depth of JSON", asJSON, manifest.MaxDepth},
	} {
		if _, _, err := manifest.Read([]byte(c.of(c.limit))); err != nil {
			t.Errorf("%s: at the limit: %v", c.name, err)
		}
		if _, _, err := manifest.Read([]byte(c.of(c.limit + 1))); !errors.Is(err, tga.LimitExceeded) {
			t.Errorf("%s: one past the limit: %v", c.name, err)
		}
	}
}

// TestNamesHaveALimit: 253 bytes are a name, 254 are not.
func TestNamesHaveALimit(t *testing.T) {
	name := func(n int) []byte { return []byte("metadata: {name: " + strings.Repeat("a", n) + "}") }
	if _, _, err := manifest.Read(name(253)); err != nil {
		t.Error(err)
	}
	if _, _, err := manifest.Read(name(254)); !errors.Is(err, tga.SchemaViolation) {
		t.Errorf("254 bytes: %v", err)
	}
}

// TestNumbersHaveLimits walks the edges of each kind of number.
func TestNumbersHaveLimits(t *testing.T) {
	read := func(spec string) error {
		_, _, err := manifest.Read([]byte("metadata: {name: a}\nspec: " + spec))
		return err
	}
	for _, good := range []string{
		"{constraints: {max_turns: 1}}", "{constraints: {max_turns: 2147483647}}",
		"{constraints: {max_tokens: 9007199254740992}}",
		"{llm: {temperature: 0}}", "{llm: {temperature: 2}}", "{llm: {topP: 1.0}}",
		"{constraints: {timeout_seconds: 315360000}}", "{constraints: {timeout_seconds: 0.001}}",
		"{reliability: {retry: {backoff_multiplier: 1000}}}", "{reliability: {retry: {max_retries: 0}}}",
		"{state: {ttl: 10y}}", "{state: {ttl_seconds: 0}}",
	} {
		if err := read(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{
		"{constraints: {max_turns: 0}}", "{constraints: {max_turns: 2147483648}}", "{constraints: {max_turns: 1.5}}",
		"{constraints: {max_tokens: 9007199254740994}}", "{constraints: {max_tokens: 1e400}}",
		"{llm: {temperature: -0.1}}", "{llm: {temperature: 2.1}}", "{llm: {topP: 1.1}}", "{llm: {temperature: .inf}}",
		"{constraints: {timeout_seconds: 315360001}}", "{constraints: {timeout_seconds: -1}}", "{constraints: {timeout_seconds: 0}}",
		"{reliability: {retry: {backoff_multiplier: 1001}}}", "{reliability: {retry: {max_retries: -1}}}", "{reliability: {retry: {max_attempts: 0}}}",
		"{state: {ttl: 11y}}", "{state: {ttl: soon}}",
	} {
		if err := read(bad); !errors.Is(err, tga.SchemaViolation) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// TestPlaceholders: a value from the environment, the default, and neither.
func TestPlaceholders(t *testing.T) {
	raw := []byte("metadata: {name: a}\nspec: {role: '${HOME}', llm: {model: 'x-${MODEL:-small}', maxTokens: '${MAX}'}}")
	reader := manifest.Reader{Getenv: func(name string) (string, bool) {
		v, ok := map[string]string{"MAX": "512", "HOME": "secret", "MODEL": ""}[name]
		return v, ok
	}}
	agent, report, err := reader.Read(raw)
	if err != nil {
		t.Fatal(err)
	}
	if agent.Role != "${HOME}" {
		t.Errorf("a prompt was filled: %q", agent.Role)
	}
	if agent.Model.Model != "x-small" || *agent.Model.Parameters.MaxTokens != 512 {
		t.Errorf("model %q, tokens %v", agent.Model.Model, *agent.Model.Parameters.MaxTokens)
	}
	want := map[string]manifest.Taken{
		"Model.Model":                {Variable: "MODEL", Default: true},
		"Model.Parameters.MaxTokens": {Variable: "MAX"},
	}
	for _, taken := range report.Taken {
		if w, ok := want[taken.Field]; ok && (w.Variable != taken.Variable || w.Default != taken.Default) {
			t.Errorf("taken: %+v", taken)
		}
	}
	if _, _, err := manifest.Read(raw); !errors.Is(err, tga.SchemaViolation) {
		t.Errorf("without a value for MAX: %v", err)
	}
}

// TestFieldsAreTheDocuments: docs/OSSA.md lists the fields as the reader looks for them.
func TestFieldsAreTheDocuments(t *testing.T) {
	var b strings.Builder
	b.WriteString("| field | read from, best first | rule |\n|---|---|---|\n")
	for _, f := range manifest.Fields() {
		fmt.Fprintf(&b, "| %s | `%s` | %s |\n", f.Name, strings.Join(f.Paths, "`, `"), f.Rule)
	}
	const name = "../../../docs/OSSA.md"
	doc, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	const start, end = "<!-- fields: made by TestFieldsAreTheDocuments -->\n", "<!-- end of fields -->\n"
	before, rest, ok := strings.Cut(string(doc), start)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatal("docs/OSSA.md has no place for the fields")
	}
	whole := before + start + b.String() + end + after
	if *update {
		if err := os.WriteFile(name, []byte(whole), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if whole != string(doc) && !*update {
		t.Error("docs/OSSA.md is not what the table says: go test ./internal/turn/manifest -update")
	}
}

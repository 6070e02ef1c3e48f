package config_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/tgad/tgad/internal/assemble"
	"github.com/tgad/tgad/internal/config"
)

// whole are files that together have every key.
func whole(t *testing.T) map[string][]byte {
	names, err := filepath.Glob("testdata/whole/*.toml")
	if err != nil || len(names) < 3 {
		t.Fatal(names, err)
	}
	files := map[string][]byte{}
	for _, name := range names {
		if files[name], err = os.ReadFile(name); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// tree is a file as maps and lists.
func tree(t *testing.T, raw []byte) map[string]any {
	t.Helper()
	m := map[string]any{}
	if err := toml.Unmarshal(raw, &m); err != nil {
		t.Fatal(err)
	}
	return m
}

var compiled *jsonschema.Schema

func schema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	if compiled != nil {
		return compiled
	}
	raw, err := config.Schema()
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("config.json", doc); err != nil {
		t.Fatal(err)
	}
	if compiled, err = c.Compile("config.json"); err != nil {
		t.Fatal(err)
	}
	return compiled
}

// parsed is [assemble.Parse]. An editor must accept every file that it accepts.
func parsed(t *testing.T, name string, raw []byte) (*config.Config, error) {
	t.Helper()
	c, err := assemble.Parse(name, raw)
	if err == nil {
		if refused := editor(t, schema(t), tree(t, raw)); refused != nil {
			t.Errorf("the parser accepts and the schema refuses\n%s\n%v", raw, refused)
		}
	}
	return c, err
}

// editor returns what an editor says about a file, which it reads as JSON values.
func editor(t *testing.T, s *jsonschema.Schema, m map[string]any) error {
	t.Helper()
	raw, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(doc)
}

// parse returns what tgad says about a file.
func parse(t *testing.T, m map[string]any) error {
	t.Helper()
	raw, err := toml.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	_, err = config.Parse("c.toml", raw, nil)
	return err
}

// at calls f with every table at a path, and with the last key of the path.
func at(v any, path []string, f func(m map[string]any, key string)) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			at(e, path, f)
		}
	case map[string]any:
		if len(path) == 1 {
			f(v, path[0])
		} else if len(path) > 1 {
			at(v[path[0]], path[1:], f)
		}
	}
}

// TestEveryKeyIsDocumented: each key has a text, and is in a file that both the parser and the schema
// accept. Each row belongs to a key that exists.
func TestEveryKeyIsDocumented(t *testing.T) {
	s, seen := schema(t), map[string]bool{}
	for name, raw := range whole(t) {
		if _, err := config.Parse(name, raw, nil); err != nil {
			t.Errorf("the parser refuses %s: %v", name, err)
		}
		m := tree(t, raw)
		if err := editor(t, s, m); err != nil {
			t.Errorf("the schema refuses %s: %v", name, err)
		}
		for _, k := range config.Keys() {
			at(m, strings.Split(k.Path, "."), func(m map[string]any, key string) { seen[k.Path] = seen[k.Path] || m[key] != nil })
		}
	}
	for _, k := range config.Keys() {
		if len(k.Text) < 5 || !strings.HasSuffix(strings.TrimSuffix(k.Text, ")"), ".") && !strings.HasSuffix(k.Text, ".") {
			t.Errorf("%s has no sentence: %q", k.Path, k.Text)
		}
		if !seen[k.Path] {
			t.Errorf("no file of testdata/whole has %s", k.Path)
		}
	}
	if rows := config.UnusedRows(); len(rows) > 0 {
		t.Errorf("rows of keys that are not there: %v", rows)
	}
	if n := len(config.Keys()); n < 250 {
		t.Errorf("only %d keys", n)
	}
}

// TestUnknownKeysAreRefusedByBoth: the parser and the schema refuse an unknown key in every table.
func TestUnknownKeysAreRefusedByBoth(t *testing.T) {
	s := schema(t)
	for name, raw := range whole(t) {
		tables := []string{""}
		for _, k := range config.Keys() {
			if k.IsTable() {
				tables = append(tables, k.Path+".")
			}
		}
		for _, table := range tables {
			m, found := tree(t, raw), false
			at(m, strings.Split(table+"no_such_key", "."), func(m map[string]any, key string) { m[key], found = 1, true })
			if !found {
				continue
			}
			if err := parse(t, m); err == nil || !strings.Contains(err.Error(), "no_such_key") {
				t.Errorf("%s: the parser says of %sno_such_key: %v", name, table, err)
			}
			if err := editor(t, s, m); err == nil {
				t.Errorf("%s: the schema takes %sno_such_key", name, table)
			}
		}
	}
}

// TestKeysHaveOneSpelling: in every table a key in capitals is refused as another key. The decoder would
// accept it, and of profile and PROFILE in one file it would take the later one.
func TestKeysHaveOneSpelling(t *testing.T) {
	capitals := func(m map[string]any, path string) (found bool) {
		at(m, strings.Split(path, "."), func(m map[string]any, key string) {
			if v, ok := m[key]; ok {
				delete(m, key)
				m[strings.ToUpper(key)], found = v, true
			}
		})
		return found
	}
	tried := map[string]bool{}
	for name, raw := range whole(t) {
		all := tree(t, raw)
		var want []string
		for _, k := range config.Keys() {
			said := k.Path[:strings.LastIndexByte(k.Path, '.')+1] + strings.ToUpper(k.Path[strings.LastIndexByte(k.Path, '.')+1:])
			if !k.IsTable() {
				if capitals(all, k.Path) {
					want = append(want, said)
				}
				continue
			}
			m := tree(t, raw)
			if tried[said] || !capitals(m, k.Path) {
				continue
			}
			tried[said] = true
			if err := parse(t, m); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("unknown key %q", said)) {
				t.Errorf("%s: of the table %s the parser says %v", name, said, err)
			}
		}
		err := parse(t, all)
		for _, key := range want {
			tried[key] = true
			if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("unknown key %q", key)) {
				t.Errorf("%s: of %s the parser says nothing", name, key)
			}
		}
	}
	if n := len(config.Keys()); len(tried) < n*9/10 {
		t.Errorf("of %d keys %d were tried", n, len(tried))
	}
}

// TestWhatIsNeededIsNeeded: the parser and the schema refuse a file without a key that is needed.
func TestWhatIsNeededIsNeeded(t *testing.T) {
	s, m := schema(t), whole(t)["testdata/whole/directory.toml"]
	for _, k := range config.Keys() {
		if !k.Needed {
			continue
		}
		without := tree(t, m)
		at(without, strings.Split(k.Path, "."), func(m map[string]any, key string) { delete(m, key) })
		err := parse(t, without)
		if err == nil { // package assemble checks more
			raw, _ := toml.Marshal(without)
			_, err = assemble.Parse("c.toml", raw)
		}
		if err == nil || !strings.Contains(err.Error(), k.Path[strings.LastIndexByte(k.Path, '.')+1:]) {
			t.Errorf("the parser says of a file without %s: %v", k.Path, err)
		}
		if err := editor(t, s, without); err == nil {
			t.Errorf("the schema takes a file without %s", k.Path)
		}
	}
}

// TestWordsAreTheParsers: the parser and the schema accept each word that the table names, and refuse any
// other word.
func TestWordsAreTheParsers(t *testing.T) {
	s, raw := schema(t), whole(t)["testdata/whole/directory.toml"]
	mentions := func(err error, path string) bool {
		return err != nil && strings.Contains(err.Error(), path[strings.LastIndexByte(path, '.')+1:]+": \"")
	}
	// The packages of assemble refuse these. The form of answers depends on their server.
	elsewhere := []string{"verifier.method", "verifier.answer", "prober.method", "prober.answer"}
	checked := 0
	for _, k := range config.Keys() {
		if k.Words == nil || slices.Contains(elsewhere, k.Path) {
			continue
		}
		set := func(word string) map[string]any {
			m := tree(t, raw)
			at(m, strings.Split(k.Path, "."), func(m map[string]any, key string) {
				if k.Form == config.FormStrings {
					m[key] = []any{word}
				} else if m[key] != nil {
					m[key] = word
				}
			})
			return m
		}
		for _, word := range k.Words {
			if err := parse(t, set(word)); mentions(err, k.Path) && strings.Contains(err.Error(), "want") && strings.Contains(err.Error(), ": \""+word+"\": want") {
				t.Errorf("%s = %q: %v", k.Path, word, err)
			}
		}
		if parse(t, set("nonsense")) == nil {
			t.Errorf("the parser takes %s = nonsense", k.Path)
		}
		if editor(t, s, set("nonsense")) == nil {
			t.Errorf("the schema takes %s = nonsense", k.Path)
		}
		checked++
	}
	if checked < 12 {
		t.Errorf("only %d keys have words", checked)
	}
}

// TestExamplesAreValidInAnEditor: an editor marks no error in any example.
func TestExamplesAreValidInAnEditor(t *testing.T) {
	s := schema(t)
	for _, name := range []string{example, "../../examples/demo.toml", "../../examples/gateway/gateway.toml"} {
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := editor(t, s, tree(t, raw)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

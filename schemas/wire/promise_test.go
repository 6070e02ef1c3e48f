package wire_test

import (
	"errors"
	"flag"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

var update = flag.Bool("update", false, "write down what the API promises beyond what it promised")

// api is the part of an OpenAPI document that a client depends on.
type api struct {
	Info  struct{ Version string }
	Paths map[string]map[string]struct {
		RequestBody any `yaml:"requestBody"`
	}
	Components struct{ Schemas map[string]schema }
}

type schema struct {
	Properties map[string]any
	Required   []string
}

// promises are the lines of the contract: the routes, the members of each message, what a request must have
// ("wants"), and what an answer always has ("has").
func (a *api) promises() []string {
	var list []string
	asked := map[string]bool{}
	for path, methods := range a.Paths {
		for method, m := range methods {
			list = append(list, "route "+strings.ToUpper(method)+" "+path)
			a.reach(m.RequestBody, asked)
		}
	}
	for name, s := range a.Components.Schemas {
		for member := range s.Properties {
			list = append(list, "member "+name+"."+member)
		}
		word := "has "
		if asked[name] {
			word = "wants "
		}
		for _, member := range s.Required {
			list = append(list, word+name+"."+member)
		}
	}
	slices.Sort(list)
	return list
}

// reach adds the schemas that a request refers to, and those that they refer to.
func (a *api) reach(v any, found map[string]bool) {
	switch v := v.(type) {
	case map[string]any:
		if to, ok := v["$ref"].(string); ok {
			name := strings.TrimPrefix(to, "#/components/schemas/")
			if s, ok := a.Components.Schemas[name]; ok && !found[name] {
				found[name] = true
				for _, p := range s.Properties {
					a.reach(p, found)
				}
			}
		}
		for _, p := range v {
			a.reach(p, found)
		}
	case []any:
		for _, p := range v {
			a.reach(p, found)
		}
	}
}

// broken are the lines that may not disappear, and those that may not appear, within one version: an older
// client would lose a route or a member, or would not send a new required member.
func broken(promised, now []string) []string {
	var list []string
	for _, line := range promised {
		if !strings.HasPrefix(line, "wants ") && !slices.Contains(now, line) {
			list = append(list, "gone: "+line)
		}
	}
	for _, line := range now {
		if message, member, _ := strings.Cut(strings.TrimPrefix(line, "wants "), "."); strings.HasPrefix(line, "wants ") && !slices.Contains(promised, line) &&
			slices.ContainsFunc(promised, func(l string) bool { return strings.HasPrefix(l, "member "+message+".") }) {
			list = append(list, "new: "+line+" (a client of before does not send "+member+")")
		}
	}
	return list
}

// TestAPIKeepsItsPromises: the promises of this version in schemas/wire/testdata still hold. An addition is
// written down with -update; a removal needs the next tga.WireVersion.
func TestAPIKeepsItsPromises(t *testing.T) {
	var a api
	if err := yaml.Unmarshal(wire.OpenAPI, &a); err != nil {
		t.Fatal(err)
	}
	if a.Info.Version != tga.WireVersion {
		t.Errorf("the document has version %q, and tga.WireVersion is %q", a.Info.Version, tga.WireVersion)
	}
	for path := range a.Paths {
		if version, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/"); version != tga.WireVersion && strings.HasPrefix(path, "/v") && len(version) == 2 {
			t.Errorf("%s is of another version than %s", path, tga.WireVersion)
		}
	}
	file, now := filepath.Join("testdata", tga.WireVersion+".txt"), a.promises()
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	promised := strings.FieldsFunc(string(text), func(r rune) bool { return r == '\n' })
	for _, line := range broken(promised, now) {
		t.Error(line, "\nwithout another version that breaks the clients there are: raise tga.WireVersion")
	}
	if t.Failed() || slices.Equal(promised, now) {
		return
	}
	if !*update {
		t.Fatalf("the API promises more than %s says: go test ./schemas/wire -update", file)
	}
	if err := os.WriteFile(file, []byte(strings.Join(now, "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestBrokenPromisesAreNoticed walks the changes of an API that are allowed and those that are not.
func TestBrokenPromisesAreNoticed(t *testing.T) {
	was := []string{"has Call.state", "member Call.state", "member CallRequest.args", "route POST /v1/begin", "wants CallRequest.args"}
	for name, c := range map[string]struct {
		without string
		with    []string
		broken  int
	}{
		"nothing":                       {"", nil, 0},
		"a new route":                   {"", []string{"route GET /v1/new"}, 0},
		"a new member":                  {"", []string{"member CallRequest.more"}, 0},
		"a new message":                 {"", []string{"member New.one", "wants New.one"}, 0},
		"an answer that has more":       {"", []string{"has Call.more", "member Call.more"}, 0},
		"a request that wants less":     {"wants CallRequest.args", nil, 0},
		"a request that wants more":     {"", []string{"member CallRequest.more", "wants CallRequest.more"}, 1},
		"an answer that may lack":       {"has Call.state", nil, 1},
		"a member that is gone":         {"member Call.state", nil, 1},
		"a route that is gone":          {"route POST /v1/begin", nil, 1},
		"a route that has another name": {"route POST /v1/begin", []string{"route POST /v1/start"}, 1},
	} {
		now := slices.DeleteFunc(slices.Concat(was, c.with), func(l string) bool { return l == c.without })
		if got := broken(was, now); len(got) != c.broken {
			t.Errorf("%s: %v, want %d", name, got, c.broken)
		}
	}
	doc := api{}
	doc.Components.Schemas = map[string]schema{"A": {Properties: map[string]any{"b": map[string]any{"$ref": "#/components/schemas/B"}}}, "B": {}, "C": {}}
	found := map[string]bool{}
	doc.reach(map[string]any{"content": []any{map[string]any{"$ref": "#/components/schemas/A"}}}, found)
	if got := slices.Sorted(maps.Keys(found)); !slices.Equal(got, []string{"A", "B"}) {
		t.Errorf("a request reaches %v", got)
	}
}

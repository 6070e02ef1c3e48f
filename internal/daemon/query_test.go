package daemon

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// TestQueriesAreReadWhole: every route refuses a parameter that it does not have, one that stands
// there twice, and a query that is none. Each of them would be left out, and the answer be to
// another question. The parameters are those of the document.
func TestQueriesAreReadWhole(t *testing.T) {
	b, d := start(t, ""), openDocument(t)
	id := newID().String()
	for _, r := range routes {
		path := documented(r.path)
		var want []string
		op, _ := d.find("paths", path, strings.ToLower(r.method))
		parameters, _ := op["parameters"].([]any)
		for _, p := range parameters {
			m := p.(map[string]any)
			if ref, ok := m["$ref"].(string); ok {
				m = d.at(strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
			}
			if m["in"] == "query" {
				want = append(want, m["name"].(string))
			}
		}
		if got := queries[r.method+" "+r.path]; !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))) && strings.HasPrefix(r.path, "/v1/") {
			t.Errorf("%s %s has the parameters %v, in the document %v", r.method, path, got, want)
		}
		if !strings.HasPrefix(r.path, "/v1/") {
			continue
		}
		refused := map[string]string{"nope=1": "/nope", "Follow=1": "/Follow", "a;b": "", "%zz": "", "x=%": ""}
		for _, name := range queries[r.method+" "+r.path] {
			refused[name+";x"] = ""
			if name != "trace" || !strings.HasSuffix(r.path, "rollback-plan") {
				refused[name+"=0&"+name+"=0"] = "/" + name
			}
		}
		for query, pointer := range refused {
			at := strings.NewReplacer("{id}", id, "{digest}", strings.Repeat("a", 64)).Replace(path)
			status, _, raw := b.raw(r.method, at+"?"+query, "")
			var p wire.Problem
			if err := json.Unmarshal(raw, &p); err != nil || status != 422 || p.Code != tga.ValidationError || p.Pointer != pointer ||
				!strings.Contains(p.Detail, "parameter") && !strings.Contains(p.Detail, "query") {
				t.Errorf("%s %s?%s: %d %s", r.method, at, query, status, raw)
			}
		}
	}
}

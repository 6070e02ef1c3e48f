package tools

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/tgad/tgad/schemas/tga"
)

// doubling is a chain of n schemas. Each refers to the next one twice.
func doubling(n int, keyword, end string) string {
	var defs []string
	for i := range n {
		defs = append(defs, fmt.Sprintf(`"d%d":{%q:[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]}`, i, keyword, i+1, i+1))
	}
	return fmt.Sprintf(`"$defs":{%s,"d%d":%s}`, strings.Join(defs, ","), n, end)
}

// TestHostileSchemasAreBounded: a schema that takes endless steps, or twice as many at each
// level, is refused before it is used, whatever keyword causes that.
func TestHostileSchemasAreBounded(t *testing.T) {
	r := newResolver(t, Options{})
	const levels = 20
	deep := strings.Repeat(`{"x":`, levels) + "1" + strings.Repeat("}", levels)
	list := `{"x":` + strings.Repeat("[", levels) + strings.Repeat("]", levels) + "}"
	for name, c := range map[string]struct{ schema, args string }{
		"anyOf":          {`{"$ref":"#/$defs/d0",` + doubling(levels, "anyOf", `{"type":"string"}`) + `}`, `{}`},
		"oneOf":          {`{"$ref":"#/$defs/d0",` + doubling(levels, "oneOf", `{"required":["a"]}`) + `}`, `{}`},
		"allOf":          {`{"$ref":"#/$defs/d0",` + doubling(levels, "allOf", `{}`) + `}`, `{}`},
		"not":            {`{"not":{"$ref":"#/$defs/d0"},` + doubling(levels, "anyOf", `{"required":["a"]}`) + `}`, `{}`},
		"draft 7":        {`{"$schema":"http://json-schema.org/draft-07/schema#","allOf":[{"$ref":"#/$defs/d0"}],` + doubling(levels, "anyOf", `{"type":"string"}`) + `}`, `{}`},
		"members":        {`{"$defs":{"a":{"anyOf":[{"properties":{"x":{"$ref":"#/$defs/a"}},"required":["y"]},{"properties":{"x":{"$ref":"#/$defs/a"}},"required":["y"]}]}},"$ref":"#/$defs/a"}`, deep},
		"other members":  {`{"$defs":{"a":{"anyOf":[{"additionalProperties":{"$ref":"#/$defs/a"},"required":["y"]},{"patternProperties":{"x":{"$ref":"#/$defs/a"}},"required":["y"]}]}},"$ref":"#/$defs/a"}`, deep},
		"elements":       {`{"$defs":{"a":{"allOf":[{"items":{"$ref":"#/$defs/a"}},{"contains":{"$ref":"#/$defs/a"}}]}},"properties":{"x":{"$ref":"#/$defs/a"}}}`, list},
		"first elements": {`{"$defs":{"a":{"allOf":[{"prefixItems":[{"$ref":"#/$defs/a"}]},{"unevaluatedItems":{"$ref":"#/$defs/a"}}]}},"properties":{"x":{"$ref":"#/$defs/a"}}}`, list},
		"dependent":      {`{"$defs":{"a":{"properties":{"x":{"$ref":"#/$defs/a"}},"dependentSchemas":{"x":{"properties":{"x":{"$ref":"#/$defs/a"}}}}}},"$ref":"#/$defs/a"}`, deep},
		"if":             {`{"$defs":{"a":{"if":{"properties":{"x":{"$ref":"#/$defs/a"}}},"then":{"properties":{"x":{"$ref":"#/$defs/a"}}}}},"$ref":"#/$defs/a"}`, deep},
		"dynamic":        {`{"$dynamicAnchor":"n","allOf":[{"properties":{"x":{"$dynamicRef":"#n"}}},{"properties":{"x":{"$dynamicRef":"#n"}}}]}`, deep},
		"recursive":      {`{"$schema":"https://json-schema.org/draft/2019-09/schema","$recursiveAnchor":true,"allOf":[{"properties":{"x":{"$recursiveRef":"#"}}},{"properties":{"x":{"$recursiveRef":"#"}}}]}`, deep},
		"no way out":     {`{"anyOf":[{"$ref":"#"},{"required":["a"]}]}`, `{}`},
		"patterns":       {`{"patternProperties":{` + many(400, `"a%d":{}`) + `}}`, `{` + many(400, `"b%d":1`) + `}`},
		"values":         {`{"properties":{"x":{"items":{"enum":[` + many(400, `%d`) + `]}}}}`, `{"x":[` + many(400, `1%d`) + `]}`},
	} {
		if got, err := check(r, c.schema, c.args); !strings.HasPrefix(got, "LIMIT_EXCEEDED") {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// many returns a list of numbered elements.
func many(n int, format string) string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf(format, i)
	}
	return strings.Join(list, ",")
}

// TestStepsLimit checks the limit and one past it: one step for the object, one for the list, one
// for each element.
func TestStepsLimit(t *testing.T) {
	r := newResolver(t, Options{})
	const schema = `{"properties":{"x":{"items":{}}}}`
	for n, want := range map[int]string{maxSteps - 2: "", maxSteps - 1: "LIMIT_EXCEEDED"} {
		args := `{"x":[` + strings.Repeat("1,", n-1) + `1]}`
		if got, err := check(r, schema, args); !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("%d elements: %q, %v", n, got, err)
		}
	}
}

// TestSchemasThatRecurHonestlyAreChecked: trees, lists of alternatives, and the metaschema.
func TestSchemasThatRecurHonestlyAreChecked(t *testing.T) {
	r := newResolver(t, Options{})
	const tree = `{"$defs":{"t":{"type":"object","properties":{"left":{"$ref":"#/$defs/t"},"right":{"$ref":"#/$defs/t"},"n":{"type":"integer"}},"additionalProperties":false}},"$ref":"#/$defs/t"}`
	var grow func(n int) string
	grow = func(n int) string {
		if n == 0 {
			return `{"n":1}`
		}
		return `{"left":` + grow(n-1) + `,"right":` + grow(n-1) + `}`
	}
	const value = `{"$defs":{"v":{"anyOf":[{"type":"string"},{"type":"array","items":{"$ref":"#/$defs/v"}},{"type":"object","additionalProperties":{"$ref":"#/$defs/v"}}]}},"additionalProperties":{"$ref":"#/$defs/v"}}`
	deep := strings.Repeat(`{"x":[`, 30) + `"end"` + strings.Repeat("]}", 30)
	for name, c := range map[string]struct{ schema, args, want string }{
		"a tree":              {tree, grow(10), ""},
		"a tree with a fault": {tree, strings.Replace(grow(10), "1", `"1"`, 1), "SCHEMA_VIOLATION"},
		"values":              {value, deep, ""},
		"values with a fault": {value, strings.Replace(deep, `"end"`, "1", 1), "SCHEMA_VIOLATION"},
		"a schema":            {`{"$ref":"https://json-schema.org/draft/2020-12/schema"}`, `{"type":"object","properties":{"a":{"type":"string"}}}`, ""},
		"no schema":           {`{"$ref":"https://json-schema.org/draft/2020-12/schema"}`, `{"properties":{"a":{"type":"strange"}}}`, "SCHEMA_VIOLATION"},
	} {
		if got, err := check(r, c.schema, c.args); !strings.HasPrefix(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// drafts are the drafts that a schema may name, and the name of the place for definitions in
// each.
var drafts = []struct{ name, uri, defs string }{
	{"4", "http://json-schema.org/draft-04/schema#", "definitions"},
	{"6", "http://json-schema.org/draft-06/schema#", "definitions"},
	{"7", "http://json-schema.org/draft-07/schema#", "definitions"},
	{"2019-09", "https://json-schema.org/draft/2019-09/schema", "$defs"},
	{"2020-12", "https://json-schema.org/draft/2020-12/schema", "$defs"},
}

// ofDraft makes a schema of a draft from its members, in which DEFS stands for the place for
// definitions.
func ofDraft(uri, defs, members string) string {
	return fmt.Sprintf(`{"$schema":%q,%s}`, uri, strings.ReplaceAll(members, "DEFS", defs))
}

// TestSchemasThatNeverEndAreLeftOut: a schema that refers to itself at the same place can check
// nothing. In every draft it is left out with a warning, and never used.
func TestSchemasThatNeverEndAreLeftOut(t *testing.T) {
	endless := map[string]string{
		"ref":        `"$ref":"#"`,
		"allOf":      `"allOf":[{"$ref":"#"}]`,
		"anyOf":      `"anyOf":[{"type":"object"},{"$ref":"#"}]`,
		"oneOf":      `"oneOf":[{"$ref":"#"},{"required":["a"]}]`,
		"not":        `"not":{"$ref":"#"}`,
		"definition": `"DEFS":{"a":{"$ref":"#/DEFS/a"}},"allOf":[{"$ref":"#/DEFS/a"}]`,
		"two":        `"DEFS":{"a":{"allOf":[{"$ref":"#/DEFS/b"}]},"b":{"anyOf":[{"$ref":"#/DEFS/a"}]}},"allOf":[{"$ref":"#/DEFS/a"}]`,
		"doubling":   `"allOf":[{"$ref":"#/DEFS/d0"}],` + strings.ReplaceAll(doubling(20, "anyOf", `{}`), "$defs", "DEFS"),
	}
	from := func(first string, more map[string]string) map[string]string {
		out := map[string]string{}
		for name, members := range more {
			out[first+" "+name] = members
		}
		return out
	}
	own := map[string]map[string]string{
		"7":       from("own", map[string]string{"if": `"if":{"$ref":"#"}`, "then": `"if":{},"then":{"$ref":"#"}`}),
		"2019-09": from("own", map[string]string{"recursive": `"$recursiveRef":"#"`, "anchored": `"$recursiveAnchor":true,"$recursiveRef":"#"`}),
		"2020-12": from("own", map[string]string{"dynamic": `"$dynamicRef":"#"`, "anchored": `"$dynamicAnchor":"n","$dynamicRef":"#n"`}),
	}
	for _, d := range drafts {
		for _, list := range []map[string]string{endless, own[d.name]} {
			for name, members := range list {
				schema := ofDraft(d.uri, d.defs, members)
				s := &shelf{tools: []mcpTool{define("good", anyObject), define("bad", schema)}}
				r := newResolver(t, Options{Servers: map[string]Lister{"s": s}})
				tools, warnings := resolve(t, r, discover("s"))
				if n, got := namesOf(tools), codes(warnings); len(n) != 1 || n[0] != "good" || len(got) != 1 || got[0] != "bad LIMIT_EXCEEDED" {
					t.Errorf("draft %s, %s: %v, %v", d.name, name, n, warnings)
				}
				if got, err := check(r, schema, `{"a":1}`); got != string(tga.LimitExceeded) {
					t.Errorf("draft %s, %s: %q, %v", d.name, name, got, err)
				}
			}
		}
	}
}

// TestHonestRecursionInEveryDraft: recursion through members, elements and additional members, as
// deep as the arguments are. A violation deep down is found. If the alternatives double at each
// level, the steps are bounded.
func TestHonestRecursionInEveryDraft(t *testing.T) {
	r := newResolver(t, Options{})
	const deep = 20
	chain := func(open, end, last string) string {
		return strings.Repeat(open, deep) + last + strings.Repeat(end, deep)
	}
	for _, d := range drafts {
		for name, c := range map[string]struct{ members, open, end string }{
			"members":       {`"type":"object","properties":{"x":{"$ref":"#"},"n":{"type":"integer"}}`, `{"x":`, `}`},
			"elements":      {`"type":"object","properties":{"x":{"type":"array","items":{"$ref":"#"}},"n":{"type":"integer"}}`, `{"x":[`, `]}`},
			"other members": {`"type":"object","properties":{"n":{"type":"integer"}},"additionalProperties":{"$ref":"#"}`, `{"x":`, `}`},
			"definition":    {`"DEFS":{"t":{"type":"object","properties":{"x":{"$ref":"#/DEFS/t"},"n":{"type":"integer"}}}},"allOf":[{"$ref":"#/DEFS/t"}]`, `{"x":`, `}`},
		} {
			schema := ofDraft(d.uri, d.defs, c.members)
			r := newResolver(t, Options{Servers: map[string]Lister{"s": &shelf{tools: []mcpTool{define("x", schema)}}}})
			tools, warnings := resolve(t, r, discover("s"))
			if len(tools) != 1 || len(warnings) != 0 {
				t.Errorf("draft %s, %s: %v", d.name, name, warnings)
			}
			if got, err := check(r, schema, chain(c.open, c.end, `{"n":1}`)); got != "" {
				t.Errorf("draft %s, %s: %v", d.name, name, err)
			}
			if got, err := check(r, schema, chain(c.open, c.end, `{"n":"1"}`)); !strings.HasPrefix(got, "SCHEMA_VIOLATION /x") || !strings.HasSuffix(got, "/n") {
				t.Errorf("draft %s, %s: a fault %d deep: %q, %v", d.name, name, deep, got, err)
			}
		}
		// Two ways to each member: two steps, four, eight.
		doubles := ofDraft(d.uri, d.defs, `"DEFS":{"a":{"anyOf":[{"properties":{"x":{"$ref":"#/DEFS/a"}},"required":["y"]},{"properties":{"x":{"$ref":"#/DEFS/a"}},"required":["y"]}]}},"allOf":[{"$ref":"#/DEFS/a"}]`)
		if _, err := compile(json.RawMessage(doubles)); err != nil {
			t.Errorf("draft %s: %v", d.name, err)
		}
		if got, err := check(r, doubles, chain(`{"x":`, `}`, `1`)); got != string(tga.LimitExceeded) {
			t.Errorf("draft %s: %q, %v", d.name, got, err)
		}
	}
}

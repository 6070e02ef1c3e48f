package tools

import (
	"fmt"
	"strings"
	"testing"
)

// doubling is a chain of schemas each of which names the next one twice, n deep.
func doubling(n int, keyword, end string) string {
	var defs []string
	for i := range n {
		defs = append(defs, fmt.Sprintf(`"d%d":{%q:[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]}`, i, keyword, i+1, i+1))
	}
	return fmt.Sprintf(`"$defs":{%s,"d%d":%s}`, strings.Join(defs, ","), n, end)
}

// TestHostileSchemasAreBounded: a schema that takes steps without end, or twice as many for
// each level, is refused before it is tried, whatever keyword it does so by.
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

// many is a list of numbered things.
func many(n int, format string) string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf(format, i)
	}
	return strings.Join(list, ",")
}

// TestStepsLimit at the limit and one past it: one for the object, one for the list, one for
// each of its elements.
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

// TestSchemasThatRecurHonestlyAreChecked: trees, lists of alternatives, and the schema of
// schemas.
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

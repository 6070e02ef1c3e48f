package tools

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/tgad/tgad/schemas/tga"
)

// check validates and returns "CODE pointer", or "" for no error.
func check(r *Resolver, schema, args string) (string, error) {
	err := r.Validate(withSchema(schema), []byte(args))
	var e *tga.Error
	if !errors.As(err, &e) {
		if err != nil {
			return "no code", err
		}
		return "", nil
	}
	return strings.TrimSpace(string(e.Code) + " " + e.Pointer), err
}

func TestViolationNamesThePlace(t *testing.T) {
	r := newResolver(t, Options{})
	const schema = `{"type":"object","required":["to"],"additionalProperties":false,"properties":{
		"to":{"type":"string","minLength":1200},
		"n":{"type":"integer","maximum":9007199254740992},
		"half":{"multipleOf":0.5},
		"list":{"type":"array","items":{"type":"object","properties":{"a/b~c":{"enum":["x","y"]}}}},
		"one":{"oneOf":[{"type":"string"},{"type":"object","required":["id"]}]},
		"some":{"type":"array","contains":{"type":"string"}},
		"map":{"type":"object","propertyNames":{"pattern":"^[a-z]+$"}}}}`
	long := strings.Repeat("x", 1200)
	for _, c := range []struct{ args, want, says string }{
		{`{"to":"` + long + `"}`, "", ""},
		{`{}`, "SCHEMA_VIOLATION", "missing property 'to'"},
		{`{"to":"x"}`, "SCHEMA_VIOLATION /to", "minLength: got 1, want 1200"},
		{`{"to":"` + long + `","b":1,"a":2}`, "SCHEMA_VIOLATION", "additional properties 'a', 'b' not allowed"},
		{`{"to":"` + long + `","n":"1"}`, "SCHEMA_VIOLATION /n", "got string, want integer"},
		{`{"to":"` + long + `","half":0.3}`, "SCHEMA_VIOLATION /half", "got 0.3, want a multiple of 0.5"},
		{`{"to":"` + long + `","list":[{},{"a/b~c":"z"}]}`, "SCHEMA_VIOLATION /list/1/a~1b~0c", "'x', 'y'"},
		{`{"to":"` + long + `","one":{}}`, "SCHEMA_VIOLATION /one", "got object, want string; or missing property 'id'"},
		{`{"to":"` + long + `","some":[1]}`, "SCHEMA_VIOLATION /some", "no items match"},
		{`{"to":"` + long + `","map":{"A":1}}`, "SCHEMA_VIOLATION /map", "invalid propertyName 'A'"},
		{`{"to":"` + long + `","map":{"A":1},"some":["A"],"one":{"id":1,"A":2}}`, "SCHEMA_VIOLATION", "invalid propertyName 'A'"},
		{`{"to":1,"n":1.5,"half":"x"}`, "SCHEMA_VIOLATION /n", "and 1 more"},
		{`{"to":"` + long + `","list":1,"half":0.3}`, "SCHEMA_VIOLATION /half", "and 1 more"},
		{`[1]`, "VALIDATION_ERROR", "want a JSON object"},
		{`{"to":`, "VALIDATION_ERROR", ""},
		{`{} {}`, "VALIDATION_ERROR", ""},
	} {
		// Maps are visited in random order; the answer must be the same each time.
		for range 20 {
			got, err := check(r, schema, c.args)
			if got != c.want || (err != nil && !strings.Contains(err.Error(), c.says)) {
				t.Fatalf("%.60s: got %q (%v), want %q saying %q", c.args, got, err, c.want, c.says)
			}
		}
	}
}

func TestNumbersAreExact(t *testing.T) {
	r := newResolver(t, Options{})
	const most = `{"type":"object","properties":{"n":{"type":"integer","maximum":9007199254740992}}}`
	if got, err := check(r, most, `{"n":9007199254740992}`); got != "" {
		t.Errorf("at the bound: %v", err)
	}
	got, err := check(r, most, `{"n":9007199254740993}`)
	if got != "SCHEMA_VIOLATION /n" || !strings.Contains(err.Error(), "got 9007199254740993, want at most 9007199254740992") {
		t.Errorf("one past it: %v", err)
	}
	const fixed = `{"type":"object","properties":{"n":{"const":9007199254740993}}}`
	if got, _ := check(r, fixed, `{"n":9007199254740992}`); got != "SCHEMA_VIOLATION /n" {
		t.Errorf("two numbers that are one double: %q", got)
	}
	if got, err := check(r, fixed, `{"n":9007199254740993}`); got != "" {
		t.Errorf("the number itself: %v", err)
	}
	const whole = `{"type":"object","properties":{"n":{"type":"integer"}}}`
	for args, want := range map[string]string{
		`{"n":1e400}`:          "", // not a double, but an integer
		`{"n":1e401}`:          "LIMIT_EXCEEDED /n",
		`{"n":1e-401}`:         "LIMIT_EXCEEDED /n",
		`{"n":1e999999999999}`: "LIMIT_EXCEEDED /n",
		`{"n":` + strings.Repeat("9", maxDigits) + `}`:   "",
		`{"n":` + strings.Repeat("9", maxDigits+1) + `}`: "LIMIT_EXCEEDED /n",
	} {
		if got, err := check(r, whole, args); got != want {
			t.Errorf("%.30s: got %q (%v), want %q", args, got, err, want)
		}
	}
}

func TestArgumentLimits(t *testing.T) {
	r := newResolver(t, Options{MaxArgs: 20})
	for args, want := range map[string]string{
		`{"a":"` + strings.Repeat("x", 12) + `"}`: "", // 20 bytes
		`{"a":"` + strings.Repeat("x", 13) + `"}`: "LIMIT_EXCEEDED",
	} {
		if got, err := check(r, anyObject, args); got != want {
			t.Errorf("%d bytes: got %q (%v), want %q", len(args), got, err, want)
		}
	}
	r = newResolver(t, Options{})
	nested := func(n int) string { return `{"a":` + strings.Repeat("[", n-1) + strings.Repeat("]", n-1) + `}` }
	if got, err := check(r, anyObject, nested(maxDepth)); got != "" {
		t.Errorf("depth %d: %v", maxDepth, err)
	}
	if got, _ := check(r, anyObject, nested(maxDepth+1)); !strings.HasPrefix(got, "LIMIT_EXCEEDED /a/0") {
		t.Errorf("depth %d: %q", maxDepth+1, got)
	}
}

// TestDraftsBySchema: a keyword that each draft interprets in its own way.
func TestDraftsBySchema(t *testing.T) {
	r := newResolver(t, Options{})
	for _, c := range []struct{ name, schema, good, bad string }{
		{"4", `{"$schema":"http://json-schema.org/draft-04/schema#","type":"object","properties":{"n":{"maximum":5,"exclusiveMaximum":true}}}`, `{"n":4}`, `{"n":5}`},
		{"6", `{"$schema":"http://json-schema.org/draft-06/schema#","type":"object","properties":{"n":{"exclusiveMaximum":5}}}`, `{"n":4}`, `{"n":5}`},
		{"7", `{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","if":{"required":["a"]},"then":{"required":["b"]}}`, `{"a":1,"b":1}`, `{"a":1}`},
		{"2019-09", `{"$schema":"https://json-schema.org/draft/2019-09/schema","type":"object","properties":{"n":{"items":[{"type":"string"}],"unevaluatedItems":false}}}`, `{"n":["x"]}`, `{"n":["x",1]}`},
		{"2020-12", `{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","properties":{"n":{"prefixItems":[{"type":"string"}],"items":false}}}`, `{"n":["x"]}`, `{"n":["x",1]}`},
		{"none is 2020-12", `{"type":"object","properties":{"n":{"prefixItems":[{"type":"string"}]}}}`, `{"n":["x"]}`, `{"n":[1]}`},
	} {
		if got, err := check(r, c.schema, c.good); got != "" {
			t.Errorf("draft %s: %s is refused: %v", c.name, c.good, err)
		}
		if got, _ := check(r, c.schema, c.bad); !strings.HasPrefix(got, "SCHEMA_VIOLATION") {
			t.Errorf("draft %s: %s passes (%q)", c.name, c.bad, got)
		}
	}
}

// TestSchemaReachesNothing: a schema that names a file or a host is unusable, and neither is
// accessed: the file's schema would accept, and the host counts requests.
func TestSchemaReachesNothing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "s.json")
	if err := os.WriteFile(file, []byte(`{}`), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dialled := make(chan struct{})
	go func() {
		if c, err := l.Accept(); err == nil {
			_ = c.Close() // only the connection counts
			close(dialled)
		}
	}()
	defer l.Close()
	for _, ref := range []string{"file://" + file, "http://" + l.Addr().String() + "/s.json", "other.json", "urn:x:y"} {
		for _, schema := range []string{
			fmt.Sprintf(`{"type":"object","properties":{"a":{"$ref":%q}}}`, ref),
			fmt.Sprintf(`{"$schema":%q,"type":"object"}`, ref),
		} {
			r := newResolver(t, Options{Servers: map[string]Lister{"s": &shelf{tools: []mcpTool{define("x", schema)}}}})
			tools, warnings := resolve(t, r, discover("s"))
			if got := codes(warnings); len(tools) != 0 || len(got) != 1 || got[0] != "x SCHEMA_VIOLATION" {
				t.Errorf("%s: %v, %v", schema, namesOf(tools), warnings)
			}
			if _, err := compile(json.RawMessage(schema)); !errors.Is(err, tga.SchemaViolation) {
				t.Errorf("%s: %v", schema, err)
			}
		}
	}
	select {
	case <-dialled:
		t.Error("a schema made this process dial")
	default:
	}
	const inside = `{"$defs":{"s":{"type":"string"}},"type":"object","properties":{"a":{"$ref":"#/$defs/s"}}}`
	if _, err := compile(json.RawMessage(inside)); err != nil {
		t.Errorf("a reference inside the document: %v", err)
	}
}

func TestUnusableSchemasAreLeftOut(t *testing.T) {
	for name, schema := range map[string]string{
		"look-ahead":     `{"type":"object","properties":{"a":{"pattern":"^(?!x)"}}}`,
		"back-reference": `{"type":"object","patternProperties":{"(a)\\1":{}}}`,
		"no schema":      `{"type":"object","properties":[]}`,
		"other root":     `{"type":"string"}`,
		"no object":      `true`,
		"a double loses": `{"type":"object","properties":{"a":{"maximum":18446744073709551615}}}`,
		"broken":         `{"type":`,
		"long exponent":  `{"type":"object","properties":{"a":{"maximum":1e999999999}}}`,
	} {
		s := &shelf{tools: []mcpTool{define("good", anyObject), {Name: "bad", Definition: []byte(`{"name":"bad","inputSchema":` + schema + `}`)}}}
		r := newResolver(t, Options{Servers: map[string]Lister{"s": s}})
		tools, warnings := resolve(t, r, discover("s"))
		if got := namesOf(tools); len(got) != 1 || got[0] != "good" || len(warnings) != 1 || warnings[0].Tool != "bad" || warnings[0].Code == "" {
			t.Errorf("%s: %v, %v", name, got, warnings)
		}
	}
}

func TestSchemaSizeLimit(t *testing.T) {
	schema := func(n int) string {
		head, tail := `{"description":"`, `","type":"object"}`
		return head + strings.Repeat("x", n-len(head)-len(tail)) + tail
	}
	for n, want := range map[int]int{200: 1, 201: 0} {
		r := newResolver(t, Options{MaxSchema: 200, Servers: map[string]Lister{"s": &shelf{tools: []mcpTool{define("x", schema(n))}}}})
		tools, warnings := resolve(t, r, discover("s"))
		if len(tools) != want || len(warnings) != 1-want {
			t.Errorf("%d bytes: %d tools, %v", n, len(tools), warnings)
		}
		if want == 0 && warnings[0].Code != tga.LimitExceeded {
			t.Errorf("%d bytes: %v", n, warnings)
		}
	}
}

// TestPreparedFormIsStable: a resolved schema equals the one in its record, so a turn that goes
// on after a crash asks the model the same question.
func TestPreparedFormIsStable(t *testing.T) {
	for in, want := range map[string]string{
		``:                               anyObject,
		`null`:                           anyObject,
		`{}`:                             anyObject,
		`{"type":["null","object"]}`:     `{"type":["null","object"]}`,
		` {"type":"object", "a":1.0} `:   `{"a":1,"type":"object"}`,
		`{"properties":{"b":{},"a":{}}}`: `{"properties":{"a":{},"b":{}},"type":"object"}`,
		`{"type":"object","title":"é<"}`: `{"title":"é<","type":"object"}`,
	} {
		got, digest, err := prepare(json.RawMessage(in), 1000)
		if err != nil || string(got) != want || digest != tga.Sum([]byte(want)) {
			t.Errorf("%s: got %s (%v), want %s", in, got, err, want)
		}
		again, _, err := prepare(got, 1000)
		if err != nil || string(again) != want {
			t.Errorf("%s, twice: %s, %v", in, again, err)
		}
	}
}

// TestCompiledIsBounded: the newest schemas are kept, and a dropped one is compiled again.
func TestCompiledIsBounded(t *testing.T) {
	r := newResolver(t, Options{MaxCompiled: 2})
	schema := func(i int) string { return fmt.Sprintf(`{"type":"object","required":["p%d"]}`, i) }
	for range 3 {
		for i := range 5 {
			if got, _ := check(r, schema(i), `{}`); got != "SCHEMA_VIOLATION" {
				t.Fatalf("schema %d: %q", i, got)
			}
			if got, err := check(r, schema(i), fmt.Sprintf(`{"p%d":1}`, i)); got != "" {
				t.Fatalf("schema %d: %v", i, err)
			}
			if n := r.schemas.len(); n > 2 {
				t.Fatalf("%d compiled schemas are kept", n)
			}
		}
	}
	first, err := r.schemas.get(json.RawMessage(schema(4)))
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := r.schemas.get(json.RawMessage(schema(4))); again != first {
		t.Error("a schema that is kept was compiled again")
	}
}

// TestDigestIsNotBelieved: a tool that claims another tool's digest is checked against its
// own schema.
func TestDigestIsNotBelieved(t *testing.T) {
	r := newResolver(t, Options{})
	lax, strict := withSchema(anyObject), withSchema(`{"type":"object","required":["a"]}`)
	if err := r.Validate(lax, []byte(`{}`)); err != nil {
		t.Fatal(err)
	}
	strict.SchemaDigest = lax.SchemaDigest
	if err := r.Validate(strict, []byte(`{}`)); !errors.Is(err, tga.SchemaViolation) {
		t.Errorf("got %v", err)
	}
}

func TestValidateInParallel(t *testing.T) {
	r := newResolver(t, Options{MaxCompiled: 2})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 50 {
				got, err := check(r, fmt.Sprintf(`{"type":"object","properties":{"a":{"minLength":%d}}}`, 2000+i%3), `{"a":""}`)
				if got != "SCHEMA_VIOLATION /a" || !strings.Contains(err.Error(), fmt.Sprintf("want %d", 2000+i%3)) {
					t.Errorf("%q: %v", got, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func (c *compiled) len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.order.Len()
}

package outcome

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/pelletier/go-toml/v2"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
)

// TestMistakesAreRefused: each row is one mistake, and the error names its place.
func TestMistakesAreRefused(t *testing.T) {
	rule := func(r Rule) Tool { return charge(r) }
	many := func(n int) []Rule {
		rules := make([]Rule, n)
		for i := range rules {
			rules[i] = Rule{IsError: yes(), Class: permanent}
		}
		return rules
	}
	statuses := func(n int) []int {
		s := make([]int, n)
		for i := range s {
			s[i] = 402
		}
		return s
	}
	change := func(c Change) Tool { return Tool{Server: "s", Name: "t", Changes: []Change{c}} }
	inverse := func(i Inverse) Tool { return Tool{Server: "s", Name: "t", Inverse: &i} }
	key := func(form string, k Key) Tool { return Tool{Server: "s", Name: "t", Answer: form, Key: k} }
	good := Change{ResourceType: "a", ResourceID: "b", Operation: "c"}
	changes := func(n int) []Change {
		c := make([]Change, n)
		for i := range c {
			c[i] = good
		}
		return c
	}
	for i, c := range []struct {
		at   string // "" = no mistake
		tool Tool
	}{
		{"", Tool{Server: "s", Name: "*"}},
		{"", Tool{Server: strings.Repeat("s", 128), Name: strings.Repeat("t", 128)}},
		{"server", Tool{Server: strings.Repeat("s", 129), Name: "t"}},
		{"server", Tool{Name: "t"}},
		{"server", Tool{Server: "*", Name: "t"}},
		{"name", Tool{Server: "s", Name: strings.Repeat("t", 129)}},
		{"name", Tool{Server: "s"}},
		{"answer", Tool{Server: "s", Name: "t", Answer: "xml"}},
		{"", charge(many(MaxRules)...)},
		{"outcome", charge(many(MaxRules + 1)...)},
		{"", Tool{Server: "s", Name: "t", Changes: changes(MaxRules)}},
		{"change", Tool{Server: "s", Name: "t", Changes: changes(MaxRules + 1)}},

		{"outcome/0/class", rule(Rule{IsError: yes()})},
		{"outcome/0/class", rule(Rule{IsError: yes(), Class: "failed"})},
		{"outcome/0/class", rule(Rule{IsError: yes(), Class: "compensated"})},
		{"outcome/0/pointer", rule(Rule{Class: permanent})},
		{"outcome/0/pointer", rule(Rule{Class: permanent, Equals: "x"})},
		{"outcome/0/pointer", rule(Rule{Class: permanent, Pointer: "/result"})},
		{"outcome/0/pointer", rule(Rule{Class: permanent, Pointer: "/result", Exists: true, Absent: true})},
		{"outcome/0/pointer", rule(Rule{Class: permanent, Pointer: "/result", Exists: true, Equals: ""})},
		{"outcome/0/pointer", rule(Rule{Class: permanent, Pointer: "result", Exists: true})},
		{"outcome/0/pointer", rule(Rule{Class: permanent, Pointer: "/id", Exists: true})},
		{"outcome/0/pointer", rule(Rule{Class: permanent, Pointer: "/error/code", Exists: true})}, // not MCP
		{"outcome/0/pointer", rule(Rule{Class: permanent, Pointer: "/item/x", Exists: true})},
		{"outcome/0/equals", rule(Rule{Class: permanent, Pointer: "/result", Equals: []any{"x"}})},
		{"outcome/0/equals", rule(Rule{Class: permanent, Pointer: "/result", Equals: time.Now()})},
		{"outcome/0/equals", rule(Rule{Class: permanent, Pointer: "/result", Equals: int64(9007199254740993)})},
		{"outcome/0/equals", rule(Rule{Class: permanent, Pointer: "/result", Equals: math.NaN()})},
		{"outcome/0/matches", rule(Rule{Class: permanent, Pointer: "/result", Matches: "("})},
		{"outcome/0/matches", rule(Rule{Class: permanent, Pointer: "/result", Matches: "a)|(b"})},
		{"", rule(Rule{Class: permanent, Pointer: "/result", Matches: strings.Repeat("a", maxPointer)})},
		{"outcome/0/matches", rule(Rule{Class: permanent, Pointer: "/result", Matches: strings.Repeat("a", maxPointer+1)})},
		{"", rule(Rule{Class: permanent, Status: []int{100, 599}})},
		{"outcome/0/status", rule(Rule{Class: permanent, Status: []int{99}})},
		{"outcome/0/status", rule(Rule{Class: permanent, Status: []int{600}})},
		{"", rule(Rule{Class: permanent, Status: statuses(MaxStatuses)})},
		{"outcome/0/status", rule(Rule{Class: permanent, Status: statuses(MaxStatuses + 1)})},
		{"outcome/0/status", Tool{Server: "s", Name: "t", Answer: FormMCP, Rules: []Rule{{Status: []int{402}, Class: permanent}}}},

		{"", change(good)},
		{"change/0/resource_type", change(Change{ResourceID: "b", Operation: "c"})},
		{"change/0/resource_id", change(Change{ResourceType: "a", Operation: "c"})},
		{"change/0/operation", change(Change{ResourceType: "a", ResourceID: "b"})},
		{"change/0/each", change(Change{Each: "/items", ResourceType: "a", ResourceID: "b", Operation: "c"})},
		{"change/0/resource_id", change(Change{ResourceType: "a", ResourceID: "{/item/id}", Operation: "c"})}, // without each
		{"change/0/etag", change(Change{ResourceType: "a", ResourceID: "b", Operation: "c", ETag: "{/x}"})},

		{"", inverse(Inverse{Tool: "undo", Args: "{}"})},
		{"inverse/name", inverse(Inverse{Args: "{}"})},
		{"inverse/server", inverse(Inverse{Server: "a b", Tool: "undo", Args: "{}"})},
		{"inverse/args", inverse(Inverse{Tool: "undo"})},
		{"inverse/args", inverse(Inverse{Tool: "undo", Args: "[]"})},
		{"inverse/args", inverse(Inverse{Tool: "undo", Args: `"{/args}"`})},
		{"inverse/args", inverse(Inverse{Tool: "undo", Args: `{"a":1,"a":2}`})},
		{"inverse/args", inverse(Inverse{Tool: "undo", Args: `{"a":9007199254740993}`})},
		{"inverse/args", inverse(Inverse{Tool: "undo", Args: `{"a":[{"b":"{/item/x}"}]}`})},
		{"inverse/args", inverse(Inverse{Tool: "undo", Args: `{"a":"{/args/x"}`})},
		{"", inverse(Inverse{Tool: "undo", Args: "{}" + strings.Repeat(" ", maxTemplate-2)})},
		{"inverse/args", inverse(Inverse{Tool: "undo", Args: "{}" + strings.Repeat(" ", maxTemplate-1)})},

		{"", key("", Key{Argument: "/a/b", Header: "Idempotency-Key"})},
		{"", key(FormMCP, Key{Meta: "example.com/key"})},
		{"", key(FormMCP, Key{Meta: "key"})},
		{"key/argument", key("", Key{Argument: "a"})},
		{"key/header", key("", Key{Header: "X Y"})},
		{"key/header", key("", Key{Header: "X\r\nY"})},
		{"key/header", key("", Key{Header: "content-Length"})},
		{"key/header", key("", Key{Header: "Authorization"})},
		{"key/header", key("", Key{Header: "TGAD-Attempt"})},
		{"", key("", Key{Header: strings.Repeat("h", 128)})},
		{"key/header", key("", Key{Header: strings.Repeat("h", 129)})},
		{"key/meta", key("", Key{Meta: "key"})}, // not MCP
		{"key/meta", key(FormMCP, Key{Meta: "progressToken"})},
		{"key/meta", key(FormMCP, Key{Meta: "traceparent"})},
		{"key/meta", key(FormMCP, Key{Meta: "mcp/key"})},
		{"key/meta", key(FormMCP, Key{Meta: "io.modelcontextprotocol/key"})},
		{"key/meta", key(FormMCP, Key{Meta: "dev.tgad/attempt"})},
		{"key/meta", key(FormMCP, Key{Meta: "a b"})},
		{"key/meta", key(FormMCP, Key{Meta: "a/b/c"})},
		{"", key(FormMCP, Key{Meta: strings.Repeat("m", 128)})},
		{"key/meta", key(FormMCP, Key{Meta: strings.Repeat("m", 129)})},
	} {
		_, err := Compile(Config{Tools: []Tool{{Server: "first", Name: "row"}, c.tool}})
		if c.at == "" {
			if err != nil {
				t.Errorf("case %d: %v", i, err)
			}
			continue
		}
		var e *tga.Error
		if !errors.As(err, &e) || e.Code != tga.ValidationError || e.Pointer != "/tool/1/"+c.at {
			t.Errorf("case %d: %v, want a mistake at /tool/1/%s", i, err, c.at)
		}
	}
	if _, err := Compile(Config{Tools: []Tool{charge(), charge()}}); !errors.Is(err, tga.ValidationError) {
		t.Errorf("one tool twice: %v", err)
	}
}

// TestConfigurationIsReadFromTOML: the shape in the package comment, strictly read.
func TestConfigurationIsReadFromTOML(t *testing.T) {
	const text = `
[[tool]]
server = "payments"
name   = "charge"
answer = "json"
[[tool.outcome]]
pointer  = "/result/code"
equals   = 7
status   = [402]
is_error = true
class    = "retryable_failure"
[[tool.change]]
each          = "/result/items"
resource_type = "charge"
resource_id   = "{/item/id}"
operation     = "create"
version       = "{/item/version}"
etag          = "{/item/etag}"
external_ref  = "https://pay.example/{/item/id}"
[tool.inverse]
server = "payments"
name   = "refund"
args   = '{"charge":"{/result/id}","amount":"{/args/amount}","note":"undo"}'
[tool.key]
argument = "/order/key"
header   = "X-Request-Id"
[[tool]]
server = "mail"
name   = "*"
answer = "mcp"
[tool.key]
meta   = "example.com/request-id"
`
	var c Config
	if err := toml.NewDecoder(strings.NewReader(text)).DisallowUnknownFields().Decode(&c); err != nil {
		t.Fatal(err)
	}
	r, err := Compile(c)
	if err != nil {
		t.Fatal(err)
	}
	reply := failure(`{"code":7.0}`)
	if err := r.Outcome(call(`{}`), reply); err != nil || reply.Class != ledger.ClassRetryable {
		t.Errorf("%v, %v", reply.Class, err)
	}
	if k := r.Key("payments", "charge"); k != (Key{Argument: "/order/key", Header: "X-Request-Id"}) {
		t.Errorf("%+v", k)
	}
	if k := r.Key("mail", "send"); k != (Key{Meta: "example.com/request-id"}) {
		t.Errorf("%+v", k)
	}
	if k := r.Key("none", "send"); k != (Key{}) {
		t.Errorf("%+v", k)
	}
}

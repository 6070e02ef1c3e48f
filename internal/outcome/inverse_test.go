package outcome

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

func TestChanges(t *testing.T) {
	one := Change{
		ResourceType: "charge", ResourceID: "{/result/id}", Operation: "create",
		Version: "{/result/version}", ETag: "{/result/etag}", ExternalRef: "https://pay.example/{/args/account}/{/result/id}",
	}
	each := Change{Each: "/result/items", ResourceType: "line", ResourceID: "{/result/id}-{/item/n}", Operation: "{/item/op}"}
	tool := charge()
	tool.Changes = []Change{one, each}
	r := compile(t, tool)
	line := func(n, op string) tga.StateChange {
		return tga.StateChange{ResourceType: "line", ResourceID: "ch_1-" + n, Operation: op}
	}
	for name, c := range map[string]struct {
		result string
		want   []tga.StateChange
		says   []string
	}{
		"all": {
			`{"id":"ch_1","version":9007199254740993,"etag":"\"e\"","items":[{"n":1,"op":"a"},{"n":2,"op":"b"}]}`,
			[]tga.StateChange{
				{ResourceType: "charge", ResourceID: "ch_1", Operation: "create", Version: "9007199254740993", ETag: `"e"`, ExternalRef: "https://pay.example/acc/ch_1"},
				line("1", "a"), line("2", "b"),
			}, nil,
		},
		"optional ones absent": {
			`{"id":"ch_1","version":null,"items":[]}`,
			[]tga.StateChange{{ResourceType: "charge", ResourceID: "ch_1", Operation: "create", ExternalRef: "https://pay.example/acc/ch_1"}}, nil,
		},
		"one element incomplete": {
			`{"id":"ch_1","items":[{"n":1,"op":"a"},{"n":2},{"n":3,"op":"c"},7]}`,
			[]tga.StateChange{
				{ResourceType: "charge", ResourceID: "ch_1", Operation: "create", ExternalRef: "https://pay.example/acc/ch_1"},
				line("1", "a"), line("3", "c"),
			},
			[]string{"change 1, item 1, left out: operation: there is nothing at /item/op", "item 3, left out: resource_id"},
		},
		"an optional one is no scalar": {`{"id":"ch_1","etag":[],"items":[]}`, nil, []string{"change 0 left out: etag: /result/etag is an array"}},
		"an optional one is ambiguous": {`{"id":"ch_1","etag":"a","etag":"b","items":[]}`, nil, []string{"change 0 left out: etag"}},
		"no id":                        {`{"items":[{"n":1,"op":"a"}]}`, nil, []string{"change 0 left out: resource_id: there is nothing at /result/id", "change 1, item 0, left out"}},
		"empty id":                     {`{"id":"","items":[]}`, nil, []string{"resource_id has 0 bytes"}},
		"no array":                     {`{"id":"ch_1","items":{}}`, []tga.StateChange{{ResourceType: "charge", ResourceID: "ch_1", Operation: "create", ExternalRef: "https://pay.example/acc/ch_1"}}, []string{"change 1 left out: there is no array at /result/items"}},
		"no JSON":                      {`done`, nil, []string{"change 0 left out", "change 1 left out"}},
		"nothing":                      {``, nil, []string{"change 0 left out"}},
	} {
		reply := &runtime.Reply{Status: tga.StatusSuccess, Result: []byte(c.result)}
		err := r.Outcome(call(`{"account":"acc"}`), reply)
		if !slices.Equal(reply.Changes, c.want) {
			t.Errorf("%s: %+v", name, reply.Changes)
		}
		if (err != nil) != (c.says != nil) {
			t.Errorf("%s: %v", name, err)
		}
		for _, s := range c.says {
			if !strings.Contains(fmt.Sprint(err), s) {
				t.Errorf("%s: %v does not say %q", name, err, s)
			}
		}
	}
}

// TestChangesAreOfCallsThatChangedSomething: a failure changed nothing unless its class is
// compensatable_failure. Changes that the reply has already are kept.
func TestChangesAreOfCallsThatChangedSomething(t *testing.T) {
	tool := charge(Rule{Pointer: "/result/class", Equals: "partly", Class: "compensatable_failure"}, Rule{Pointer: "/result/class", Equals: "none", Class: "success"})
	tool.Changes = []Change{{ResourceType: "a", ResourceID: "b", Operation: "c"}}
	r := compile(t, tool)
	given := []tga.StateChange{{ResourceType: "x", ResourceID: "y", Operation: "z"}}
	for _, c := range []struct {
		reply runtime.Reply
		want  int
	}{
		{runtime.Reply{Status: tga.StatusSuccess}, 1},
		{runtime.Reply{Status: tga.StatusSuccess, Class: ledger.ClassCommitted}, 1},
		{runtime.Reply{Status: tga.StatusSuccess, Class: ledger.ClassSuccess}, 0},
		{runtime.Reply{Status: tga.StatusSuccess, Result: []byte(`{"class":"none"}`)}, 0},
		{runtime.Reply{Status: tga.StatusFailure}, 0},
		{runtime.Reply{Status: tga.StatusFailure, Class: ledger.ClassRetryable}, 0},
		{runtime.Reply{Status: tga.StatusFailure, Result: []byte(`{"class":"partly"}`)}, 1},
		{runtime.Reply{Status: tga.StatusDenied}, 0},
		{runtime.Reply{Status: tga.StatusError}, 0},
	} {
		reply := c.reply
		if err := r.Outcome(call(`{}`), &reply); err != nil || len(reply.Changes) != c.want {
			t.Errorf("%s %v %s: %d changes, %v", reply.Status, c.reply.Class, reply.Result, len(reply.Changes), err)
		}
		reply = c.reply
		reply.Changes = given
		if err := r.Outcome(call(`{}`), &reply); err != nil || !slices.Equal(reply.Changes, given) {
			t.Errorf("given changes became %+v, %v", reply.Changes, err)
		}
	}
}

func TestChangesAtTheLimit(t *testing.T) {
	tool := charge()
	tool.Changes = []Change{{Each: "/result", ResourceType: "a", ResourceID: "{/item}", Operation: "c"}}
	r := compile(t, tool)
	answer := func(n int) *runtime.Reply {
		items := make([]int, n)
		return &runtime.Reply{Status: tga.StatusSuccess, Result: []byte(encode(t, items))}
	}
	reply := answer(tga.MaxStateChanges)
	if err := r.Outcome(call(`{}`), reply); err != nil || len(reply.Changes) != tga.MaxStateChanges {
		t.Errorf("%d changes, %v", len(reply.Changes), err)
	}
	if _, err := tga.EncodeStateChanges(reply.Changes); err != nil {
		t.Error(err)
	}
	reply = answer(tga.MaxStateChanges + 1)
	if err := r.Outcome(call(`{}`), reply); !errors.Is(err, tga.LimitExceeded) || len(reply.Changes) != tga.MaxStateChanges {
		t.Errorf("%d changes, %v", len(reply.Changes), err)
	}
	for n, ok := range map[int]bool{1024: true, 1025: false} {
		reply = &runtime.Reply{Status: tga.StatusSuccess, Result: []byte(encode(t, []string{strings.Repeat("x", n)}))}
		if err := r.Outcome(call(`{}`), reply); (err == nil) != ok || len(reply.Changes) != map[bool]int{true: 1}[ok] {
			t.Errorf("an id of %d bytes: %d changes, %v", n, len(reply.Changes), err)
		}
	}
	for n, more := range map[int]bool{10: false, 11: true} {
		reply = &runtime.Reply{Status: tga.StatusSuccess, Result: []byte("[" + strings.Repeat("{},", n-1) + "{}]")}
		err := r.Outcome(call(`{}`), reply)
		if err == nil || strings.Contains(err.Error(), "1 more left out") != more || strings.Count(err.Error(), "left out: ") != 10 {
			t.Errorf("%d left out: %v", n, err)
		}
	}
	// Of many that are left out a few are named, and all are counted.
	reply = &runtime.Reply{Status: tga.StatusSuccess, Result: []byte("[" + strings.Repeat("{},", 500) + "{}]")}
	err := r.Outcome(call(`{}`), reply)
	if err == nil || !strings.Contains(err.Error(), "491 more left out") || len(err.Error()) > 2000 || strings.Contains(err.Error(), "\n") {
		t.Errorf("%v", err)
	}
}

func undo(t *testing.T, form, args, callArgs, result string) (string, error) {
	t.Helper()
	tool := charge()
	tool.Answer = form
	tool.Inverse = &Inverse{Server: "bank", Tool: "refund", Args: args}
	in, ok, err := compile(t, tool).Inverse(&tga.ToolCall{Call: tga.Proposal{ToolServer: "payments", ToolName: "charge", Args: []byte(callArgs)}}, &tga.ToolEffect{}, []byte(result))
	if err != nil {
		if ok || in.Args != nil || in.Tool != "" {
			t.Errorf("an inverse came with the error %v", err)
		}
		return "", err
	}
	if !ok || in.Server != "bank" || in.Tool != "refund" {
		t.Errorf("%v %+v", ok, in)
	}
	return string(in.Args), nil
}

func TestInverseKeepsValuesExactly(t *testing.T) {
	for _, c := range []struct{ form, template, args, result, want string }{
		{"", `{}`, `{}`, ``, `{}`},
		{"", `{"a":"{/args/x}","b":["{/result/id}",{"c":"{/result/o}"}],"d":1.50,"e":null,"f":true,"g":"{x}"}`,
			`{"x":0.1}`, `{"id":"i","o": {"k" : [1.0, 1e2]}}`,
			`{"a":0.1,"b":["i",{"c":{"k" : [1.0, 1e2]}}],"d":1.50,"e":null,"f":true,"g":"{x}"}`},
		{"", `{"a":"{/result/n}"}`, `{}`, `{"n":1.10}`, `{"a":1.10}`},
		{"", `{"a":"{/result/n}"}`, `{}`, `{"n":9007199254740992}`, `{"a":9007199254740992}`},
		{"", `{"a":"id {/result/n}"}`, `{}`, `{"n":9007199254740993}`, `{"a":"id 9007199254740993"}`},
		{"", `{"a":"{/result/s}"}`, `{}`, `{"s":"\u00fc<\/"}`, `{"a":"\u00fc<\/"}`},
		{"", `{"a":"x{/result/s}"}`, `{}`, `{"s":"\u00fc\"<"}`, `{"a":"xü\"\u003c"}`},
		{"", `{"a":"{/args}"}`, `{"x":1}`, ``, `{"a":{"x":1}}`},
		{"", `{"{/args/x}":"{{/args/x}"}`, `{"x":1}`, ``, `{"{/args/x}":"{/args/x}"}`},
		{FormMCP, `{"a":"{/result/id}"}`, `{}`, `{"content":[{"type":"text","text":"{\"id\":12.0}"}]}`, `{"a":12.0}`},
	} {
		got, err := undo(t, c.form, c.template, c.args, c.result)
		if err != nil || got != c.want {
			t.Errorf("%s: %s, %v", c.template, got, err)
		}
	}
}

func TestInverseNeedsEveryReference(t *testing.T) {
	for _, c := range []struct {
		template, args, result string
		code                   tga.Code
	}{
		{`{"a":"{/result/id}"}`, `{}`, `{}`, tga.SchemaViolation},
		{`{"a":"{/result/id}"}`, `{}`, `{"id":null}`, tga.SchemaViolation},
		{`{"a":"{/result/id}"}`, `{}`, `{"id":1,"id":2}`, tga.SchemaViolation},
		{`{"a":"{/result/id}"}`, `{"id":1}`, `no JSON`, tga.SchemaViolation},
		{`{"a":"{/result/id}"}`, `{"id":1}`, ``, tga.SchemaViolation},
		{`{"a":["x",{"b":"y {/args/id}"}]}`, `{}`, `{"id":1}`, tga.SchemaViolation},
		{`{"a":"y {/args/id}"}`, `{"id":{}}`, ``, tga.SchemaViolation},
		{`{"a":"y {/args/id}"}`, `{"id":null}`, ``, tga.SchemaViolation},
		{`{"a":"{/result/n}"}`, `{}`, `{"n":9007199254740993}`, tga.ValidationError}, // no call can carry it
		{`{"a":"{/result/o}"}`, `{}`, `{"o":{"x":1,"x":1}}`, tga.ValidationError},
		{`{"a":"{/result/s}"}`, `{}`, `{"s":"\ud800"}`, tga.ValidationError},
		{`{"a":"x{/result/s}"}`, `{}`, `{"s":"\ud800"}`, tga.ValidationError},
	} {
		if got, err := undo(t, "", c.template, c.args, c.result); !errors.Is(err, c.code) {
			t.Errorf("%s of %s and %s: %s, %v", c.template, c.args, c.result, got, err)
		}
	}
	if _, ok, err := compile(t, charge()).Inverse(&tga.ToolCall{Call: tga.Proposal{ToolServer: "payments", ToolName: "charge"}}, nil, nil); ok || err != nil {
		t.Errorf("no inverse is configured: %v, %v", ok, err)
	}
	if _, ok, err := compile(t).Inverse(&tga.ToolCall{Call: tga.Proposal{ToolServer: "payments", ToolName: "charge"}}, nil, nil); ok || err != nil {
		t.Errorf("no tool is configured: %v, %v", ok, err)
	}
	// Without a server the inverse is a tool of the same.
	tool := charge()
	tool.Inverse = &Inverse{Tool: "refund", Args: "{}"}
	in, ok, err := compile(t, tool).Inverse(&tga.ToolCall{Call: tga.Proposal{ToolServer: "payments", ToolName: "charge"}}, nil, nil)
	if !ok || err != nil || in.Server != "payments" || in.Tool != "refund" || string(in.Args) != "{}" {
		t.Errorf("%+v, %v, %v", in, ok, err)
	}
}

// TestInverseCarriesAnyValue: the arguments have the JSON value of the answer byte for byte, or
// nothing is sent.
func TestInverseCarriesAnyValue(t *testing.T) {
	r := compile(t, func() Tool {
		tool := charge()
		tool.Inverse = &Inverse{Tool: "refund", Args: `{"v":"{/result/v}"}`}
		return tool
	}())
	c := &tga.ToolCall{Call: tga.Proposal{ToolServer: "payments", ToolName: "charge", Args: []byte(`{}`)}}
	rapid.Check(t, func(t *rapid.T) {
		raw := encode(t, genValue(3).Draw(t, "value"))
		in, _, err := r.Inverse(c, nil, []byte(`{"v":`+raw+`}`))
		if safe := tga.Gate([]byte(raw), tga.Limits{}) == nil; safe != (err == nil) {
			t.Fatalf("%s: %v", raw, err)
		}
		if err == nil && string(in.Args) != `{"v":`+raw+`}` {
			t.Fatalf("%s became %s", raw, in.Args)
		}
	})
}

func TestKeyIsPlaced(t *testing.T) {
	for _, c := range []struct{ args, at, key, want string }{
		{`{}`, "/key", "k", `{"key":"k"}`},
		{`{"b":1.0,"a":[]}`, "/key", "k", `{"a":[],"b":1,"key":"k"}`},
		{`{"o":{"x":1}}`, "/o/key", "k", `{"o":{"key":"k","x":1}}`},
		{`{"key":"k"}`, "/key", "k", `{"key":"k"}`},
		{`{"k\u0065y":"\u006b"}`, "/key", "k", `{"key":"k"}`},
		{`{}`, "/a~1b~0", "k", `{"a/b~":"k"}`},
		{`{}`, "/", "k", `{"":"k"}`},
		{`{}`, "/key", "ü\"\u2028<", `{"key":"ü\"` + "\u2028" + `<"}`},
		{`{"key":"ü\"<"}`, "/key", "ü\"<", `{"key":"ü\"<"}`},
	} {
		got, err := PlaceArgument([]byte(c.args), c.at, c.key)
		if err != nil || string(got) != c.want {
			t.Errorf("%s at %s: %s, %v", c.args, c.at, got, err)
		}
	}
}

func TestKeyReplacesNothing(t *testing.T) {
	for _, c := range []struct{ args, at, key string }{
		{`{"key":"other"}`, "/key", "k"},
		{`{"key":null}`, "/key", "k"},
		{`{"key":""}`, "/key", "k"},
		{`{"key":{}}`, "/key", "k"},
		{`{"key":1}`, "/key", "1"},
		{`{"o":[]}`, "/o/0", "k"},
		{`{"o":["k"]}`, "/o/0", "k"},
		{`{"o":[]}`, "/o/-", "k"},
		{`{"o":"x"}`, "/o/key", "k"},
		{`{}`, "/o/key", "k"},
		{`[]`, "/0", "k"},
		{`"k"`, "/", "k"},
		{`{}`, "", "k"},
		{`{}`, "key", "k"},
		{`{}`, "/~", "k"},
		{`{}`, "/key", ""},
		{`{}`, "/key", "\xff"},
		{`{"a":1,"a":1}`, "/key", "k"},
		{`{`, "/key", "k"},
		{``, "/key", "k"},
	} {
		if got, err := PlaceArgument([]byte(c.args), c.at, c.key); !errors.Is(err, tga.ValidationError) || got != nil {
			t.Errorf("%s at %q: %s, %v", c.args, c.at, got, err)
		}
	}
}

// TestPlacingAddsTheKeyAndNothingElse: placing the key twice gives the same as placing it once, and
// without the key the arguments are unchanged.
func TestPlacingAddsTheKeyAndNothingElse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		members := rapid.MapOf(rapid.String(), genValue(2)).Draw(t, "members")
		name, key := rapid.String().Draw(t, "name"), rapid.StringN(1, 255, -1).Draw(t, "key")
		delete(members, name)
		args, err := tga.Canonicalize([]byte(encode(t, members)), tga.Limits{})
		if err != nil {
			t.Skip("a number that no call can carry")
		}
		was := string(args)
		at := pointer{name}.String()
		once, err := PlaceArgument(args, at, key)
		if len(at) > maxPointer {
			if err == nil {
				t.Fatal("a pointer over the limit is taken")
			}
			return
		}
		if err != nil || string(args) != was {
			t.Fatalf("%v; the arguments are %s", err, args)
		}
		twice, err := PlaceArgument(once, at, key)
		if err != nil || string(twice) != string(once) {
			t.Fatalf("%s, then %s, %v", once, twice, err)
		}
		var back map[string]json.RawMessage
		if err := json.Unmarshal(once, &back); err != nil || string(back[name]) == "" {
			t.Fatal(err, string(once))
		}
		var placed string
		if err := json.Unmarshal(back[name], &placed); err != nil || placed != key {
			t.Fatalf("the key is %q, %v", placed, err)
		}
		delete(back, name)
		rest, err := tga.Canonicalize([]byte(encode(t, back)), tga.Limits{})
		if err != nil || string(rest) != was {
			t.Fatalf("%s without the key is %s", was, rest)
		}
	})
}

// FuzzOutcome: whatever a server answers, the result of the rules can be stored.
func FuzzOutcome(f *testing.F) {
	for _, s := range []string{
		``, `{}`, `{"id":"x","items":[{"id":1},{"id":2}],"code":"busy"}`, `{"content":[{"type":"text","text":"{\"id\":1}"}]}`,
		`{"structuredContent":{"id":[1]}}`, `{"code":-32000,"message":"x"}`, `[[[[]]]]`, `{"id":"\ud800"}`, "{\"id\":\"\xff\"}",
	} {
		f.Add([]byte(s), true, false)
		f.Add([]byte(s), false, true)
	}
	tool := func(name, form string) Tool {
		t := charge(
			Rule{Pointer: "/result/code", Equals: "busy", Class: retry},
			Rule{Pointer: "/result/0", Matches: "a+", Class: permanent},
			Rule{Pointer: "/result/id", Absent: true, Class: "compensatable_failure"},
		)
		t.Name, t.Answer = name, form
		t.Changes = []Change{
			{ResourceType: "a", ResourceID: "{/result/id}", Operation: "c", ETag: "{/result/etag}"},
			{Each: "/result/items", ResourceType: "a", ResourceID: "{/item/id}{/item/0}", Operation: "c"},
		}
		t.Inverse = &Inverse{Tool: "undo", Args: `{"a":"{/result/id}","b":["{/result}"]}`}
		return t
	}
	r := compile(f, tool("charge", FormJSON), tool("tool", FormMCP))
	f.Fuzz(func(t *testing.T, result []byte, success, mcp bool) {
		c, reply := call(`{"id":1}`), failure(string(result))
		if success {
			reply.Status = tga.StatusSuccess
		}
		if mcp {
			c.Tool = "tool"
		}
		if err := r.Outcome(c, reply); err != nil && tga.CodeOf(err) == "" {
			t.Fatal(err)
		}
		if reply.Class != ledger.ClassNone && !reply.Class.Agree(reply.Status) {
			t.Fatalf("%v for %s", reply.Class, reply.Status)
		}
		if _, err := tga.EncodeStateChanges(reply.Changes); err != nil {
			t.Fatal(err)
		}
		in, ok, err := r.Inverse(&tga.ToolCall{Call: tga.Proposal{ToolServer: c.Server, ToolName: c.Tool, Args: c.Args}}, nil, result)
		if ok != (err == nil) {
			t.Fatal(ok, err)
		}
		if _, gate := tga.Canonicalize(in.Args, tga.Limits{}); ok && gate != nil {
			t.Fatal(gate)
		}
	})
}

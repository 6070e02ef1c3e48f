package outcome

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/dispatch/httpcall"
	"github.com/tgad/tgad/schemas/tga"
)

var _ = runtime.Trust{Outcome: (*Rules)(nil).Outcome, Inverse: (*Rules)(nil).Inverse}

func compile(t testing.TB, tools ...Tool) *Rules {
	t.Helper()
	r, err := Compile(Config{Tools: tools})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// charge is a tool of a server with the given rules, under a licence that permits a
// second send.
func charge(rules ...Rule) Tool {
	return Tool{Server: "payments", Name: "charge", Rules: rules, Licence: ledger.Licence{Kind: ledger.DedupeArgs}}
}

func call(args string) runtime.Call {
	return runtime.Call{TraceID: tga.ID{6: 0x70, 8: 0x80, 15: 1}, Attempt: 1, Server: "payments", Tool: "charge", Args: []byte(args), Key: "k"}
}

func failure(result string) *runtime.Reply {
	return &runtime.Reply{Status: tga.StatusFailure, Result: []byte(result), ErrorCode: string(tga.ToolError), ErrorMessage: "HTTP 402 Payment Required"}
}

func yes() *bool { b := true; return &b }
func no() *bool  { return new(bool) }

const (
	retry     = "retryable_failure"
	permanent = "permanent_failure"
)

func TestConditions(t *testing.T) {
	at := func(r Rule) Rule { r.Pointer = "/result/v"; return r }
	for name, c := range map[string]struct {
		rule      Rule
		match, no []string
	}{
		"equals string": {at(Rule{Equals: "a"}), []string{`{"v":"a"}`, `{"v":"\u0061"}`}, []string{`{"v":"A"}`, `{"v":"a "}`, `{"v":["a"]}`, `{}`, `{"v":"a","v":"a"}`, `a`, ``}},
		"equals empty":  {at(Rule{Equals: ""}), []string{`{"v":""}`}, []string{`{"v":null}`, `{}`, `{"v":"\ud800"}`}},
		"equals int":    {at(Rule{Equals: int64(1)}), []string{`{"v":1}`, `{"v":1.0}`, `{"v":1e0}`}, []string{`{"v":"1"}`, `{"v":true}`, `{"v":1.0000000000000001}`, `{"v":11}`}},
		"equals 2^53":   {at(Rule{Equals: int64(9007199254740992)}), []string{`{"v":9007199254740992}`}, []string{`{"v":9007199254740993}`}},
		"equals float":  {at(Rule{Equals: 0.1}), []string{`{"v":0.10}`, `{"v":1e-1}`}, []string{`{"v":0.1000000000000000055}`, `{"v":1e-1000000000}`}},
		"equals bool":   {at(Rule{Equals: false}), []string{`{"v":false}`}, []string{`{"v":true}`, `{"v":0}`, `{"v":null}`, `{}`}},
		"matches":       {at(Rule{Matches: "declined|c.rd"}), []string{`{"v":"declined"}`, `{"v":"card"}`}, []string{`{"v":"not declined"}`, `{"v":"declined "}`, `{"v":"cards"}`, `{"v":1}`, `{}`, `{"v":"c\nrd"}`}},
		"exists":        {at(Rule{Exists: true}), []string{`{"v":0}`, `{"v":{}}`, `{"v":""}`, `{"v":false}`}, []string{`{"v":null}`, `{}`, `[]`, `no JSON`, ``, `{"v":1,"v":1}`}},
		"absent":        {at(Rule{Absent: true}), []string{`{"v":null}`, `{}`, `[]`, `1`}, []string{`{"v":0}`, `no JSON`, ``, `{"v":1,"v":1}`, "{\"w\":\"\xff\"}"}},
		"in an array":   {Rule{Pointer: "/result/0/v", Equals: "a"}, []string{`[{"v":"a"}]`}, []string{`[{"v":"b"},{"v":"a"}]`, `{"0":{"w":"a"}}`}},
		"of the call":   {Rule{Pointer: "/args/v", Equals: "a"}, []string{`{}`, ``}, nil},
	} {
		c.rule.Class = "compensatable_failure"
		r := compile(t, charge(c.rule))
		try := func(result string) ledger.Class {
			reply := failure(result)
			if err := r.Outcome(call(`{"v":"a"}`), reply); err != nil {
				t.Errorf("%s: %s: %v", name, result, err)
			}
			return reply.Class
		}
		for _, result := range c.match {
			if try(result) != ledger.ClassCompensatable {
				t.Errorf("%s: %s does not match", name, result)
			}
		}
		for _, result := range c.no {
			if try(result) != ledger.ClassNone {
				t.Errorf("%s: %s matches", name, result)
			}
		}
	}
}

func TestTheFirstRuleThatMatchesDecides(t *testing.T) {
	r := compile(t, charge(
		Rule{Pointer: "/result/code", Equals: "busy", Class: retry},
		Rule{Pointer: "/result/code", Equals: "busy", Class: permanent},
		Rule{Pointer: "/result/code", Exists: true, IsError: yes(), Class: "compensatable_failure"},
		Rule{IsError: no(), Class: "success"},
	))
	for _, c := range []struct {
		status, result string
		before, want   ledger.Class
	}{
		{tga.StatusFailure, `{"code":"busy"}`, ledger.ClassNone, ledger.ClassRetryable},
		{tga.StatusFailure, `{"code":"x"}`, ledger.ClassNone, ledger.ClassCompensatable},
		{tga.StatusFailure, `{}`, ledger.ClassPermanent, ledger.ClassPermanent}, // none: as the dispatcher said
		{tga.StatusSuccess, `{"code":"x"}`, ledger.ClassNone, ledger.ClassSuccess},
		{tga.StatusError, `{"code":"busy"}`, ledger.ClassPermanent, ledger.ClassPermanent}, // no tool's answer
	} {
		reply := &runtime.Reply{Status: c.status, Class: c.before, Result: []byte(c.result)}
		if err := r.Outcome(call(`{}`), reply); err != nil || reply.Class != c.want {
			t.Errorf("%s %s: %v, %v; want %v", c.status, c.result, reply.Class, err, c.want)
		}
	}
}

// TestClassAgreesWithStatus tests all pairs of a status and a class. If the ledger accepts the
// pair, the rule's class counts; otherwise it is an error and changes nothing.
func TestClassAgreesWithStatus(t *testing.T) {
	for _, status := range []string{tga.StatusSuccess, tga.StatusFailure, tga.StatusDenied} {
		for class := ledger.ClassSuccess; class < ledger.ClassCompensated; class++ {
			r := compile(t, charge(Rule{Pointer: "/result/v", Equals: true, Class: class.String()}))
			reply := &runtime.Reply{Status: status, Result: []byte(`{"v":true}`)}
			err := r.Outcome(call(`{}`), reply)
			if status == tga.StatusSuccess && class.Agree(tga.StatusFailure) {
				if err != nil || reply.Status != tga.StatusFailure || reply.Class != class || reply.ErrorCode != string(tga.ToolError) {
					t.Errorf("a success called %v: %+v, %v", class, reply, err)
				}
				continue
			}
			effect := &tga.Artifact{Meta: tga.Meta{tga.MetaOutcomeClass: class.String()}, Effect: &tga.ToolEffect{Outcome: tga.Outcome{Status: status}}}
			if legal := ledger.ClassOf(effect) == class; legal != (err == nil) || legal != (reply.Class == class) {
				t.Errorf("%s with %v: %v, %v", status, class, reply.Class, err)
			}
			if err != nil && (!errors.Is(err, tga.SchemaViolation) || reply.Class != ledger.ClassNone) {
				t.Errorf("%s with %v: %v, %v", status, class, reply.Class, err)
			}
		}
	}
}

var licences = []ledger.Licence{
	{}, {Kind: ledger.Probe}, {Kind: ledger.DedupeKey, Window: time.Hour}, {Kind: ledger.DedupeArgs}, {Kind: ledger.ReadOnly},
}

func TestDoubtIsNotMadeRetryable(t *testing.T) {
	for _, l := range licences {
		waits := l.Kind == ledger.Park || l.Kind == ledger.Probe
		for name, c := range map[string]struct {
			rule     Rule
			doubtful bool
		}{
			"a value":             {Rule{Pointer: "/result/code", Equals: "busy"}, false},
			"a pattern":           {Rule{Pointer: "/result/code", Matches: "busy|later"}, false},
			"a definite status":   {Rule{Status: []int{400, 429, 499}}, false},
			"value and status":    {Rule{Pointer: "/result/code", Equals: "busy", Status: []int{429}}, false},
			"exists and status":   {Rule{Pointer: "/result/code", Exists: true, Status: []int{429}}, false},
			"a failure":           {Rule{IsError: yes()}, true},
			"a member":            {Rule{Pointer: "/result/error", Exists: true}, true},
			"no member":           {Rule{Pointer: "/result/id", Absent: true, IsError: yes()}, true},
			"what the call said":  {Rule{Pointer: "/args/code", Equals: "busy"}, true},
			"500":                 {Rule{Status: []int{500}}, true},
			"one of them 503":     {Rule{Status: []int{429, 503}}, true},
			"408":                 {Rule{Status: []int{408}}, true},
			"399":                 {Rule{Status: []int{399}}, true},
			"value and status 5x": {Rule{Pointer: "/result/code", Equals: "busy", Status: []int{500}}, true},
		} {
			c.rule.Class = retry
			tool := charge(c.rule)
			tool.Licence = l
			_, err := Compile(Config{Tools: []Tool{tool}})
			if want := waits && c.doubtful; want != errors.Is(err, tga.ValidationError) || !want && err != nil {
				t.Errorf("%v, %s: %v", l.Kind, name, err)
			}
		}
		// The operator mapped a 500 to a failure, and the rule does not look at it.
		tool := charge(Rule{Pointer: "/result/code", Equals: "busy", Class: retry})
		tool.Licence = l
		r := compile(t, tool)
		reply := failure(`{"code":"busy"}`)
		reply.ErrorMessage = "busy" // no HTTP server's answer
		if err := r.Outcome(call(`{}`), reply); err != nil || reply.Class != ledger.ClassRetryable {
			t.Errorf("%v, no status: %v, %v", l.Kind, reply.Class, err)
		}
		for status, doubt := range map[int]bool{400: false, 429: false, 408: true, 500: true, 599: true, 302: true} {
			reply := failure(`{"code":"busy"}`)
			reply.ErrorMessage = fmt.Sprintf("HTTP %d X (Retry-After: 1)", status)
			reply.Class = ledger.ClassPermanent
			err := r.Outcome(call(`{}`), reply)
			if waits && doubt {
				if !errors.Is(err, tga.SchemaViolation) && !errors.Is(err, tga.ValidationError) || reply.Class != ledger.ClassPermanent {
					t.Errorf("%v, status %d: %v, %v", l.Kind, status, reply.Class, err)
				}
			} else if err != nil || reply.Class != ledger.ClassRetryable {
				t.Errorf("%v, status %d: %v, %v", l.Kind, status, reply.Class, err)
			}
		}
	}
	// The two packages that speak of HTTP agree on every status that can be a failure.
	for s := 400; s <= 599; s++ {
		if doubtful(s) != httpcall.Doubtful(s) {
			t.Errorf("status %d: doubtful %v", s, doubtful(s))
		}
	}
}

func TestStatusIsTheTransportsWord(t *testing.T) {
	r := compile(t, charge(Rule{Status: []int{402}, Class: "compensatable_failure"}), Tool{
		Server: "payments", Name: "tool", Answer: FormMCP, Rules: []Rule{{Pointer: "/result/x", Absent: true, Class: permanent}},
	})
	for said, want := range map[string]bool{
		"HTTP 402": true, "HTTP 402 Payment Required": true, "HTTP 402 ": true, "HTTP 402 X (Retry-After: 3)": true,
		"HTTP 4020": false, "HTTP 40": false, "http 402": false, "x HTTP 402": false, "HTTP  402": false, "HTTP 402x": false,
		"": false, "HTTP +42": false, "HTTP 403 Forbidden": false,
	} {
		reply := failure(`{}`)
		reply.ErrorMessage = said
		if err := r.Outcome(call(`{}`), reply); err != nil || (reply.Class == ledger.ClassCompensatable) != want {
			t.Errorf("%q: %v, %v", said, reply.Class, err)
		}
		reply = failure(`{}`)
		reply.ErrorMessage, reply.Summary = "", said // the summary speaks of a success
		if err := r.Outcome(call(`{}`), reply); err != nil || reply.Class != ledger.ClassNone {
			t.Errorf("%q: %v, %v", said, reply.Class, err)
		}
	}
	for said, want := range map[string]int{"HTTP 099": 0, "HTTP 100": 100, "HTTP 599": 599} {
		reply := failure(`{}`)
		reply.ErrorMessage = said
		if s := statusOf("", reply); s != want {
			t.Errorf("%q is status %d, want %d", said, s, want)
		}
	}
	if s := statusOf(FormMCP, failure(`{}`)); s != 0 {
		t.Errorf("an MCP tool's words are taken for status %d", s)
	}
}

func TestMCPAnswers(t *testing.T) {
	tool := charge(
		Rule{Pointer: "/result/code", Equals: "busy", Class: retry},
		Rule{Pointer: "/error/code", Equals: int64(-32050), Class: retry},
		Rule{Pointer: "/error/code", Equals: int64(0), Class: retry},
		Rule{Pointer: "/error/code", Equals: int64(9), Class: retry},
	)
	tool.Answer = FormMCP
	r := compile(t, tool)
	text := func(s string) string { return `{"type":"text","text":` + encode(t, s) + `}` }
	busy, other := `{"code":"busy"}`, `{"code":"other"}`
	for name, c := range map[string]struct {
		result string
		match  bool
	}{
		"text":                     {`{"content":[` + text(busy) + `],"isError":true}`, true},
		"prose and text":           {`{"content":[` + text("Busy: 1") + `,` + text(busy) + `]}`, true},
		"image and text":           {`{"content":[{"type":"image","data":"x"},` + text(busy) + `]}`, true},
		"two texts of JSON":        {`{"content":[` + text(busy) + `,` + text(busy) + `]}`, false},
		"text of another type":     {`{"content":[{"type":"resource","text":` + encode(t, busy) + `}]}`, false},
		"no type":                  {`{"content":[{"text":` + encode(t, busy) + `}]}`, false},
		"structured":               {`{"content":[` + text(other) + `],"structuredContent":` + busy + `}`, true},
		"structured says else":     {`{"content":[` + text(busy) + `],"structuredContent":` + other + `}`, false},
		"structured is null":       {`{"content":[` + text(busy) + `],"structuredContent":null}`, true},
		"prose":                    {`{"content":[` + text("busy") + `]}`, false},
		"not unwrapped":            {`{"code":"busy"}`, false},
		"content twice":            {`{"content":[` + text(busy) + `],"content":[` + text(busy) + `]}`, false},
		"content is no array":      {`{"content":` + text(busy) + `}`, false},
		"text is no string":        {`{"content":[{"type":"text","text":` + busy + `}]}`, false},
		"fault":                    {`{"code":-32050,"message":"later"}`, true},
		"fault of the least digit": {`{"code":0,"message":"later"}`, true},
		"fault of the most":        {`{"code":9,"message":"later"}`, true},
		"a number and text":        {`{"content":[` + text("5") + `,` + text(busy) + `]}`, true},
		"an array and text":        {`{"content":[` + text("[1]") + `,` + text(busy) + `]}`, false},
		"another fault":            {`{"code":-32051,"message":"later"}`, false},
		"fault in a result":        {`{"content":[` + text(`{"code":-32050}`) + `],"code":-32050}`, false},
		"an array":                 {`[` + busy + `]`, false},
		"empty":                    {``, false},
		"no JSON":                  {`busy`, false},
		"text with invalid JSON":   {`{"content":[` + text(`{"code":"busy"`) + `]}`, false},
	} {
		reply := failure(c.result)
		reply.ErrorMessage = "x"
		if err := r.Outcome(call(`{}`), reply); err != nil || (reply.Class == ledger.ClassRetryable) != c.match {
			t.Errorf("%s: %v, %v", name, reply.Class, err)
		}
	}
}

func TestOtherRowsDoNotSpeak(t *testing.T) {
	row := func(server, name, class string) Tool {
		return Tool{Server: server, Name: name, Rules: []Rule{{IsError: yes(), Class: class}}}
	}
	r := compile(t, row("payments", "charge", "compensatable_failure"), row("payments", AnyTool, permanent))
	for name, want := range map[[2]string]ledger.Class{
		{"payments", "charge"}: ledger.ClassCompensatable,
		{"payments", "other"}:  ledger.ClassPermanent,
		{"mail", "charge"}:     ledger.ClassNone,
	} {
		c := call(`{}`)
		c.Server, c.Tool = name[0], name[1]
		reply := failure(`{}`)
		if err := r.Outcome(c, reply); err != nil || reply.Class != want {
			t.Errorf("%v: %v, %v", name, reply.Class, err)
		}
	}
	cut := &runtime.Reply{Status: tga.StatusFailure, Truncated: true, ResultBytes: 99}
	if err := r.Outcome(call(`{}`), cut); !errors.Is(err, tga.LimitExceeded) || cut.Class != ledger.ClassNone {
		t.Errorf("an answer that was not kept: %v, %v", cut.Class, err)
	}
	if err := compile(t, charge()).Outcome(call(`{}`), cut); err != nil {
		t.Errorf("no rule had anything to read in it: %v", err)
	}
}

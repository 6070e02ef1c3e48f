package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/schemas/tga"
)

// TestOrderIsTheManifests: the first server answers last, and its tools come first. Each server
// waits for the one after it, so all are asked at once.
func TestOrderIsTheManifests(t *testing.T) {
	const n = 5
	servers := map[string]Lister{}
	answered := make([]chan struct{}, n+1)
	for i := range answered {
		answered[i] = make(chan struct{})
	}
	close(answered[n])
	var specs []turn.ToolSpec
	var want []string
	for i := range n {
		name := fmt.Sprintf("s%d", i)
		servers[name] = &shelf{tools: []mcpTool{define(name+"_b", anyObject), define(name+"_a", anyObject)},
			before: func(context.Context, int) error {
				<-answered[i+1]
				close(answered[i])
				return nil
			}}
		specs = append(specs, discover(name))
		want = append(want, name+"_b", name+"_a")
	}
	tools, warnings := resolve(t, newResolver(t, Options{Servers: servers}), specs...)
	if diff := cmp.Diff(want, namesOf(tools)); diff != "" || len(warnings) != 0 {
		t.Errorf("%s, %v", diff, warnings)
	}
}

func TestUnavailableIsAWarning(t *testing.T) {
	hang := func(ctx context.Context, _ int) error { <-ctx.Done(); return ctx.Err() }
	r := newResolver(t, Options{Timeout: time.Millisecond, MaxTools: 2, Servers: map[string]Lister{
		"ok":    &shelf{tools: []mcpTool{define("read", anyObject)}},
		"slow":  &shelf{before: hang},
		"down":  &shelf{err: errors.New("connection refused")},
		"vast":  &shelf{tools: []mcpTool{define("a", anyObject), define("b", anyObject), define("c", anyObject)}},
		"plain": nil,
	}})
	tools, warnings := resolve(t, r,
		discover("slow"), discover("down"), discover("vast"), discover("ghost"), discover("plain"), discover("ok", "read", "gone"),
		turn.ToolSpec{Name: "named", Transport: turn.OverMCP, Server: "ok"},
		turn.ToolSpec{Name: "on-down", Transport: turn.OverMCP, Server: "down", InputSchema: json.RawMessage(anyObject)},
		turn.ToolSpec{Name: "fn", Transport: turn.OverFunction},
		turn.ToolSpec{Name: "pigeon", Transport: "pigeon", Server: "ok"},
		turn.ToolSpec{Transport: turn.OverHTTP, Server: "plain"},
		turn.ToolSpec{Name: "two words", Transport: turn.OverHTTP, Server: "plain"},
	)
	if got := namesOf(tools); !slices.Equal(got, []string{"read"}) {
		t.Errorf("tools %v", got)
	}
	want := []string{
		"slow TOOL_TIMEOUT", "down TOOL_ERROR", "vast LIMIT_EXCEEDED", "ghost NOT_FOUND", "plain VALIDATION_ERROR",
		"gone NOT_FOUND", "named NOT_FOUND", "on-down TOOL_ERROR", "fn NOT_FOUND", "pigeon VALIDATION_ERROR",
		"plain VALIDATION_ERROR", "two words VALIDATION_ERROR",
	}
	if diff := cmp.Diff(want, codes(warnings)); diff != "" {
		t.Error(diff, warnings)
	}
	for _, w := range warnings {
		if w.Reason == "" {
			t.Errorf("%s without a reason", w.Tool)
		}
	}
}

// TestListAndAgentLimit: at the limit, and one past it.
func TestListAndAgentLimit(t *testing.T) {
	shelfOf := func(name string, n int) *shelf {
		s := &shelf{}
		for i := range n {
			s.tools = append(s.tools, define(fmt.Sprintf("%s%d", name, i), anyObject))
		}
		return s
	}
	r := newResolver(t, Options{MaxTools: 3, Servers: map[string]Lister{"a": shelfOf("a", 3), "b": shelfOf("b", 1), "c": shelfOf("c", 4)}})
	if tools, warnings := resolve(t, r, discover("a")); len(tools) != 3 || len(warnings) != 0 {
		t.Errorf("at the limit: %v, %v", namesOf(tools), warnings)
	}
	tools, warnings := resolve(t, r, discover("a"), discover("b"))
	if len(tools) != 3 || !slices.Equal(codes(warnings), []string{"b0 LIMIT_EXCEEDED"}) {
		t.Errorf("an agent's one past it: %v, %v", namesOf(tools), warnings)
	}
	tools, warnings = resolve(t, r, discover("c"))
	if len(tools) != 0 || !slices.Equal(codes(warnings), []string{"c LIMIT_EXCEEDED"}) {
		t.Errorf("a list's one past it: %v, %v", namesOf(tools), warnings)
	}
	long := func(n int) *shelf {
		return &shelf{tools: []mcpTool{{Name: "x", Definition: fmt.Appendf(nil, `{"name":"x","description":%q}`, strings.Repeat("d", n))}}}
	}
	for n, want := range map[int]int{100: 1, 101: 0} {
		r := newResolver(t, Options{MaxDescription: 100, Servers: map[string]Lister{"s": long(n)}})
		if tools, warnings := resolve(t, r, discover("s")); len(tools) != want || len(warnings) != 1-want {
			t.Errorf("description of %d bytes: %v, %v", n, namesOf(tools), warnings)
		}
	}
}

// TestAgentBytesLimit: the resolved tools must fit into a record.
func TestAgentBytesLimit(t *testing.T) {
	s := &shelf{tools: []mcpTool{define("a", anyObject), define("b", anyObject), define("c", anyObject)}}
	size := len(anyObject) + len("does a")
	for most, want := range map[int]int{2 * size: 2, 2*size - 1: 1} {
		tools, warnings := resolve(t, newResolver(t, Options{MaxBytes: most, Servers: map[string]Lister{"s": s}}), discover("s"))
		if len(tools) != want || len(warnings) != 3-want || warnings[0].Code != tga.LimitExceeded {
			t.Errorf("%d bytes: %v, %v", most, namesOf(tools), warnings)
		}
	}
}

func TestWarningsLimit(t *testing.T) {
	specs := make([]turn.ToolSpec, maxWarnings+1)
	for i := range specs {
		specs[i] = discover("ghost")
	}
	r := newResolver(t, Options{})
	if _, warnings := resolve(t, r, specs[1:]...); len(warnings) != maxWarnings || warnings[maxWarnings-1].Code != tga.NotFound {
		t.Errorf("at the limit: %d", len(warnings))
	}
	_, warnings := resolve(t, r, specs...)
	if last := warnings[len(warnings)-1]; len(warnings) != maxWarnings+1 || last.Code != tga.LimitExceeded || last.Reason != "1 more warnings" {
		t.Errorf("one past it: %d, %v", len(warnings), last)
	}
}

func TestResolveFailsOnlyForItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	gone := errors.New("gone")
	s := &shelf{before: func(ctx context.Context, _ int) error { cancel(gone); <-ctx.Done(); return ctx.Err() }}
	r := newResolver(t, Options{Servers: map[string]Lister{"s": s}})
	if _, _, err := r.Resolve(ctx, &turn.Agent{Name: "a", Tools: []turn.ToolSpec{discover("s")}}); !errors.Is(err, gone) {
		t.Errorf("got %v", err)
	}
	// A list that failed because its caller left is no failure for anybody else.
	s.before, s.tools = nil, []mcpTool{define("x", anyObject)}
	if tools, warnings := resolve(t, r, discover("s")); len(tools) != 1 || len(warnings) != 0 {
		t.Errorf("afterwards: %v, %v", tools, warnings)
	}
}

func TestNamedToolTakesFromItsServer(t *testing.T) {
	const stricter = `{"type":"object","required":["a"]}`
	s := &shelf{tools: []mcpTool{define("read", `{"type":"object","required":["path"]}`)}}
	r := newResolver(t, Options{Servers: map[string]Lister{"s": s, "h": nil}})
	retry := turn.RetryPolicy{MaxRetries: 7}
	tools, warnings := resolve(t, r,
		turn.ToolSpec{Name: "r1", Remote: "read", Transport: turn.OverMCP, Server: "s", Parallel: true, Risk: tga.RiskRead, Timeout: time.Second, Retry: &retry},
		turn.ToolSpec{Name: "r2", Remote: "read", Transport: turn.OverGRPC, Server: "s", Description: "mine", InputSchema: json.RawMessage(stricter)},
		turn.ToolSpec{Name: "charge", Transport: turn.OverHTTP, Server: "h", Fallback: json.RawMessage(`{}`)},
	)
	if len(warnings) != 0 {
		t.Fatal(warnings)
	}
	digest := func(s string) tga.Digest { return tga.Sum([]byte(s)) }
	const path = `{"required":["path"],"type":"object"}`
	const mine = `{"required":["a"],"type":"object"}`
	want := []turn.Tool{
		{Name: "r1", Description: "does read", InputSchema: json.RawMessage(path), SchemaDigest: digest(path), Source: turn.ToolSource{Type: turn.FromManifest},
			Transport: turn.OverMCP, Server: "s", Remote: "read", Timeout: time.Second, Retry: retry, Parallel: true, Risk: tga.RiskRead},
		{Name: "r2", Description: "mine", InputSchema: json.RawMessage(mine), SchemaDigest: digest(mine), Source: turn.ToolSource{Type: turn.FromManifest, Index: 1},
			Transport: turn.OverGRPC, Server: "s", Remote: "read"},
		{Name: "charge", InputSchema: json.RawMessage(anyObject), SchemaDigest: digest(anyObject), Source: turn.ToolSource{Type: turn.FromManifest, Index: 2},
			Transport: turn.OverHTTP, Server: "h", Remote: "charge", Fallback: json.RawMessage(`{}`)},
	}
	if diff := cmp.Diff(want, tools); diff != "" {
		t.Error(diff)
	}
}

// TestNamedToolWithAnUnusableSchema: the tool is left out unless the manifest has a usable
// schema. A changed tool is reported the same way whether it is named or discovered.
func TestNamedToolWithAnUnusableSchema(t *testing.T) {
	s := &shelf{tools: []mcpTool{define("bad", `{"type":"string"}`), define("good", anyObject)}}
	r := newResolver(t, Options{LeaveOutChanged: true, Servers: map[string]Lister{"s": s}})
	specs := []turn.ToolSpec{
		{Name: "bad", Transport: turn.OverMCP, Server: "s"},
		{Name: "mended", Remote: "bad", Transport: turn.OverMCP, Server: "s", InputSchema: json.RawMessage(anyObject)},
		{Name: "mine", Remote: "good", Transport: turn.OverMCP, Server: "s"},
	}
	tools, warnings := resolve(t, r, specs...)
	if !slices.Equal(namesOf(tools), []string{"mended", "mine"}) || !slices.Equal(codes(warnings), []string{"bad SCHEMA_VIOLATION"}) {
		t.Error(namesOf(tools), warnings)
	}
	s.set(define("bad", `{"type":"string"}`), define("good", `{"type":"object","title":"2"}`))
	r.Invalidate("s")
	tools, warnings = resolve(t, r, specs...)
	if !slices.Equal(namesOf(tools), []string{"mended"}) || !slices.Equal(codes(warnings), []string{"bad SCHEMA_VIOLATION", "mine TOOL_SCHEMA_CHANGED"}) {
		t.Error(namesOf(tools), warnings)
	}
}

func TestDiscoveredToolsSayWhereTheyAreFrom(t *testing.T) {
	r := newResolver(t, Options{Servers: map[string]Lister{
		"s": &shelf{tools: []mcpTool{define("a.b/c", anyObject)}}, "g": &shelf{tools: []mcpTool{define("p.S/M", anyObject)}},
	}})
	tools, warnings, err := r.Resolve(context.Background(), &turn.Agent{
		Name: "a", Breaker: turn.BreakerSpec{Failures: 2}, Retry: turn.RetryPolicy{MaxRetries: 1},
		Servers: []turn.ToolServer{{Name: "s", URI: "https://mcp.example/"}},
		Tools:   []turn.ToolSpec{discover("s"), {Transport: turn.OverGRPC, Server: "g", Discover: true}},
	})
	if err != nil || len(warnings) != 0 || len(tools) != 2 {
		t.Fatal(tools, warnings, err)
	}
	if want := (turn.ToolSource{Type: turn.FromMCP, ServerURI: "https://mcp.example/", Capability: "a.b/c"}); tools[0].Source != want || tools[0].Remote != "a.b/c" || tools[0].Name != "a_b_c" {
		t.Errorf("%+v", tools[0])
	}
	if want := (turn.ToolSource{Type: turn.FromManifest, Index: 1}); tools[1].Source != want || tools[1].Remote != "p.S/M" || tools[1].Name != "p_S_M" {
		t.Errorf("%+v", tools[1])
	}
	if tools[0].Breaker.Failures != 2 || tools[0].Retry.MaxRetries != 1 {
		t.Errorf("%+v", tools[0])
	}
}

func TestDelegationTools(t *testing.T) {
	spec := func(name string) turn.ToolSpec {
		return turn.ToolSpec{Delegation: &turn.Delegation{Type: turn.Handoff, Target: name, Timeout: time.Minute}}
	}
	r := newResolver(t, Options{Delegate: func(n string) (string, bool) { return "id-" + n, n != "ghost" }})
	tools, warnings := resolve(t, r, spec("writer"), spec("ghost"), spec(""))
	if len(tools) != 1 || !slices.Equal(codes(warnings), []string{"ghost NOT_FOUND", " NOT_FOUND"}) {
		t.Fatal(tools, warnings)
	}
	w := tools[0]
	if want := (turn.ToolSource{Type: turn.FromDelegation, AgentID: "id-writer"}); w.Source != want || w.Name != "writer" || w.Remote != "writer" ||
		w.Timeout != time.Minute || w.Delegation == nil || w.Delegation.Target != "writer" || w.Description == "" {
		t.Errorf("%+v", w)
	}
	for args, ok := range map[string]bool{
		`{"message":"hi"}`: true, `{"message":"hi","context":{"a":1}}`: true,
		`{}`: false, `{"message":""}`: false, `{"message":1}`: false, `{"message":"hi","x":1}`: false,
	} {
		if err := r.Validate(&w, []byte(args)); (err == nil) != ok {
			t.Errorf("%s: %v", args, err)
		}
	}
	if tools, _ := resolve(t, newResolver(t, Options{}), spec("anyone")); len(tools) != 1 || tools[0].Source.AgentID != "anyone" {
		t.Errorf("without Delegate: %+v", tools)
	}
}

var forModels = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

func TestNames(t *testing.T) {
	long := strings.Repeat("n", 64)
	s := &shelf{tools: []mcpTool{
		define("a.b", anyObject), define("a_b", anyObject), define("a/b", anyObject), define("a.b", `{"type":"object","title":"2"}`),
		define(long, anyObject), define(long+"n", anyObject), define(long+"m", anyObject), define("", anyObject),
	}}
	other := &shelf{tools: []mcpTool{define("a_b", anyObject), define("fine", anyObject)}}
	r := newResolver(t, Options{Servers: map[string]Lister{"s": s, "o": other}})
	specs := []turn.ToolSpec{
		{Name: "fine", Transport: turn.OverMCP, Server: "o"}, discover("s"), discover("o"),
	}
	tools, warnings := resolve(t, r, specs...)
	seen := map[string]string{}
	for _, tool := range tools {
		if !forModels.MatchString(tool.Name) {
			t.Errorf("name %q", tool.Name)
		}
		if was, ok := seen[tool.Name]; ok {
			t.Errorf("%q is %s and %s", tool.Name, was, tool.Remote)
		}
		seen[tool.Name] = tool.Remote
	}
	if seen["a_b"] != "a.b" || seen[long] != long || len(tools) != 7 {
		t.Errorf("%v", seen)
	}
	want := []string{
		"a_b VALIDATION_ERROR", "a/b VALIDATION_ERROR", // gets another name
		"a.b VALIDATION_ERROR", // listed twice
		"s VALIDATION_ERROR",   // no name
		"a_b VALIDATION_ERROR", // taken by another server's tool; "fine" is the same tool again and needs no warning
	}
	if diff := cmp.Diff(want, codes(warnings)); diff != "" {
		t.Error(diff, warnings)
	}
	// The names are the same each time, and in another process.
	again, _ := resolve(t, newResolver(t, Options{Servers: map[string]Lister{"s": s, "o": other}}), specs...)
	if diff := cmp.Diff(namesOf(tools), namesOf(again)); diff != "" {
		t.Error(diff)
	}
}

// TestNoNameIsLeft: even the name with the digest is taken.
func TestNoNameIsLeft(t *testing.T) {
	s := &shelf{tools: []mcpTool{define(hashedName("a.b"), anyObject), define("a_b", anyObject), define("a.b", anyObject)}}
	tools, warnings := resolve(t, newResolver(t, Options{Servers: map[string]Lister{"s": s}}), discover("s"))
	if len(tools) != 2 || !slices.Equal(codes(warnings), []string{"a.b VALIDATION_ERROR"}) {
		t.Errorf("%v, %v", namesOf(tools), warnings)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for name, o := range map[string]Options{
		"ttl":    {TTL: -1},
		"limit":  {MaxTools: -1},
		"server": {Servers: map[string]Lister{"two words": nil}},
		"empty":  {Servers: map[string]Lister{"": nil}},
	} {
		if _, err := New(o); !errors.Is(err, tga.ValidationError) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

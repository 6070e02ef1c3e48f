package outcome

import (
	"fmt"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
)

// AnyTool is the name of the row for all tools of a server that have no row of their own.
const AnyTool = "*"

// Forms of an answer.
const (
	FormJSON = "json" // the answer is the document; the default
	FormMCP  = "mcp"  // the answer is the result or error of tools/call
)

// Limits of a configuration.
const (
	MaxRules    = 256 // outcome rules, and change templates, of one tool
	MaxStatuses = 64  // of one rule
)

// Names of the documents that pointers lead into.
const (
	docArgs   = "args"
	docResult = "result"
	docError  = "error"
	docItem   = "item"
)

// Config is what an operator says about the answers of tools.
type Config struct {
	Tools []Tool `toml:"tool"`
}

// Tool has the rules of one tool.
type Tool struct {
	Server string `toml:"server"`
	Name   string `toml:"name"`
	// Answer is FormJSON or FormMCP; "" means FormJSON. Answers of servers that are
	// called over MCP have FormMCP.
	Answer  string   `toml:"answer"`
	Rules   []Rule   `toml:"outcome"`
	Changes []Change `toml:"change"`
	Inverse *Inverse `toml:"inverse"`
	Key     Key      `toml:"key"`

	// Licence is the licence that decides about the tool's calls in doubt: ledger.Effective.
	Licence ledger.Licence `toml:"-"`
}

// Rule gives a class to the answers that meet all of its conditions. It has at least one condition.
type Rule struct {
	// Pointer names a value, and goes with exactly one of the four that follow.
	Pointer string `toml:"pointer"`
	Equals  any    `toml:"equals"`  // a string, boolean or number; numbers are equal by value
	Matches string `toml:"matches"` // an RE2 expression that matches the whole of a string
	Exists  bool   `toml:"exists"`  // it is there and not null
	// Absent: the document exists, and the value does not or is null. In an answer that is no
	// JSON, nothing counts as absent.
	Absent bool `toml:"absent"`

	Status  []int `toml:"status"`   // the HTTP status of the answer is one of these
	IsError *bool `toml:"is_error"` // the answer's status is FAILURE or DENIED, or is SUCCESS

	// Class is success, side_effect_committed, retryable_failure, permanent_failure or
	// compensatable_failure. Only a compensation makes a call compensated.
	Class string `toml:"class"`
}

// Change is the template of a state change. With Each, it is the template of one change per
// element of the array that Each leads to. Every other field is a template of a text.
type Change struct {
	Each         string `toml:"each"`
	ResourceType string `toml:"resource_type"`
	ResourceID   string `toml:"resource_id"`
	Operation    string `toml:"operation"`
	Version      string `toml:"version"`
	ETag         string `toml:"etag"`
	ExternalRef  string `toml:"external_ref"`
}

// Inverse is the template of the call that undoes a call of the tool.
type Inverse struct {
	Server string `toml:"server"` // "" = the tool's own
	Tool   string `toml:"name"`
	// Args is a JSON object. A string in it that is just one reference is replaced by the
	// referenced value, whatever its type. In any other string, references are replaced by
	// scalars as text.
	Args string `toml:"args"`
}

// Rules are a configuration that has been checked. They may be used by several
// goroutines.
type Rules struct {
	tools map[[2]string]*tool
}

// tool has the rules of one tool, ready for use.
type tool struct {
	form    string
	licence ledger.Licence
	rules   []rule
	changes []change
	inverse *inverse
	key     Key
}

// find returns the rules of a tool, nil if there are none.
func (r *Rules) find(server, name string) *tool {
	if t := r.tools[[2]string{server, name}]; t != nil {
		return t
	}
	return r.tools[[2]string{server, AnyTool}]
}

// Compile checks a configuration. An error is VALIDATION_ERROR with a pointer into c,
// as /tool/0/outcome/2/class.
func Compile(c Config) (*Rules, error) {
	r := &Rules{tools: map[[2]string]*tool{}}
	for i := range c.Tools {
		at := fmt.Sprintf("/tool/%d", i)
		t, err := compileTool(&c.Tools[i], at)
		if err != nil {
			return nil, err
		}
		name := [2]string{c.Tools[i].Server, c.Tools[i].Name}
		if r.tools[name] != nil {
			return nil, tga.Errorf(tga.ValidationError, "tool %s on %s has a row already", name[1], name[0]).At(at + "/name")
		}
		r.tools[name] = t
	}
	return r, nil
}

func compileTool(c *Tool, at string) (*tool, error) {
	t := &tool{form: c.Answer, licence: c.Licence, key: c.Key}
	if t.form == "" {
		t.form = FormJSON
	}
	switch {
	case !tga.CleanName(c.Server):
		return nil, wrong(at, "server", "%.80q is no server's name", c.Server)
	case c.Name != AnyTool && !tga.CleanName(c.Name):
		return nil, wrong(at, "name", "%.80q is no tool's name", c.Name)
	case t.form != FormJSON && t.form != FormMCP:
		return nil, wrong(at, "answer", "%.80q: want %s or %s", c.Answer, FormJSON, FormMCP)
	case len(c.Rules) > MaxRules:
		return nil, wrong(at, "outcome", "%d rules, at most %d", len(c.Rules), MaxRules)
	case len(c.Changes) > MaxRules:
		return nil, wrong(at, "change", "%d templates, at most %d", len(c.Changes), MaxRules)
	}
	for i := range c.Rules {
		u, err := t.compileRule(&c.Rules[i], fmt.Sprintf("%s/outcome/%d", at, i))
		if err != nil {
			return nil, err
		}
		t.rules = append(t.rules, u)
	}
	for i := range c.Changes {
		u, err := t.compileChange(&c.Changes[i], fmt.Sprintf("%s/change/%d", at, i))
		if err != nil {
			return nil, err
		}
		t.changes = append(t.changes, u)
	}
	if c.Inverse != nil {
		var err error
		if t.inverse, err = t.compileInverse(c, at+"/inverse"); err != nil {
			return nil, err
		}
	}
	if c.Key.Meta != "" && t.form != FormMCP {
		return nil, wrong(at+"/key", "meta", "goes with answer = %q", FormMCP)
	}
	return t, c.Key.check(at + "/key")
}

// documents returns the names of the documents that the tool's pointers may lead into.
func (t *tool) documents(more ...string) []string {
	names := append([]string{docArgs, docResult}, more...)
	if t.form == FormMCP {
		names = append(names, docError)
	}
	return names
}

// wrong returns the error for one member of the configuration.
func wrong(at, member, format string, args ...any) *tga.Error {
	return tga.Errorf(tga.ValidationError, member+": "+format, args...).At(at + "/" + member)
}

package manifest

import (
	"cmp"
	"encoding/json"
	"net/url"
	"strings"

	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/schemas/tga"
)

// transports says how tools of a type are reached. A custom tool is a function that its operator
// provides.
var transports = map[string]turn.Transport{
	"function": turn.OverFunction, "custom": turn.OverFunction,
	"http": turn.OverHTTP, "https": turn.OverHTTP, "rest": turn.OverHTTP,
	"mcp": turn.OverMCP, "grpc": turn.OverGRPC,
}

func (r *reader) tools(a *turn.Agent, root *node) {
	r.delegationLimits(a, root)
	if list, ok := take(r, "Tools", entries, root); ok {
		for _, n := range list.items {
			if n.kind == isText { // only a name: a function that the operator provides
				n.used = true
				a.Tools = append(a.Tools, turn.ToolSpec{Name: n.text, Transport: turn.OverFunction})
				continue
			}
			if _, ok := object(r, place{n, "a tool"}); ok && r.on(n) {
				r.tool(a, n)
			}
		}
	}
	r.handoffs(a, root)
	r.delegates(a, root)
}

// on says that a tool, or a capability of a tool, is not switched off.
func (r *reader) on(n *node) bool {
	on := true
	if set(r, &on, "Tools[].Enabled", truth, n); !on {
		r.warn(n, "it is not enabled, and is left out")
	}
	return on
}

func (r *reader) tool(a *turn.Agent, n *node) {
	kind, ok := take(r, "Tools[].Type", word, n)
	if !ok {
		kind = "function"
		r.warn(n, "the tool has no type, and is read as a function")
	}
	if kind == "a2a" || n.at("delegation") != nil {
		r.agentTool(a, n)
		return
	}
	over, ok := transports[kind]
	if !ok {
		r.warn(places("Tools[].Type", n)[0].node, "tools of the type %q can't be reached, and this one is left out", kind)
		return
	}
	t := turn.ToolSpec{Transport: over}
	set(r, &t.Name, "Tools[].Name", text, n)
	set(r, &t.Description, "Tools[].Description", prose, n)
	address := r.address(n)
	set(r, &t.Server, "Tools[].Server", text, n)
	set(r, &t.Remote, "Tools[].Remote", text, n)
	if address != nil && address.Scheme == "mcp" {
		// mcp://server/tool is a name, not an address.
		t.Server = cmp.Or(t.Server, address.Host)
		t.Remote = cmp.Or(t.Remote, strings.Trim(address.Path, "/"))
	} else if address != nil && address.String() != "" {
		r.server(a, n, turn.ToolServer{Name: cmp.Or(t.Server, t.Name), Transport: over, URI: address.String()})
	}
	r.settings(&t, n)
	caps, many := take(r, "Tools[].Capabilities", entries, n)
	if over == turn.OverMCP && !many && t.Server != "" {
		t.Remote = cmp.Or(t.Remote, t.Name) // with a server, the name is one tool of that server
	}
	switch {
	case over == turn.OverMCP && (many || t.Remote == "" && places("Tools[].InputSchema", n) == nil):
		r.discovered(a, n, t, caps)
	case many && len(caps.items) > 0:
		for _, c := range caps.items {
			r.capability(a, n, c, t)
		}
	default:
		r.schema(&t, n)
		r.add(a, n, t)
	}
}

// address reads the address of a tool's server; nil if the manifest has none.
func (r *reader) address(n *node) *url.URL {
	s, ok := take(r, "Tools[].URI", reachable, n)
	if !ok {
		return nil
	}
	u, err := url.Parse(s)
	if err != nil || u.Host == "" {
		u = &url.URL{Opaque: s} // host:port, as gRPC has it
	}
	return u
}

// reachable reads an address. If its placeholders have no value, the address is left to the
// operator, who configures what is reached.
func reachable(r *reader, p place) (string, bool) {
	mistakes := r.mistakes
	s, ok := text(r, p)
	if !ok {
		r.mistakes = mistakes
		r.warn(p.node, "the address %s is not known here, and is left to the operator", describe(p.node))
	}
	return s, ok && s != ""
}

func (r *reader) server(a *turn.Agent, n *node, s turn.ToolServer) {
	if s.Name == "" {
		r.warn(n, "the tool's server has no name")
		return
	}
	for _, have := range a.Servers {
		if have.Name == s.Name {
			if have.URI != s.URI {
				r.warn(places("Tools[].URI", n)[0].node, "the server %q is at %q already", s.Name, have.URI)
			}
			return
		}
	}
	a.Servers = append(a.Servers, s)
}

// settings reads the settings of a tool that a capability may override.
func (r *reader) settings(t *turn.ToolSpec, bases ...*node) {
	set(r, &t.Timeout, "Tools[].Timeout", limit, bases...)
	if p := r.retryPolicy("Tools[].Retry", bases...); p != nil {
		t.Retry = p
	}
	if b := r.breaker("Tools[].Breaker", bases...); b != nil {
		t.Breaker = b
	}
	set(r, &t.Parallel, "Tools[].Parallel", truth, bases...)
	r.restrained(t, bases...)
	if raw, ok := take(r, "Tools[].Fallback", value, bases...); ok {
		t.Fallback = raw
	}
}

// restrained reads the restrictions on calls of a tool.
func (r *reader) restrained(t *turn.ToolSpec, bases ...*node) {
	set(r, &t.Risk, "Tools[].Risk", oneOf(risks, "read, write or high_risk"), bases...)
	set(r, &t.Approve, "Tools[].Approve", truth, bases...)
}

var risks = map[string]string{"read": tga.RiskRead, "write": tga.RiskWrite, "high_risk": tga.RiskHigh}

func (r *reader) schema(t *turn.ToolSpec, bases ...*node) {
	set(r, &t.InputSchema, "Tools[].InputSchema", func(r *reader, p place) (json.RawMessage, bool) {
		if p.kind != isObject && p.kind != isBool {
			r.warn(p.node, "%s is %s and no JSON Schema: every input is taken", p.name, p.kind)
			return nil, false
		}
		raw, ok := value(r, p)
		return raw, ok
	}, bases...)
}

// add adds a tool that is reached by its name.
func (r *reader) add(a *turn.Agent, n *node, t turn.ToolSpec) {
	if t.Name == "" {
		r.warn(n, "the tool has no name, and is left out")
		return
	}
	a.Tools = append(a.Tools, t)
}

// capability makes a tool of one capability of a tool server.
func (r *reader) capability(a *turn.Agent, tool, c *node, t turn.ToolSpec) {
	t.Server = cmp.Or(t.Server, t.Name)
	t.Name, t.Remote = "", ""
	if c.kind == isText {
		c.used = true
		t.Name = c.text
	} else if _, ok := object(r, place{c, "a capability"}); !ok {
		return
	}
	set(r, &t.Name, "Tools[].Name", text, c)
	if c.kind == isObject && !r.on(c) {
		return
	}
	set(r, &t.Description, "Tools[].Description", prose, c)
	r.settings(&t, c)
	r.schema(&t, c)
	r.add(a, c, t)
}

// discovered takes the tools of an MCP server as the server lists them. Capabilities select
// tools; a capability with settings of its own becomes an entry of its own.
func (r *reader) discovered(a *turn.Agent, n *node, t turn.ToolSpec, caps *node) {
	t.Server = cmp.Or(t.Server, t.Name)
	t.Name, t.Remote, t.Discover = "", "", true
	if t.Server == "" {
		r.warn(n, "the tool names no MCP server, and is left out")
		return
	}
	if caps == nil {
		a.Tools = append(a.Tools, t)
		return
	}
	if len(caps.items) == 0 {
		r.warn(n, "its list of capabilities is empty: none of the server's tools is taken")
	}
	rest := t
	for _, c := range caps.items {
		own := t
		name := c.text
		if c.kind == isText {
			c.used = true
		} else if _, ok := object(r, place{c, "a capability"}); !ok {
			continue
		} else if !set(r, &name, "Tools[].Name", text, c) {
			r.warn(c, "the capability has no name, and is left out")
			continue
		} else if !r.on(c) {
			continue
		}
		before := len(r.report.Taken)
		r.settings(&own, c)
		if len(r.report.Taken) == before {
			rest.Only = append(rest.Only, name)
			continue
		}
		own.Only = []string{name}
		a.Tools = append(a.Tools, own)
	}
	if len(rest.Only) > 0 {
		a.Tools = append(a.Tools, rest)
	}
}

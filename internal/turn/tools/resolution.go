package tools

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/tgad/tgad/internal/clip"
	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/schemas/tga"
)

// resolution is one Resolve under way.
type resolution struct {
	r       *Resolver
	agent   *turn.Agent
	answers map[string]answer
	names   *names
	told    map[string]bool // servers whose missing tools were reported

	tools    []turn.Tool
	bytes    int // bytes of their schemas and descriptions
	warnings []turn.Warning
	untold   int // warnings beyond maxWarnings
}

// maxWarnings bounds the warnings in the record of the phase.
const maxWarnings = 1000

func (res *resolution) report(warnings ...turn.Warning) {
	for _, w := range warnings {
		if len(res.warnings) >= maxWarnings {
			res.untold++
			continue
		}
		w.Tool, w.Reason = clip.Runes(w.Tool, 128), clip.Runes(w.Reason, maxReason)
		res.warnings = append(res.warnings, w)
	}
}

func (res *resolution) warn(tool string, code tga.Code, format string, args ...any) {
	res.report(turn.Warning{Tool: tool, Code: code, Reason: fmt.Sprintf(format, args...)})
}

// spec resolves one entry of the manifest.
func (res *resolution) spec(i int) {
	spec := &res.agent.Tools[i]
	server := serverOf(spec)
	subject := cmp.Or(spec.Name, server)
	if spec.Delegation != nil {
		res.delegation(i, spec)
		return
	}
	switch spec.Transport {
	case turn.OverFunction, turn.OverHTTP, turn.OverMCP, turn.OverGRPC:
	default:
		res.warn(subject, tga.ValidationError, "transport %q: want function, http, mcp or grpc", spec.Transport)
		return
	}
	if _, known := res.r.sources[server]; !known {
		res.warn(subject, tga.NotFound, "no tool server %q is configured", server)
		return
	}
	got, asked := res.answers[server]
	if got.err != nil {
		res.warn(subject, codeOf(got.err, tga.ToolError), "tool server %s is unavailable: %v", server, got.err)
		return
	}
	if spec.Discover {
		if !asked {
			res.warn(subject, tga.ValidationError, "tool server %s cannot be asked for its tools", server)
			return
		}
		res.discover(i, spec, server, got.list)
		return
	}
	res.named(i, spec, server, got.list)
}

// named resolves a tool that the manifest names. The manifest's description and schema take
// precedence over the server's.
func (res *resolution) named(i int, spec *turn.ToolSpec, server string, list *listing) {
	t := res.tool(i, spec, server, cmp.Or(spec.Remote, spec.Name))
	t.Description = spec.Description
	schema := spec.InputSchema
	if list != nil {
		o, ok := list.offer(t.Remote)
		if !ok {
			res.warn(spec.Name, tga.NotFound, "tool server %s has no tool %q", server, t.Remote)
			return
		}
		if o.err != nil && len(schema) == 0 {
			res.warn(spec.Name, codeOf(o.err, tga.SchemaViolation), "tool %q on %s: %v", t.Remote, server, o.err)
			return
		}
		if res.drifted(spec.Name, list, t.Remote) {
			return
		}
		t.Description = cmp.Or(t.Description, o.description)
		if len(schema) == 0 {
			schema = o.schema
		}
	}
	res.add(t, spec.Name, schema)
}

// discover resolves all tools of a server, or those that the manifest selects.
func (res *resolution) discover(i int, spec *turn.ToolSpec, server string, list *listing) {
	for _, name := range spec.Only {
		if _, ok := list.by[name]; !ok {
			res.warn(name, tga.NotFound, "tool server %s has no tool %q", server, name)
		}
	}
	if !res.told[server] && len(spec.Only) == 0 {
		res.told[server] = true
		res.report(list.missing...)
	}
	for k := range list.offers {
		o := &list.offers[k]
		if len(spec.Only) > 0 && !slices.Contains(spec.Only, o.remote) {
			continue
		}
		if list.by[o.remote] != k {
			res.warn(o.remote, tga.ValidationError, "tool server %s lists the name twice; the first is taken", server)
			continue
		}
		if o.err != nil {
			res.warn(o.remote, codeOf(o.err, tga.SchemaViolation), "tool on %s: %v", server, o.err)
			continue
		}
		if res.drifted(o.remote, list, o.remote) {
			continue
		}
		t := res.tool(i, spec, server, o.remote)
		t.Description = o.description
		if spec.Transport == turn.OverMCP {
			t.Source = turn.ToolSource{Type: turn.FromMCP, Index: i, ServerURI: cmp.Or(res.uri(server), server), Capability: o.remote}
		}
		res.add(t, o.remote, o.schema)
	}
}

// drifted warns about a tool whose definition changed, and returns whether the tool is left out
// for that.
func (res *resolution) drifted(subject string, list *listing, remote string) bool {
	w, changed := list.drift[remote]
	if !changed {
		return false
	}
	w.Tool = subject
	res.report(w)
	return res.r.opts.LeaveOutChanged
}

// delegationSchema is the input schema of a tool that is another agent.
const delegationSchema = `{"additionalProperties":false,"properties":{` +
	`"context":{"description":"What the other agent needs to know besides the message.","type":"object"},` +
	`"message":{"description":"What the other agent is asked, complete in itself.","minLength":1,"type":"string"}},` +
	`"required":["message"],"type":"object"}`

func (res *resolution) delegation(i int, spec *turn.ToolSpec) {
	id, ok := spec.Delegation.Target, spec.Delegation.Target != ""
	if ok && res.r.opts.Delegate != nil {
		id, ok = res.r.opts.Delegate(spec.Delegation.Target)
	}
	if !ok {
		res.warn(cmp.Or(spec.Name, spec.Delegation.Target), tga.NotFound, "no agent %q to delegate to", spec.Delegation.Target)
		return
	}
	t := res.tool(i, spec, spec.Server, spec.Delegation.Target)
	t.Source = turn.ToolSource{Type: turn.FromDelegation, Index: i, AgentID: id}
	t.Transport = cmp.Or(spec.Transport, turn.OverFunction)
	t.Description = cmp.Or(spec.Description, "Hands work to the agent "+spec.Delegation.Target+" and returns its answer.")
	t.Timeout = cmp.Or(spec.Timeout, spec.Delegation.Timeout)
	d := *spec.Delegation
	t.Delegation = &d
	schema := spec.InputSchema
	if len(schema) == 0 {
		schema = json.RawMessage(delegationSchema)
	}
	res.add(t, cmp.Or(spec.Name, spec.Delegation.Target), schema)
}

// tool makes the part that all kinds of tools have in common.
func (res *resolution) tool(i int, spec *turn.ToolSpec, server, remote string) turn.Tool {
	t := turn.Tool{
		Source:    turn.ToolSource{Type: turn.FromManifest, Index: i},
		Transport: spec.Transport, Server: server, Remote: remote,
		Timeout: spec.Timeout, Retry: res.agent.Retry, Breaker: res.agent.Breaker,
		Parallel: spec.Parallel, Risk: spec.Risk, Approve: spec.Approve, Fallback: spec.Fallback,
	}
	if spec.Retry != nil {
		t.Retry = *spec.Retry
	}
	if spec.Breaker != nil {
		t.Breaker = *spec.Breaker
	}
	return t
}

// add checks a tool, names it and adds it to the tools.
func (res *resolution) add(t turn.Tool, own string, schema json.RawMessage) {
	if own == "" {
		res.warn(cmp.Or(t.Remote, t.Server), tga.ValidationError, "a tool on %s has no name", t.Server)
		return
	}
	if t.Delegation == nil && (!tga.CleanName(t.Server) || !tga.CleanName(t.Remote)) {
		res.warn(own, tga.ValidationError, "tool %.140q on %.140q: no call can have such a name, want %s", t.Remote, t.Server, tga.CleanNameForm)
		return
	}
	here := place{t.Server, t.Remote}
	if was, ok := res.names.taken(own); ok {
		if was != here { // the same tool, named and then discovered, needs no warning
			res.warn(own, tga.ValidationError, "name is taken by %q on %s; this one, on %s, is left out", was.remote, was.server, t.Server)
		}
		return
	}
	if len(res.tools) >= res.r.opts.MaxTools {
		res.warn(own, tga.LimitExceeded, "the agent has %d tools already", len(res.tools))
		return
	}
	var err error
	if t.InputSchema, t.SchemaDigest, err = prepare(schema, res.r.opts.MaxSchema); err == nil {
		_, err = res.r.schemas.get(t.InputSchema)
	}
	if err != nil {
		res.warn(own, codeOf(err, tga.SchemaViolation), "tool on %s: %v", t.Server, err)
		return
	}
	size := len(t.InputSchema) + len(t.Description)
	if res.bytes+size > res.r.opts.MaxBytes {
		res.warn(own, tga.LimitExceeded, "the agent's tools have %d bytes already, and this one %d; at most %d", res.bytes, size, res.r.opts.MaxBytes)
		return
	}
	name, other := res.names.give(own, here)
	switch {
	case name == "":
		res.warn(own, tga.ValidationError, "no name is left for it; %q and another have them", modelName(own))
		return
	case other != "":
		res.warn(own, tga.ValidationError, "the model sees it as %s, because %q already has the name %s", name, other, modelName(own))
	}
	t.Name = name
	res.bytes += size
	res.tools = append(res.tools, t)
}

func (res *resolution) uri(server string) string {
	for _, s := range res.agent.Servers {
		if s.Name == server {
			return s.URI
		}
	}
	return ""
}

func (l *listing) offer(remote string) (offer, bool) {
	i, ok := l.by[remote]
	if !ok {
		return offer{}, false
	}
	return l.offers[i], true
}

func sortWarnings(w []turn.Warning) {
	slices.SortFunc(w, func(a, b turn.Warning) int { return cmp.Compare(a.Tool, b.Tool) })
}

package manifest

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/tgad/tgad/runtime/turn"
)

var patternsOf = map[string]turn.DelegationType{
	"handoff": turn.Handoff, "parallel": turn.Parallel, "supervisor": turn.Supervisor,
}

var onFailure = map[string]turn.Strategy{"retry": turn.Retry, "fallback": turn.Fallback, "escalate": turn.Escalate}

// agentTool makes a tool of another agent.
func (r *reader) agentTool(a *turn.Agent, n *node) {
	d := &turn.Delegation{Type: turn.Supervisor}
	t := turn.ToolSpec{Transport: turn.OverFunction, Delegation: d}
	set(r, &t.Name, "Tools[].Name", text, n)
	set(r, &t.Description, "Tools[].Description", prose, n)
	set(r, &t.Server, "Tools[].Server", text, n)
	set(r, &d.Target, "Delegation.Target", text, n)
	if d.Target = cmp.Or(d.Target, t.Server, t.Name); d.Target == "" {
		r.warn(n, "the tool names no agent to delegate to, and is left out")
		return
	}
	t.Name = cmp.Or(t.Name, d.Target)
	set(r, &d.Type, "Delegation.Type", oneOf(patternsOf, "handoff, parallel or supervisor"), n)
	set(r, &d.Timeout, "Delegation.Timeout", limit, n)
	if name, ok := take(r, "Delegation.OnFailure", word, n); ok {
		if d.OnFailure, ok = onFailure[name]; !ok {
			d.OnFailure = turn.Escalate
			r.warn(places("Delegation.OnFailure", n)[0].node, "%q on failure is read as escalate", name)
		}
	}
	if keep, ok := take(r, "Delegation.Session", truth, n); ok {
		d.NoSession = !keep
	}
	set(r, &d.WithHistory, "Delegation.History", truth, n)
	set(r, &d.WithState, "Delegation.State", truth, n)
	if d.Type == turn.Parallel && d.WithState {
		r.warn(n, "agents that are lent the state run one after the other, not at once")
	}
	if c, ok := take(r, "Delegation.Context", object, n); ok {
		d.Context = map[string]json.RawMessage{}
		for _, f := range c.fields {
			if raw, ok := value(r, place{f.value, f.name}); ok {
				d.Context[f.name] = raw
			}
		}
	}
	r.schema(&t, n)
	if raw, ok := take(r, "Tools[].Fallback", value, n); ok {
		t.Fallback = raw
	}
	a.Tools = append(a.Tools, t)
}

// handoffs makes a tool of each agent that the conversation may be handed to.
func (r *reader) handoffs(a *turn.Agent, root *node) {
	list, ok := take(r, "Handoffs", entries, root)
	if !ok {
		return
	}
	for _, n := range list.items {
		d := turn.Delegation{Type: turn.Handoff}
		if !set(r, &d.Target, "Delegation.Target", text, n) {
			r.warn(n, "the handoff names no agent, and is left out")
			continue
		}
		context, ok := take(r, "Handoff.Context", word, n)
		d.WithHistory = context == "full" || context == "partial"
		d.WithState = context == "full"
		if ok && !d.WithHistory && context != "minimal" {
			r.warn(places("Handoff.Context", n)[0].node, "the transfer of %q context is read as minimal", context)
		}
		r.delegation(a, n, d)
	}
}

// delegates makes a tool of each agent that work may be given to.
func (r *reader) delegates(a *turn.Agent, root *node) {
	on := true
	set(r, &on, "Delegates.Enabled", truth, root)
	names, ok := take(r, "Delegates", texts, root)
	d := turn.Delegation{Type: turn.Supervisor}
	set(r, &d.Timeout, "Delegates.Timeout", limit, root)
	if !ok || !on {
		return
	}
	at := places("Delegates", root)[0].node
	for _, name := range names {
		d.Target = name
		r.delegation(a, at, d)
	}
}

func (r *reader) delegation(a *turn.Agent, n *node, d turn.Delegation) {
	if slices.ContainsFunc(a.Tools, func(t turn.ToolSpec) bool { return t.Delegation != nil && t.Delegation.Target == d.Target }) {
		r.warn(n, "there is a tool for the agent %q already", d.Target)
		return
	}
	a.Tools = append(a.Tools, turn.ToolSpec{Name: d.Target, Transport: turn.OverFunction, Delegation: &d})
}

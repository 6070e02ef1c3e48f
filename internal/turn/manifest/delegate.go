package manifest

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/tgad/tgad/internal/turn"
)

var patternsOf = map[string]turn.DelegationType{
	"handoff": turn.Handoff, "parallel": turn.Parallel, "supervisor": turn.Supervisor,
}

var onFailure = map[string]turn.Strategy{"retry": turn.Retry, "fallback": turn.Fallback, "escalate": turn.Escalate}

// agentTool makes a tool that delegates to another agent.
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
	r.restrained(&t, n)
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
	if r.mayDelegate(n, d.Target) {
		a.Tools = append(a.Tools, t)
	}
}

// mayDelegate says that an agent may be delegated to: delegation is not switched off, and the
// agent is in the manifest's list, if there is one.
func (r *reader) mayDelegate(n *node, target string) bool {
	switch {
	case r.noDelegation:
		r.warn(n, "delegation is not enabled, and the tool for the agent %q is left out", target)
	case r.allowed != nil && !slices.Contains(r.allowed, target):
		r.warn(n, "the agent %q is not among those that work may be given to, and the tool is left out", target)
	default:
		return true
	}
	return false
}

// delegationLimits reads which agents may be delegated to, and how deep.
func (r *reader) delegationLimits(a *turn.Agent, root *node) {
	on := true
	set(r, &on, "Delegates.Enabled", truth, root)
	r.noDelegation = !on
	if names, ok := take(r, "Delegates", texts, root); ok {
		r.allowed = names
	}
	setLeast(r, &a.Constraints.MaxDepth, "Delegates.MaxDepth", count(1), root)
}

// handoffs makes a tool for each agent that the conversation may be handed to.
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
		if conditions, ok := take(r, "Handoff.Conditions", texts, n); ok && len(conditions) > 0 {
			r.delegation(a, n, d, "Hands the conversation over to the agent "+d.Target+", when: "+strings.Join(conditions, "; ")+".")
			continue
		}
		r.delegation(a, n, d, "")
	}
}

// delegates makes a tool for each agent that may be delegated to.
func (r *reader) delegates(a *turn.Agent, root *node) {
	d := turn.Delegation{Type: turn.Supervisor}
	set(r, &d.Timeout, "Delegates.Timeout", limit, root)
	if r.noDelegation {
		return
	}
	for _, name := range r.allowed {
		d.Target = name
		r.delegation(a, places("Delegates", root)[0].node, d, "")
	}
}

func (r *reader) delegation(a *turn.Agent, n *node, d turn.Delegation, description string) {
	if !r.mayDelegate(n, d.Target) {
		return
	}
	if slices.ContainsFunc(a.Tools, func(t turn.ToolSpec) bool { return t.Delegation != nil && t.Delegation.Target == d.Target }) {
		r.warn(n, "there is a tool for the agent %q already", d.Target)
		return
	}
	a.Tools = append(a.Tools, turn.ToolSpec{Name: d.Target, Description: description, Transport: turn.OverFunction, Delegation: &d})
}

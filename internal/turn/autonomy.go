package turn

import (
	"context"
	"regexp"
	"strings"
	"time"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// Autonomy restricts what an agent does by itself. The zero value restricts nothing beyond the
// operator's rules. No value permits more than those rules.
type Autonomy struct {
	// Restricted means that only the tools in Allowed may be called, and none if Allowed is
	// empty. An entry is the exact name of a tool, or "server/tool"; "*" stands for any text.
	Restricted bool     `json:",omitempty"`
	Allowed    []string `json:",omitempty"`
	// Blocked tools are never called and not shown to the model. An entry is compared with the
	// tool's names and with its server's name, ignoring case and separators.
	Blocked []string `json:",omitempty"`
	// Approve means that every call waits for an approval. ApproveTools names single tools,
	// compared like Blocked.
	Approve      bool     `json:",omitempty"`
	ApproveTools []string `json:",omitempty"`
	// ApproveHighRisk asks for an approval of calls of high risk, and of calls whose risk nobody
	// has declared.
	ApproveHighRisk bool `json:",omitempty"`
	// Within is how long a call waits for an approval before it is denied; 0 = for ever.
	Within time.Duration `json:",omitempty"`
}

// refuses returns why a tool may not be called, "" if it may.
func (a *Autonomy) refuses(t *Tool) string {
	for _, entry := range a.Blocked {
		if t.namedWidely(entry) {
			return "the manifest blocks the action " + entry
		}
	}
	if !a.Restricted {
		return ""
	}
	for _, entry := range a.Allowed {
		if t.namedExactly(entry) {
			return ""
		}
	}
	return "the manifest's allowed_actions do not include this tool"
}

// asks returns why a call of a tool needs an approval, "" if it needs none. risk is the risk of
// the request, which the operator's policy may have raised.
func (a *Autonomy) asks(t *Tool, risk string) string {
	if a.Approve {
		return "the manifest wants an approval of every call"
	}
	if t.Approve {
		return "the manifest wants an approval of every call of this tool"
	}
	for _, entry := range a.ApproveTools {
		if t.namedWidely(entry) {
			return "the manifest wants an approval of the action " + entry
		}
	}
	if !a.ApproveHighRisk {
		return ""
	}
	if risk == tga.RiskHigh || t.Risk == tga.RiskHigh {
		return "the manifest wants an approval of actions of high risk"
	}
	if t.Risk == "" && risk != tga.RiskRead {
		return "the manifest wants an approval of actions of high risk, and nobody has said that this one is of less"
	}
	return ""
}

// names returns the names that a manifest may use for a tool: the model's name and the server's
// name for it, alone and after the server's name.
func (t *Tool) names() []string {
	names := []string{t.Name, t.Remote}
	if t.Delegation != nil {
		names = append(names, t.Delegation.Target)
	}
	if t.Server != "" {
		names = append(names, t.Server+"/"+t.Remote, t.Server+"/"+t.Name)
	}
	return names
}

// namedExactly says that an entry of a permission names the tool. It compares exactly, so that a
// permission covers no more than it says.
func (t *Tool) namedExactly(entry string) bool {
	for _, name := range t.names() {
		if name != "" && glob(entry, name) {
			return true
		}
	}
	return false
}

// namedWidely says that an entry of a restriction names the tool. It compares loosely, so that a
// different spelling does not let a call pass. The name of a server alone stands for all of its
// tools.
func (t *Tool) namedWidely(entry string) bool {
	entry = plainName(entry)
	for _, name := range append(t.names(), t.Server) {
		if name != "" && glob(entry, plainName(name)) {
			return true
		}
	}
	return false
}

var separators = regexp.MustCompile(`[^\pL\pN*]+`)

// plainName returns a name in lower case and with one kind of separator.
func plainName(s string) string {
	return strings.Trim(separators.ReplaceAllString(strings.ToLower(s), "_"), "_")
}

// glob compares a name with a pattern in which "*" stands for any text.
func glob(pattern, name string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == name
	}
	if !strings.HasPrefix(name, parts[0]) {
		return false
	}
	name = name[len(parts[0]):]
	last := parts[len(parts)-1]
	for _, part := range parts[1 : len(parts)-1] {
		i := strings.Index(name, part)
		if i < 0 {
			return false
		}
		name = name[i+len(part):]
	}
	return strings.HasSuffix(name, last)
}

// permitted leaves out the tools that an agent may not call, with a warning for each. A model
// does not ask for a tool that it does not see.
func (a *Agent) permitted(tools []Tool) (kept []Tool, warnings []Warning) {
	kept = make([]Tool, 0, len(tools))
	for i := range tools {
		if why := a.Autonomy.refuses(&tools[i]); why != "" {
			warnings = append(warnings, Warning{Tool: tools[i].Name, Code: tga.PolicyViolation, Reason: why})
			continue
		}
		kept = append(kept, tools[i])
	}
	return kept, warnings
}

// approvalOf returns the subject of the question whether a delegation may be made. A delegation
// is not a governed call.
func approvalOf(call string) string { return approvalPrefix + call }

const approvalPrefix = "approval/"

// mayHandOver asks a person about a delegation if the manifest wants that, because a supervisor
// only sees governed calls. The decision "retry" permits the delegation. With "skip" the model is
// told that it was refused, and so it is when [Autonomy.Within] ends, counted from the first time
// that the person is asked.
func (c *toolCall) mayHandOver() bool {
	why := c.t.agent.Autonomy.asks(c.tool, "")
	if why == "" || c.t.decision[subject(Execute, approvalOf(c.asked.ID), tga.EscalationRequired)].Action == Retry {
		return true
	}
	park := &parkedBody{Subject: approvalOf(c.asked.ID)}
	if w := c.t.waits; w != nil && w.Subject == park.Subject {
		park.Expires = w.Expires
	} else if c.t.agent.Autonomy.Within > 0 {
		park.Expires = tga.MillisOf(c.r.now().Time().Add(c.t.agent.Autonomy.Within))
	}
	if park.expired(c.r.now()) {
		f := &Failure{Code: tga.ApprovalExpired, Message: "the approval to hand work to agent " + c.tool.Delegation.Target + " expired at " + park.Expires.String(), Permanent: true}
		c.fail(f)
		c.plan = c.planFor(f, 1)
		return false
	}
	park.Failure = Failure{Code: tga.EscalationRequired, Message: "work is not handed to agent " + c.tool.Delegation.Target + " yet: " + why}
	c.fail(&park.Failure)
	c.plan, c.park = plan{strategy: Escalate}, park
	return false
}

// overseer adds the restrictions of agents' manifests to the operator's supervisor. A manifest
// only restricts, so it is asked only about requests that the supervisor did not deny.
type overseer struct {
	r    *Runner
	next runtime.Supervisor
}

// pureOverseer is an overseer of a pure supervisor. It is pure too: what an agent's manifest says
// of a call follows from the request and from records that are durable before it.
type pureOverseer struct{ overseer }

// Pure marks the type as a [runtime.PureSupervisor].
func (pureOverseer) Pure() {}

func (r *Runner) oversee(next runtime.Supervisor) runtime.Supervisor {
	if _, pure := next.(runtime.PureSupervisor); pure {
		return pureOverseer{overseer{r, next}}
	}
	return overseer{r, next}
}

// Decide asks the operator's supervisor, then the manifest of the agent whose call it is.
func (o overseer) Decide(ctx context.Context, request *tga.Artifact) (runtime.Verdict, error) {
	v, err := o.next.Decide(ctx, request)
	if err != nil || v.Decision == tga.Deny {
		return v, err
	}
	agent, tool, err := o.r.callerOf(ctx, request.Request.IdempotencyKey)
	if err != nil || agent == nil {
		return v, err
	}
	if why := agent.Autonomy.refuses(tool); why != "" {
		return runtime.Verdict{Decision: tga.Deny, Rationale: why, PolicyHash: v.PolicyHash}, nil
	}
	why := agent.Autonomy.asks(tool, request.Request.RiskLevel)
	if why == "" {
		return v, nil
	}
	if v.Decision == tga.Approve {
		v = runtime.Verdict{Decision: tga.NeedsApproval, Rationale: why, Required: 1, PolicyHash: v.PolicyHash}
	}
	if w := agent.Autonomy.Within; w > 0 && (v.Within == 0 || w < v.Within) {
		v.Within = w
	}
	return v, nil
}

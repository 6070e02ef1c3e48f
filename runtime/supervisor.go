package runtime

import (
	"context"
	"time"

	"github.com/tgad/tgad/schemas/tga"
)

// Supervisor decides whether a request may become a call. It may be asked again
// about the same request: after a crash before its answer was durable, when somebody votes on the
// request or looks at it, and in a later run before the first send or its permit.
type Supervisor interface {
	Decide(ctx context.Context, request *tga.Artifact) (Verdict, error)
}

// PureSupervisor marks a Supervisor whose verdict depends on the request alone and
// which changes nothing in the world. It may be asked about a request that is not durable
// yet, so request, decision and call can share one sync. Any other Supervisor is
// asked only about a request that is on disk.
type PureSupervisor interface {
	Supervisor
	Pure()
}

// Verdict is a supervisor's answer.
type Verdict struct {
	Decision   string // tga.Approve, tga.Deny or tga.NeedsApproval
	Rationale  string // 10..1000 characters
	PolicyHash tga.Digest

	// For NeedsApproval: how many approvals the request needs (0 means 1), and how long it
	// waits for them (0 means for ever; a negative time is over, and the request is denied).
	Required int
	Within   time.Duration
}

// AllowAll approves every request.
var AllowAll PureSupervisor = allowAll{}

type allowAll struct{}

func (allowAll) Pure() {}

func (allowAll) Decide(context.Context, *tga.Artifact) (Verdict, error) {
	return Verdict{Decision: tga.Approve, Rationale: "every request is approved"}, nil
}

// Rule is one line of a rule table. Empty fields match everything.
type Rule struct {
	Server string
	Tool   string
	Risk   string // tga.RiskRead, …

	Decision  string // tga.Approve, tga.Deny or tga.NeedsApproval
	Rationale string // "" means a sentence naming the rule
	Required  int
	Within    time.Duration
}

// Rules is a supervisor that takes the first rule that matches. If none matches, it
// denies: a tool that the operator did not think of is not called.
type Rules struct {
	Rules []Rule
	// PolicyHash is in each decision, so that an auditor can tell which table
	// decided.
	PolicyHash tga.Digest
}

// Pure marks Rules as a [PureSupervisor].
func (Rules) Pure() {}

// Decide applies the first rule that matches.
func (r Rules) Decide(_ context.Context, request *tga.Artifact) (Verdict, error) {
	q := request.Request
	for _, rule := range r.Rules {
		if !rule.matches(q) {
			continue
		}
		v := Verdict{
			Decision: rule.Decision, Rationale: rule.Rationale, PolicyHash: r.PolicyHash,
			Required: rule.Required, Within: rule.Within,
		}
		if v.Rationale == "" {
			v.Rationale = rule.describe()
		}
		return v, nil
	}
	return Verdict{Decision: tga.Deny, Rationale: "no rule matches this request", PolicyHash: r.PolicyHash}, nil
}

func (r Rule) matches(q *tga.ActionRequest) bool {
	return (r.Server == "" || r.Server == q.Proposal.ToolServer) &&
		(r.Tool == "" || r.Tool == q.Proposal.ToolName) &&
		(r.Risk == "" || r.Risk == q.RiskLevel)
}

func (r Rule) describe() string {
	part := func(name, v string) string {
		if v == "" {
			v = "any"
		}
		return " " + name + " " + v
	}
	return "rule for" + part("server", r.Server) + "," + part("tool", r.Tool) + "," + part("risk", r.Risk)
}

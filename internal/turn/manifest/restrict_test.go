package manifest_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/internal/turn/manifest"
	"github.com/tgad/tgad/internal/turn/message"
	"github.com/tgad/tgad/schemas/tga"
)

// restriction is a member of the schema of OSSA 0.2.9 that restricts an agent, and what it
// becomes, or the place at which it is refused.
type restriction struct {
	member  string // its place below spec, [] for an element
	yaml    string // of spec
	becomes func(a *turn.Agent) bool
	refused string // JSON Pointer, if it is refused
}

func filters(pii ...string) func(a *turn.Agent) bool {
	return func(a *turn.Agent) bool { return slices.Equal(a.Filter.PII, pii) }
}

var restrictions = []restriction{
	{member: "autonomy.level", yaml: "autonomy: {level: supervised}", becomes: func(a *turn.Agent) bool { return a.Autonomy.Approve }},
	{member: "autonomy.level", yaml: "autonomy: {level: a_little}", becomes: func(a *turn.Agent) bool { return a.Autonomy.Approve }},
	{member: "autonomy.level", yaml: "autonomy: {level: supervised, approval_required: false}", refused: "/spec/autonomy/approval_required"},
	{member: "autonomy.approval_required", yaml: "autonomy: {level: autonomous, approval_required: false}", becomes: func(a *turn.Agent) bool { return !a.Autonomy.Approve }},
	{member: "collaboration.delegation.allowed_agents", yaml: "collaboration: {handoffs: [{target_agent: b}, {target_agent: c}], delegation: {allowed_agents: [c]}}", becomes: func(a *turn.Agent) bool { return len(a.Tools) == 1 && a.Tools[0].Delegation.Target == "c" }},
	{member: "autonomy.approval_required", yaml: "autonomy: {level: autonomous, approval_required: true}", becomes: func(a *turn.Agent) bool { return a.Autonomy.Approve }},
	{member: "autonomy.approval_required", yaml: "autonomy: {approval_required: [charge]}", becomes: func(a *turn.Agent) bool {
		return !a.Autonomy.Approve && slices.Equal(a.Autonomy.ApproveTools, []string{"charge"})
	}},
	{member: "autonomy.allowed_actions", yaml: "autonomy: {allowed_actions: [charge]}", becomes: func(a *turn.Agent) bool {
		return a.Autonomy.Restricted && slices.Equal(a.Autonomy.Allowed, []string{"charge"})
	}},
	{member: "autonomy.allowed_actions", yaml: "autonomy: {allowed_actions: []}", becomes: func(a *turn.Agent) bool { return a.Autonomy.Restricted }},
	{member: "autonomy.blocked_actions", yaml: "autonomy: {blocked_actions: [charge]}", becomes: func(a *turn.Agent) bool { return slices.Equal(a.Autonomy.Blocked, []string{"charge"}) }},
	{member: "autonomy.blocked_actions", yaml: "autonomy: {blocked_actions: [send money]}", refused: "/spec/autonomy/blocked_actions"},
	{member: "autonomy.escalation_policy", yaml: "autonomy: {escalation_policy: {to: ann}}", refused: "/spec/autonomy/escalation_policy"},

	{member: "constraints.cost.maxTokensPerDay", yaml: "constraints: {cost: {maxTokensPerDay: 5}}", refused: "/spec/constraints/cost/maxTokensPerDay"},
	{member: "constraints.cost.maxTokensPerRequest", yaml: "constraints: {cost: {maxTokensPerRequest: 5}}", becomes: func(a *turn.Agent) bool { return *a.Model.Parameters.MaxTokens == 5 }},
	{member: "constraints.cost.maxCostPerDay", yaml: "constraints: {cost: {maxCostPerDay: 5, currency: CHF}}", refused: "/spec/constraints/cost/maxCostPerDay"},
	{member: "constraints.performance.maxLatencySeconds", yaml: "constraints: {performance: {maxLatencySeconds: 5}}", becomes: func(a *turn.Agent) bool { return a.Constraints.Timeout == 5*time.Second }},
	{member: "constraints.performance.maxConcurrentRequests", yaml: "constraints: {performance: {timeoutSeconds: 3, maxConcurrentRequests: 5}}", refused: "/spec/constraints/performance/maxConcurrentRequests"},
	{member: "constraints.performance.timeoutSeconds", yaml: "constraints: {performance: {timeoutSeconds: 5, maxLatencySeconds: 9}}", becomes: func(a *turn.Agent) bool { return a.Constraints.Timeout == 5*time.Second }},

	{member: "safety.content_filtering.categories", yaml: "safety: {content_filtering: {categories: [pii]}}", becomes: func(a *turn.Agent) bool { return len(a.Filter.PII) > 0 && a.Filter.Action == message.Block }},
	{member: "safety.content_filtering.categories", yaml: "safety: {content_filtering: {categories: [hate]}}", refused: "/spec/safety/content_filtering/categories"},
	{member: "safety.content_filtering.action", yaml: "safety: {content_filtering: {categories: [pii], action: dissolve}}", refused: "/spec/safety/content_filtering/action"},
	{member: "safety.pii_detection.types", yaml: "safety: {pii_detection: {types: [email]}}", becomes: filters("email")},
	{member: "safety.pii_detection.types", yaml: "safety: {pii_detection: {types: [email, name]}}", refused: "/spec/safety/pii_detection/types"},
	{member: "safety.pii_detection.types", yaml: "safety: {pii_detection: {types: [name], enabled: false}}", becomes: filters()},
	{member: "safety.pii_detection.action", yaml: "safety: {pii_detection: {types: [email], action: block}}", becomes: func(a *turn.Agent) bool { return a.Filter.Action == message.Block }},
	{member: "safety.rate_limiting", yaml: "safety: {rate_limiting: {requests_per_minute: 5}}", refused: "/spec/safety/rate_limiting"},
	{member: "safety.rate_limiting", yaml: "safety: {rate_limiting: {enabled: false, requests_per_minute: 5}}", becomes: func(*turn.Agent) bool { return true }},
	{member: "safety.guardrails.policies", yaml: "safety: {guardrails: {policies: [{name: p, type: both, rules: [Say the price.]}]}}", becomes: func(a *turn.Agent) bool { return strings.Contains(a.SystemPrompt, "Say the price.") }},
	{member: "safety.guardrails.policies", yaml: "safety: {guardrails: {policies: [no_secrets]}}", refused: "/spec/safety/guardrails/policies/0"},
	{member: "safety.guardrails.policies", yaml: "safety: {guardrails: [{max_tool_calls: 3}, no_secrets]}", refused: "/spec/safety/guardrails/1"},
	{member: "safety.guardrails.max_tool_calls", yaml: "constraints: {max_tool_calls: 9}\n  safety: {guardrails: {max_tool_calls: 5}}", becomes: func(a *turn.Agent) bool { return a.Constraints.MaxToolCalls == 5 }},
	{member: "safety.guardrails.max_execution_time_seconds", yaml: "safety: {guardrails: {max_execution_time_seconds: 5}}", becomes: func(a *turn.Agent) bool { return a.Constraints.MaxExecution == 5*time.Second }},
	{member: "safety.human_in_loop.enabled", yaml: "safety: {human_in_loop: {enabled: true}}", becomes: func(a *turn.Agent) bool { return a.Autonomy.Approve }},
	{member: "safety.human_in_loop.enabled", yaml: "safety: {human_in_loop: true}", becomes: func(a *turn.Agent) bool { return a.Autonomy.Approve }},
	{member: "safety.human_in_loop.triggers", yaml: "safety: {human_in_loop: {triggers: [high_risk_action]}}", becomes: func(a *turn.Agent) bool { return a.Autonomy.ApproveHighRisk && !a.Autonomy.Approve }},
	{member: "safety.human_in_loop.triggers", yaml: "safety: {human_in_loop: {enabled: true, triggers: [policy_violation]}}", becomes: func(a *turn.Agent) bool { return len(a.Handlers) == 1 && a.Handlers[0].Strategy == turn.Escalate }},
	{member: "safety.human_in_loop.triggers", yaml: "safety: {human_in_loop: {enabled: true, triggers: [low_confidence]}}", refused: "/spec/safety/human_in_loop/triggers"},
	{member: "safety.human_in_loop.triggers", yaml: "safety: {human_in_loop: {enabled: true, triggers: [user_request]}}", refused: "/spec/safety/human_in_loop/triggers"},
	{member: "safety.human_in_loop.timeout_seconds", yaml: "safety: {human_in_loop: {enabled: true, timeout_seconds: 5}}", becomes: func(a *turn.Agent) bool { return a.Autonomy.Within == 5*time.Second }},

	{member: "security.authentication", yaml: "security: {authentication: {required: true}}", refused: "/spec/security/authentication"},
	{member: "security.authorization", yaml: "security: {authorization: {roles: [payer]}}", refused: "/spec/security/authorization"},
	{member: "security.encryption", yaml: "security: {encryption: {at_rest: {enabled: true}}}", refused: "/spec/security/encryption"},
	{member: "security.audit.pii_redaction", yaml: "security: {audit: {pii_redaction: true, retention_days: 7}}", becomes: func(a *turn.Agent) bool { return len(a.Redact.PII) > 0 }},
	{member: "security.compliance.data_residency", yaml: "security: {compliance: {frameworks: [soc2], data_residency: [CH]}}", refused: "/spec/security/compliance/data_residency"},
	{member: "security", yaml: "security: {sandbox: {network: none}}", refused: "/spec/security/sandbox"},

	{member: "collaboration.delegation.enabled", yaml: "tools: [{type: a2a, name: b}]\n  collaboration: {handoffs: [{target_agent: c}], delegation: {enabled: false, allowed_agents: [b]}}", becomes: func(a *turn.Agent) bool { return len(a.Tools) == 0 }},
	{member: "collaboration.delegation.allowed_agents", yaml: "tools: [{type: a2a, name: b}, {type: a2a, name: c}]\n  collaboration: {delegation: {allowed_agents: [b]}}", becomes: func(a *turn.Agent) bool { return len(a.Tools) == 1 && a.Tools[0].Name == "b" }},
	{member: "collaboration.delegation.max_depth", yaml: "collaboration: {delegation: {max_depth: 2}}", becomes: func(a *turn.Agent) bool { return a.Constraints.MaxDepth == 2 }},
	{member: "collaboration.handoffs[].conditions", yaml: "collaboration: {handoffs: [{target_agent: c, conditions: [asks_for_price]}]}", becomes: func(a *turn.Agent) bool { return strings.Contains(a.Tools[0].Description, "asks_for_price") }},
	{member: "deployment.testing.dry_run", yaml: "deployment: {strategy: canary, testing: {dry_run: true, shadow_mode: false}}", refused: "/spec/deployment/testing/dry_run"},
	{member: "deployment.testing.shadow_mode", yaml: "deployment: {testing: {shadow_mode: true}}", refused: "/spec/deployment/testing/shadow_mode"},
	{member: "state.storage.encryption", yaml: "state: {storage: {encryption: {enabled: true}}}", refused: "/spec/state/storage/encryption/enabled"},

	{member: "tools[].name", yaml: "tools: [{type: mcp, server: notes, name: other}]", becomes: func(a *turn.Agent) bool {
		return len(a.Tools) == 1 && !a.Tools[0].Discover && a.Tools[0].Remote == "other" && a.Tools[0].Server == "notes"
	}},
	{member: "tools[].capabilities", yaml: "tools: [{type: mcp, server: notes, capabilities: [other]}]", becomes: func(a *turn.Agent) bool { return len(a.Tools) == 1 && slices.Equal(a.Tools[0].Only, []string{"other"}) }},
	{member: "tools[].capabilities", yaml: "tools: [{type: mcp, server: notes, capabilities: []}]", becomes: func(a *turn.Agent) bool { return len(a.Tools) == 0 }},
	{member: "tools[].config", yaml: "tools: [{type: mcp, server: files, config: {allowed_directories: [/tmp]}}]", refused: "/spec/tools/0/config/allowed_directories"},
	{member: "tools[].config", yaml: "tools: [{type: mcp, server: files, config: {readOnly: true}}]", refused: "/spec/tools/0/config/readOnly"},
	{member: "tools[].transport.rateLimit", yaml: "tools: [{type: http, name: t, transport: {rateLimit: {requestsPerMinute: 1}}}]", refused: "/spec/tools/0/transport/rateLimit"},
	{member: "tools[].capabilities[].timeout.execution_seconds", yaml: "tools: [{type: http, name: t, capabilities: [{name: c, timeout: {execution_seconds: 5}}]}]", becomes: func(a *turn.Agent) bool { return a.Tools[0].Timeout == 5*time.Second }},

	// These are not in the schema, and are recognized nevertheless.
	{member: "permissions", yaml: "permissions: [read]", refused: "/spec/permissions"},
	{member: "allowed_tools", yaml: "allowed_tools: [read]", refused: "/spec/allowed_tools"},
	{member: "tools[].requires_approval", yaml: "tools: [{type: http, name: t, requires_approval: true}]", becomes: func(a *turn.Agent) bool { return a.Tools[0].Approve }},
	{member: "tools[].requires_approval", yaml: "tools: [{type: a2a, name: t, requires_approval: true}]", becomes: func(a *turn.Agent) bool { return a.Tools[0].Approve }},
	{member: "tools[].enabled", yaml: "tools: [{type: http, name: t, enabled: false}]", becomes: func(a *turn.Agent) bool { return len(a.Tools) == 0 }},
	{member: "workspace", yaml: "workspace: {directory: work, exclude: [node_modules], database: notes.db}", becomes: func(a *turn.Agent) bool {
		return a.Workspace.Directory == "work" && slices.Equal(a.Workspace.Exclude, []string{"node_modules"}) && a.Workspace.Database == "notes.db"
	}},
	{member: "workspace", yaml: "workspace: {directory: work, size: 5}", refused: "/spec/workspace/size"},
	{member: "two limits", yaml: "constraints: {max_turns: 9, safety: {maxTurns: 4}}\n  lifecycle: {max_turns: 5}", becomes: func(a *turn.Agent) bool { return a.Constraints.MaxTurns == 4 }},
	{member: "two filters", yaml: "safety: {output_filtering: {secrets: true}}\n  security: {output_filtering: {pii: true}}", refused: "/spec/safety/output_filtering"},
}

// TestWhatAManifestRestrictsIsEnforcedOrRefused checks every member of the schema that restricts
// an agent. None is ignored silently: the runtime enforces it, or the manifest is refused with
// its pointer. If that pointer is accepted, it is a warning.
func TestWhatAManifestRestrictsIsEnforcedOrRefused(t *testing.T) {
	for _, c := range restrictions {
		t.Run(c.yaml, func(t *testing.T) {
			raw := []byte("apiVersion: ossa/v0.2.9\nkind: Agent\nmetadata: {name: a}\nspec:\n  role: r\n  " + c.yaml + "\n")
			a, _, err := manifest.Read(raw)
			if c.refused == "" {
				if err != nil || !c.becomes(a) {
					t.Errorf("%s: %v, %+v", c.member, err, a)
				}
				return
			}
			var all *manifest.Error
			if !errors.As(err, &all) || len(all.Mistakes) != 1 || all.Mistakes[0].Pointer != c.refused || all.Mistakes[0].Code != tga.PolicyViolation {
				t.Fatalf("%s: %v", c.member, err)
			}
			for _, pointer := range []string{c.refused, c.refused[:strings.LastIndexByte(c.refused, '/')]} {
				a, report, err := manifest.Reader{Unenforced: []string{pointer}}.Read(raw)
				if err != nil || a == nil || !slices.ContainsFunc(report.Warnings, func(w manifest.Warning) bool { return w.At == c.refused }) {
					t.Errorf("accepted by %s: %v, %+v", pointer, err, report.Warnings)
				}
			}
			if _, _, err := (manifest.Reader{Unenforced: []string{c.refused + "x", c.refused[:len(c.refused)-1]}}).Read(raw); err == nil {
				t.Error("another pointer accepts it")
			}
		})
	}
}

// TestSeveralDocuments: each Agent document of a text becomes an agent; other documents are
// skipped, with a warning.
func TestSeveralDocuments(t *testing.T) {
	agent := func(name string) string {
		return fmt.Sprintf("---\nkind: Agent\nmetadata: {name: %s}\nspec: {role: r}\n", name)
	}
	docs, err := manifest.Reader{}.ReadAll([]byte("---\nkind: Workflow\nspec: {steps: []}\n" + agent("one") + agent("two") + "---\n"))
	if err != nil || len(docs) != 2 || docs[0].Agent.Name != "one" || docs[1].Agent.Name != "two" {
		t.Fatalf("%+v, %v", docs, err)
	}
	if w := docs[0].Report.Warnings; len(w) == 0 || w[len(w)-1].Line != 2 || !strings.Contains(w[len(w)-1].Message, "Workflow") {
		t.Errorf("%+v", w)
	}
	for name, text := range map[string]string{
		"the same name twice": agent("one") + agent("one"),
		"no agent":            "kind: Workflow\n---\nkind: Task\n",
		"one is broken":       agent("one") + "---\nmetadata: {name: NO}\n",
	} {
		docs, err := manifest.Reader{}.ReadAll([]byte(text))
		var all *manifest.Error
		if !errors.As(err, &all) || len(all.Mistakes) != 1 || len(docs) > 0 && docs[0].Agent != nil {
			t.Errorf("%s: %+v, %v", name, docs, err)
		}
	}
}

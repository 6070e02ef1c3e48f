package manifest

import (
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/schemas/tga"
)

// Every restriction of a manifest is enforced, or the manifest is refused: its author relies on
// the restriction. Three rules ensure that. Of a limit with several places, the smallest holds
// ([least]). A restriction that differs between two places is refused ([restricting]). A value
// that was not read is refused if it lies in a part that exists to restrict, or if its name says
// that it restricts ([reader.restrictions]).

// closed are the parts of a manifest that exist to restrict an agent. Every member of them that
// is not enforced is refused, whether this program knows it or not.
var closed = []string{
	"spec.autonomy", "spec.safety", "spec.constraints", "spec.security", "spec.compliance",
	"spec.collaboration.delegation", "spec.deployment.testing", "spec.state.storage.encryption", "spec.workspace",
}

// unrestricting are members of closed parts that do not restrict the agent: they describe it,
// name what it is deployed with, or tune the member beside them.
var unrestricting = []string{
	"spec.constraints.cost.currency", "spec.constraints.resources",
	"spec.security.audit.enabled", "spec.security.audit.log_level", "spec.security.audit.retention_days",
	"spec.security.secrets", "spec.security.compliance.frameworks", "spec.compliance.frameworks",
	"spec.safety.content_filtering.threshold",
}

// telling matches names of members that restrict, anywhere in spec or in a tool.
var telling = regexp.MustCompile(`^(allow|deny|denied|block|forbid|forbidden|prohibit|restrict|whitelist|blacklist|limits?$|quotas?$|max_|permissions?$|polic(y|ies)$|guardrails?$|approvals?($|_)|requires?_(approval|confirm|human|review)|read_?only|sandbox|rate_?limit|human_|access_control|access_tier|dry_run|shadow_mode)|_(only|limits?|quota|allowed|denied|blocked|forbidden|restrictions?)$|(approval|confirmation|review)_required$`)

var humps = regexp.MustCompile(`([a-z0-9])([A-Z])`)

func tells(name string) bool {
	return telling.MatchString(strings.ReplaceAll(strings.ToLower(humps.ReplaceAllString(name, "${1}_$2")), "-", "_"))
}

// restricting says that a field restricts the agent and that its places are alternatives: if they
// differ, none may win silently. Limits are not among these fields: see [least].
func restricting(field string) bool {
	for _, part := range []string{"Autonomy.", "Human", "Filter", "Redact", "Guardrails", "Delegates", "Tools[].Approve", "Tools[].Enabled", "Tools[].Risk"} {
		if strings.HasPrefix(field, part) {
			return true
		}
	}
	return false
}

// Reasons to refuse a restriction.
const (
	unenforceable = "cannot be enforced by this runtime"
	contradicts   = "contradicts %s: state only one of the two restrictions"
)

// refuse refuses the manifest for a restriction that is not enforced, unless whoever runs the
// agent accepts that by its pointer.
func (r *reader) refuse(n *node, format string, args ...any) {
	for _, p := range r.accepted {
		if n.pointer == p || strings.HasPrefix(n.pointer, p+"/") {
			r.warn(n, "not enforced, as accepted: "+format, args...)
			return
		}
	}
	if !r.quiet && len(r.mistakes) < mostMistakes {
		m := n.mistake(tga.PolicyViolation, format, args...)
		m.Message = "a restriction that is not enforced: " + n.pointer[strings.LastIndexByte(n.pointer, '/')+1:] + " " + m.Message
		r.mistakes = append(r.mistakes, m)
	}
}

// restrictions refuses values that restrict the agent and were not read.
func (r *reader) restrictions(root *node) {
	for _, path := range closed {
		if n := root.at(path); n != nil {
			r.unenforced(n, path)
		}
	}
	r.named(root.at("spec"), "spec")
	if list := root.at("spec.tools"); list != nil {
		for _, tool := range list.items {
			r.namedWithin(tool)
		}
	}
}

// unenforced walks a closed part and refuses what is not enforced.
func (r *reader) unenforced(n *node, path string) {
	switch {
	case slices.Contains(unrestricting, path) || !n.says() || r.mistaken(n):
	case !n.touched() && !describes(path):
		r.refuse(n, unenforceable)
	default:
		for _, f := range n.fields {
			r.unenforced(f.value, path+"."+f.name)
		}
		for _, i := range n.items {
			r.unenforced(i, path+"[]")
		}
	}
}

// describes says that an object, nothing of which was read, is looked into all the same: it
// is a closed part itself, or may hold members that restrict nothing.
func describes(path string) bool {
	return slices.Contains(closed, path) || slices.ContainsFunc(unrestricting, func(p string) bool { return strings.HasPrefix(p, path+".") })
}

// mistaken says that a value, or something that contains it, already has a mistake.
func (r *reader) mistaken(n *node) bool {
	return slices.ContainsFunc(r.mistakes, func(m *Mistake) bool {
		return n.pointer == m.Pointer || strings.HasPrefix(n.pointer, m.Pointer+"/")
	})
}

// named refuses unread members of one object whose names say that they restrict.
func (r *reader) named(n *node, path string) {
	if n == nil {
		return
	}
	for _, f := range n.fields {
		if !slices.Contains(closed, path+"."+f.name) && tells(f.name) && !f.value.touched() && f.value.says() {
			r.refuse(f.value, unenforceable)
		}
	}
}

// namedWithin does the same as named for everything in a tool that was not read.
func (r *reader) namedWithin(n *node) {
	if !n.says() {
		return
	}
	r.named(n, "")
	for _, f := range n.fields {
		if !f.value.used {
			r.namedWithin(f.value)
		}
	}
	for _, i := range n.items {
		if !i.used {
			r.namedWithin(i)
		}
	}
}

// says reports whether a value can restrict anything: a value that is empty, false or switched
// off cannot.
func (n *node) says() bool {
	switch n.kind {
	case isNull:
		return false
	case isBool:
		return n.text == "true"
	case isText:
		return n.text != "" && !strings.EqualFold(n.text, "none")
	case isList:
		return len(n.items) > 0
	case isObject:
		on := n.at("enabled")
		return len(n.fields) > 0 && (on == nil || on.says())
	}
	return true
}

// unsupervised are the levels of autonomy that restrict nothing.
var unsupervised = []string{"autonomous", "fully_autonomous"}

func (r *reader) autonomy(a *turn.Agent, root *node) {
	auto := &a.Autonomy
	if level, ok := take(r, "Autonomy.Level", word, root); ok && !slices.Contains(unsupervised, level) {
		auto.Approve = true
		if level != "supervised" {
			r.warn(places("Autonomy.Level", root)[0].node, "the level %q is read as supervised", level)
		}
	}
	if all := places("Autonomy.Approval", root); len(all) > 0 && all[0].kind == isList {
		auto.Approve = false // the list says which calls wait
		set(r, &auto.ApproveTools, "Autonomy.Approval", actions, root)
	} else if asked, ok := take(r, "Autonomy.Approval", truth, root); ok {
		if auto.Approve && !asked {
			r.refuse(all[0].node, contradicts, places("Autonomy.Level", root)[0].pointer)
		}
		auto.Approve = auto.Approve || asked
	}
	auto.Restricted = set(r, &auto.Allowed, "Autonomy.Allowed", actions, root)
	set(r, &auto.Blocked, "Autonomy.Blocked", actions, root)
}

// isAction reports whether s may be the name of a tool: 1 to 257 characters, none of them white space.
func isAction(s string) bool {
	return s != "" && utf8.RuneCountInString(s) <= 257 && !strings.ContainsAny(s, "\t\n\f\r ")
}

// actions reads names of tools. It refuses text that cannot be a tool's name, because no tool
// would match it.
func actions(r *reader, p place) ([]string, bool) {
	names, ok := texts(r, p)
	if !ok {
		return nil, false
	}
	for _, name := range names {
		if !isAction(name) {
			r.refuse(p.node, "names %.80q, which is no name of a tool", name)
		}
	}
	return names, true
}

// humans reads when a person must be asked.
func (r *reader) humans(a *turn.Agent, root *node) {
	n, ok := take(r, "Human", switchOrObject, root)
	if !ok {
		return
	}
	if set(r, new(bool), "Human.Enabled", truth, n); !n.says() {
		return
	}
	set(r, &a.Autonomy.Within, "Human.Timeout", limit, n)
	triggers, ok := take(r, "Human.Triggers", texts, n)
	if !ok || len(triggers) == 0 {
		a.Autonomy.Approve = true
		return
	}
	for _, trigger := range triggers {
		switch strings.ReplaceAll(strings.ToLower(trigger), "-", "_") {
		case "high_risk_action":
			a.Autonomy.ApproveHighRisk = true
		case "policy_violation":
			a.Handlers = append(a.Handlers, turn.Handler{Codes: []tga.Code{tga.PolicyViolation}, Strategy: turn.Escalate})
		default:
			r.refuse(places("Human.Triggers", n)[0].node, "names the trigger %q, of which a runtime of turns can't know", trigger)
		}
	}
}

func switchOrObject(r *reader, p place) (*node, bool) {
	if p.kind == isBool {
		return p.node, true
	}
	return object(r, p)
}

// guardrails reads a list of policies. Limits in it are enforced. A sentence cannot be enforced,
// so the model is told it. A policy that is only a name is left unread, and is therefore refused.
func (r *reader) guardrails(a *turn.Agent, root *node) {
	list, ok := take(r, "Guardrails", entries, root)
	if !ok {
		return
	}
	var told []string
	for _, n := range list.items {
		switch {
		case n.kind == isText && strings.Contains(strings.TrimSpace(n.text), " "):
			n.used = true
			told = append(told, n.text)
		case n.kind != isObject:
		default:
			if set(r, new(bool), "Guardrails[].Enabled", truth, n); n.says() {
				told = append(told, r.policy(a, n)...)
			}
		}
	}
	if len(told) == 0 {
		return
	}
	r.warn(list, "the model is told these %d rules, and nothing else sees to them", len(told))
	rules := "Rules that always hold:\n- " + strings.Join(told, "\n- ")
	if a.SystemPrompt != "" {
		rules = a.SystemPrompt + "\n\n" + rules
	}
	a.SystemPrompt = rules
}

// policy reads one policy of a list of guardrails.
func (r *reader) policy(a *turn.Agent, n *node) (told []string) {
	before := len(r.report.Taken)
	set(r, &told, "Guardrails[].Rules", texts, n)
	setLeast(r, &a.Constraints.MaxToolCalls, "Guardrails[].MaxToolCalls", count(1), n)
	setLeast(r, &a.Constraints.MaxExecution, "Guardrails[].MaxExecution", limit, n)
	if len(r.report.Taken) == before {
		return nil
	}
	for _, f := range n.fields {
		if slices.Contains([]string{"name", "type", "description"}, f.name) {
			f.value.used = true // they name the policy
		}
	}
	return told
}

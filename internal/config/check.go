package config

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime/dispatch/httpcall"
	"github.com/tgad/tgad/schemas/tga"
)

// check checks everything that the types of the fields do not ensure.
func (c *Config) check(r *report, b Builder) {
	var err error
	if c.Profile != "" {
		if c.profile, err = ledger.ParseProfile(c.Profile); err != nil {
			r.add("profile", "%q: want strict, spec-9.3 or talos%s", c.Profile, meant(c.Profile, "strict", "spec-9.3", "talos"))
		}
	}
	if c.AllowAll && len(c.Rules) > 0 {
		r.add("allow_all", "it cannot stand beside rules: say APPROVE in a rule")
	}
	r.checkEmpty(reflect.ValueOf(c).Elem(), "", "")
	c.Store.check(r)
	if b != nil {
		r.refused("store.list_index", b.CheckStore(c, &c.Store))
	}
	c.Keyring.check(r)
	c.Evidence.check(r, b)
	c.Retention.check(r, &c.Store)
	c.Backup.check(r, c, b)
	c.checkAudits(r)
	c.checkNotify(r)
	c.Limits.check(r)
	servers := map[string]*Server{}
	for i := range c.Servers {
		s, at := &c.Servers[i], fmt.Sprintf("server.%d", i)
		if servers[s.ID] != nil {
			r.add(at+".id", "%q is the id of another server too", s.ID)
		}
		servers[s.ID] = s
		s.check(r, at)
		if b != nil {
			r.refused(at, b.CheckServer(c, s))
		}
	}
	c.checkTools(r, servers)
	c.checkRedaction(r)
	c.checkVerifiers(r, b)
	c.checkProbers(r, servers, b)
	c.Capability.check(r)
	c.checkSupervisors(r)
	c.checkAgent(r)
	c.checkGateway(r)
	for i := range c.Rules {
		rule, at := &c.Rules[i], fmt.Sprintf("rule.%d", i)
		rule.check(r, at)
		if s := servers[rule.Server]; s != nil && !s.has(rule.Tool) {
			r.add(at+".tool", "%q is none of the paths of server %q", rule.Tool, s.ID)
		}
	}
	if c.profile == ledger.Talos {
		c.checkTalos(r)
	}
	for i := range c.Roles {
		c.Roles[i].check(r, fmt.Sprintf("role.%d", i))
	}
}

// checkTalos checks what profile talos needs: a key that signs capabilities, and names that the
// public Talos schemas accept. The names of tools that are not in the file are checked in each
// request.
func (c *Config) checkTalos(r *report) {
	if c.Capability.KeyFile == "" {
		r.add("profile", "talos mints a capability for each approval: name a key_file under [capability]")
	}
	name := func(at, s string) {
		if err := (tga.Proposal{ToolServer: s, ToolName: "t"}).CheckTalosNames(); err != nil {
			r.add(at, "profile talos: %s", err.Message)
		}
	}
	for i := range c.Servers {
		at := fmt.Sprintf("server.%d", i)
		name(at+".id", c.Servers[i].ID)
		for tool := range c.Servers[i].Paths {
			name(at+".paths."+tool, tool)
		}
	}
	for i := range c.Tools {
		if c.Tools[i].Name != AnyTool {
			name(fmt.Sprintf("tool.%d.name", i), c.Tools[i].Name)
		}
	}
}

func (r *report) bytes(path string, b Bytes) {
	if b.bad != nil {
		r.add(path, "%v", b.bad)
	}
}

func (r *report) duration(path string, d Duration) {
	if d.bad != nil {
		r.add(path, "%v", d.bad)
	}
}

func (r *report) count(path string, n int) {
	if n < 0 {
		r.add(path, "%d is negative", n)
	}
}

// maxRepeats limits how often a call may be repeated: each repetition stays in its trace, and a trace
// is always read whole.
const maxRepeats = 10_000

func (r *report) repeats(path string, n int) {
	if n < 0 || n > maxRepeats {
		r.add(path, "%d: want 0 to %d", n, maxRepeats)
	}
}

func (l *Limits) check(r *report) {
	for key, b := range map[string]Bytes{
		"request_bytes": l.RequestBytes, "artifact_bytes": l.ArtifactBytes, "answer_bytes": l.AnswerBytes,
	} {
		r.bytes("limits."+key, b)
		if b.N > tga.MostBytes {
			r.add("limits."+key, "%d is over %d", b.N, tga.MostBytes)
		}
	}
	r.bytes("limits.body_budget", l.BodyBudget)
	if l.BodyBudget.N > 0 && l.BodyBudget.N <= cmp.Or(l.RequestBytes.N, defaultRequestBytes) {
		r.add("limits.body_budget", "%d does not have room for one body of request_bytes, %d", l.BodyBudget.N, cmp.Or(l.RequestBytes.N, defaultRequestBytes))
	}
	for key, n := range map[string]int{
		"connections": l.Connections, "uid_connections": l.UIDConnections, "in_flight": l.InFlight, "followers": l.Followers, "leases": l.Leases,
		"batch_items": l.BatchItems, "page": l.Page, "recover_width": l.RecoverWidth,
	} {
		r.count("limits."+key, n)
	}
	// Exports and evidence files take no deeper call, so one such call would keep a monitor from every later one.
	if l.Depth < 0 || l.Depth > tga.DefaultMaxDepth {
		r.add("limits.depth", "%d: want 1..%d", l.Depth, tga.DefaultMaxDepth)
	}
	for key, d := range map[string]Duration{
		"lease_ttl": l.LeaseTTL, "max_lease_ttl": l.MaxLeaseTTL, "call_timeout": l.CallTimeout,
		"header_timeout": l.HeaderTimeout, "body_timeout": l.BodyTimeout, "idle_timeout": l.IdleTimeout,
		"drain_timeout": l.DrainTimeout,
	} {
		r.duration("limits."+key, d)
	}
	if l.LeaseTTL.D > 0 && l.MaxLeaseTTL.D > 0 && l.LeaseTTL.D > l.MaxLeaseTTL.D {
		r.add("limits.lease_ttl", "%v is over max_lease_ttl, %v", l.LeaseTTL.D, l.MaxLeaseTTL.D)
	}
}

// only lists, per key of a [[server]], the types that it belongs to.
var only = map[string][]string{
	"command": {MCPCommand}, "env": {MCPCommand}, "env_file": {MCPCommand}, "dir": {MCPCommand},
	"url": {MCPURL, HTTP, GRPC}, "headers_file": {MCPURL, HTTP}, "forward_auth": {MCPURL},
	"descriptor_set": {GRPC}, "services": {GRPC},
	"protocol_version": {MCPCommand, MCPURL}, "start_timeout": {MCPCommand, MCPURL}, "trusted": {MCPCommand, MCPURL, External},
	"paths": {HTTP}, "statuses": {HTTP}, "connect_ahead": {HTTP},
	"call_ids": {MCPCommand, MCPURL, External}, "drift": {MCPCommand, MCPURL, External},
	"prefix": {MCPCommand, MCPURL}, "rename": {MCPCommand, MCPURL}, "allow": {MCPCommand, MCPURL}, "deny": {MCPCommand, MCPURL},
	"concurrency": {MCPCommand, MCPURL, HTTP, GRPC}, "breaker": {MCPCommand, MCPURL, HTTP, GRPC}, "retry": {MCPCommand, MCPURL, HTTP, GRPC},
}

// maxAhead is the most unused connections to one tool server.
const maxAhead = 256

func (s *Server) check(r *report, at string) {
	if s.Workspace == "" && (s.WorkspaceSnapshots != "" || len(s.WorkspaceExclude) > 0 || s.WorkspaceKeep != 0) {
		r.add(at+".workspace", "it is required beside workspace_snapshots, workspace_exclude and workspace_keep")
	}
	r.count(at+".workspace_keep", s.WorkspaceKeep)
	if !tga.CleanName(s.ID) {
		r.add(at+".id", "%q: want %s", s.ID, tga.CleanNameForm)
	}
	if !s.checkReach(r, at) {
		return
	}
	for key, kinds := range only {
		if r.has(at+"."+key) && !slices.Contains(kinds, s.Type) {
			r.add(at+"."+key, "it does not belong to type %s", s.Type)
		}
	}
	for name := range s.Paths {
		if !tga.CleanName(name) {
			r.add(at+".paths."+name, "%q: want %s", name, tga.CleanNameForm)
		}
	}
	s.checkStatuses(r, at)
	if s.Drift != "" && s.Drift != "report" && s.Drift != "block" {
		r.add(at+".drift", "%q: want report or block%s", s.Drift, meant(s.Drift, "report", "block"))
	}
	for _, name := range s.CallIDs {
		if name == "" || len(name) > 255 {
			r.add(at+".call_ids", "%.40q: want names of 1 to 255 bytes", name)
		}
	}
	if n := s.ConnectAhead; n != nil && (*n < 0 || *n > maxAhead) {
		r.add(at+".connect_ahead", "%d: want 0 to %d", *n, maxAhead)
	}
	r.count(at+".concurrency", s.Concurrency)
	r.count(at+".breaker.failures", s.Breaker.Failures)
	r.count(at+".breaker.trials", s.Breaker.Trials)
	r.count(at+".retry.tries", s.Retry.Tries)
	for key, d := range map[string]Duration{
		"start_timeout": s.StartTimeout, "breaker.open": s.Breaker.Open, "retry.delay": s.Retry.Delay, "retry.max_delay": s.Retry.MaxDelay,
	} {
		r.duration(at+"."+key, d)
	}
}

// checkReach checks the type of the server and its address. It returns false if the type is unknown:
// then the other keys cannot be checked.
func (s *Server) checkReach(r *report, at string) bool {
	switch s.Type {
	case MCPCommand:
		if len(s.Command) == 0 || s.Command[0] == "" {
			r.add(at+".command", "type %s needs a command", s.Type)
		}
	case MCPURL, HTTP:
		u, err := url.Parse(s.URL)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			r.add(at+".url", "%q: type %s needs an http:// or https:// URL", s.URL, s.Type)
		}
	case GRPC:
		if s.URL == "" {
			r.add(at+".url", "type %s needs host:port or unix:/path", s.Type)
		}
	case External:
	default:
		r.add(at+".type", "%q: want %s, %s, %s, %s or %s%s", s.Type, MCPCommand, MCPURL, HTTP, GRPC, External, meant(s.Type, MCPCommand, MCPURL, HTTP, GRPC, External))
		return false
	}
	return true
}

// checkStatuses checks the table that gives HTTP statuses of the server a meaning.
func (s *Server) checkStatuses(r *report, at string) {
	for status, word := range s.Statuses {
		n, err := strconv.Atoi(status)
		if err != nil || n < 200 || n > 599 || http.StatusText(n) == "" {
			r.add(at+".statuses."+status, "want a status of HTTP from 200 to 599")
		}
		if _, err := httpcall.ParseOutcome(word); err != nil {
			r.add(at+".statuses."+status, "%v", err)
		}
	}
}

// has reports whether the server may have a tool, as far as the file says: a server with paths has no
// other tools. A rule or a row for a tool that cannot be called is a mistake.
func (s *Server) has(tool string) bool {
	return tool == "" || len(s.Paths) == 0 || s.Paths[tool] != ""
}

func (c *Config) checkTools(r *report, servers map[string]*Server) {
	type row struct{ server, name string }
	seen := map[row]bool{}
	for i := range c.Tools {
		t, at := &c.Tools[i], fmt.Sprintf("tool.%d", i)
		server := servers[t.Server]
		if server == nil {
			r.add(at+".server", "%q is the id of no [[server]]", t.Server)
		}
		if t.Name != AnyTool && !tga.CleanName(t.Name) {
			r.add(at+".name", "%q: want %s; or * for every other tool", t.Name, tga.CleanNameForm)
		}
		if seen[row{t.Server, t.Name}] {
			r.add(at+".name", "%q on %q has a row already", t.Name, t.Server)
		}
		seen[row{t.Server, t.Name}] = true
		if server != nil && t.Name != AnyTool && !server.has(t.Name) {
			r.add(at+".name", "%q is none of the paths of server %q", t.Name, t.Server)
		}
		t.check(r, at)
		if t.ClientLicence && server != nil && server.Type != External {
			r.add(at+".client_licence", "server %q is not of type %s: the daemon sends its calls, and no program says what a repeat does", t.Server, External)
		}
		if server != nil {
			t.checkStatuses(r, at, server)
		}
		c.checkTrust(r, at, t, server, servers)
	}
}

func (t *Tool) check(r *report, at string) {
	if t.Class != "" && t.Class != tga.ClassRead && t.Class != tga.ClassWrite {
		r.add(at+".class", "%q: want read or write", t.Class)
		return
	}
	for key, d := range map[string]Duration{
		"window": t.Window, "margin": t.Margin, "max_in_flight": t.MaxInFlight, "send_timeout": t.SendTimeout, "permit_time": t.PermitTime, "repeat_window": t.RepeatWindow,
	} {
		if d.bad != nil {
			r.add(at+"."+key, "%v", d.bad)
			return
		}
	}
	t.licence = ledger.Licence{Window: t.Window.D, Margin: t.Margin.D, MaxInFlight: t.MaxInFlight.D}
	if t.Licence != "" {
		kind, err := ledger.ParseLicence(t.Licence)
		if err != nil {
			r.add(at+".licence", "%q: want park, probe, dedupe_key, dedupe_args or read_only%s", t.Licence, meant(t.Licence, "park", "probe", "dedupe_key", "dedupe_args", "read_only"))
			return
		}
		t.licence.Kind = kind
	}
	class := cmp.Or(t.Class, tga.ClassWrite)
	own := t.licence
	if t.ClientLicence {
		own = t.ownTimes(r, at)
	}
	if err := own.Validate(class); err != nil {
		r.add(at+".licence", "%s", err.(*tga.Error).Message)
	}
	if t.Resends != nil {
		r.repeats(at+".resends", *t.Resends)
	}
}

// ownTimes is the row's licence with only the times that belong to its kind. If programs may claim
// licences, the other times of the row are limits of those claims; ownTimes checks them.
func (t *Tool) ownTimes(r *report, at string) ledger.Licence {
	own := t.licence
	if own.Kind != ledger.DedupeKey {
		if claimed := (ledger.Licence{Kind: ledger.DedupeKey, Window: own.Window, Margin: own.Margin}); own.Window != 0 || own.Margin < 0 {
			if err := claimed.Validate(tga.ClassWrite); err != nil {
				r.add(at+".window", "%s", err.(*tga.Error).Message)
			}
		}
		own.Window, own.Margin = 0, 0
	}
	if own.Kind != ledger.Probe {
		if own.MaxInFlight < 0 {
			r.add(at+".max_in_flight", "%v is negative", own.MaxInFlight)
		}
		own.MaxInFlight = 0
	}
	return own
}

// checkStatuses refuses a status rule that would make the key of a call usable again although the
// status leaves the call in doubt.
func (t *Tool) checkStatuses(r *report, at string, s *Server) {
	for status, word := range s.Statuses {
		o, err := httpcall.ParseOutcome(word)
		n, numErr := strconv.Atoi(status)
		if err != nil || numErr != nil {
			continue
		}
		if err := t.licence.ValidateOutcome(o.Class(), httpcall.Doubtful(n)); err != nil {
			r.add(at+".licence", "statuses of server %q say %s = %q: %s", s.ID, status, word, err.(*tga.Error).Message)
		}
	}
}

func (rule *Rule) check(r *report, at string) {
	for key, name := range map[string]string{"server": rule.Server, "tool": rule.Tool} {
		if name != "" && !tga.CleanName(name) {
			r.add(at+"."+key, "%q: want %s; leave it out to match all", name, tga.CleanNameForm)
		}
	}
	if rule.Risk != "" && !slices.Contains([]string{tga.RiskRead, tga.RiskWrite, tga.RiskHigh}, rule.Risk) {
		r.add(at+".risk", "%q: want %s, %s or %s", rule.Risk, tga.RiskRead, tga.RiskWrite, tga.RiskHigh)
	}
	if !slices.Contains([]string{tga.Approve, tga.Deny, tga.NeedsApproval}, rule.Decision) {
		r.add(at+".decision", "%q: want %s, %s or %s%s", rule.Decision, tga.Approve, tga.Deny, tga.NeedsApproval, meant(rule.Decision, tga.Approve, tga.Deny, tga.NeedsApproval))
	}
	if n := utf8.RuneCountInString(rule.Rationale); rule.Rationale != "" && (n < 10 || n > 1000) {
		r.add(at+".rationale", "%d characters, want 10 to 1000", n)
	}
	r.count(at+".required", rule.Required)
	r.duration(at+".within", rule.Within)
	if rule.Decision != tga.NeedsApproval && (rule.Required != 0 || rule.Within.D != 0) {
		r.add(at+".decision", "required and within belong to %s", tga.NeedsApproval)
	}
}

func (role *Role) check(r *report, at string) {
	if len(role.UID) == 0 && len(role.GID) == 0 {
		r.add(at, "it names nobody: give uid or gid")
	}
	if n := len(role.Namespace); n > 255 {
		r.add(at+".namespace", "%d bytes, want at most 255", n)
	}
	if len(role.Verbs) == 0 {
		r.add(at+".verbs", "it permits nothing: want some of read, append, decide and admin")
	}
	for _, v := range role.Verbs {
		known := false
		for _, w := range verbs {
			known = known || v == w
		}
		if !known {
			r.add(at+".verbs", "%q: want read, append, decide or admin%s", v, meant(string(v), "read", "append", "decide", "admin"))
		}
	}
}

// has reports whether the file has a key or a table.
func (r *report) has(path string) bool {
	_, ok := r.positions[path]
	if !ok {
		for p := range r.positions {
			if len(p) > len(path) && p[:len(path)] == path && p[len(path)] == '.' {
				return true
			}
		}
	}
	return ok
}

// meant is "; did you mean …?" if a word is similar to a known one, else "".
func meant(word string, known ...string) string {
	if near := nearest(word, known); near != "" {
		return "; did you mean " + near + "?"
	}
	return ""
}

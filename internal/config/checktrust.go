package config

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/tgad/tgad/internal/capability"
	"github.com/tgad/tgad/internal/outcome"
	"github.com/tgad/tgad/internal/verify"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// Types of a [[verifier]] and of a [[prober]].
var (
	verifierTypes = []string{File, Git, GitHub, HTTP, MCP, Postgres, SQLite}
	proberTypes   = []string{HTTP, MCP}
)

// verifierOnly lists, per key of a [[verifier]], the types that it belongs to.
var verifierOnly = map[string][]string{
	"url": {HTTP}, "method": {HTTP}, "headers_file": {HTTP}, "ok": {HTTP}, "ca_file": {HTTP, GitHub},
	"base_url": {GitHub}, "token_file": {GitHub}, "root": {File}, "max_bytes": {File},
	"repository": {Git}, "git": {Git}, "reachable_from": {Git},
	"dsn": {Postgres}, "password_file": {Postgres}, "file": {SQLite},
	"query": {Postgres, SQLite}, "params": {Postgres, SQLite}, "rows": {Postgres, SQLite}, "column": {Postgres, SQLite},
	"server": {MCP}, "tool": {MCP}, "answer": {MCP}, "arguments": {MCP},
	"check": {HTTP, MCP}, "gone": {HTTP, MCP}, "ignore": {HTTP, GitHub, File, Postgres, SQLite, MCP},
}

// proberOnly is the same for a [[prober]].
var proberOnly = map[string][]string{
	"url": {HTTP}, "method": {HTTP}, "headers_file": {HTTP}, "ca_file": {HTTP}, "body": {HTTP},
	"ask_server": {MCP}, "ask_tool": {MCP}, "answer": {MCP}, "arguments": {MCP},
}

// checkKind refuses an unknown type, and keys that belong to another type.
func checkKind(r *report, at, kind string, names []string, keys map[string][]string) bool {
	if !slices.Contains(names, kind) {
		r.add(at+".type", "%q: want one of %s%s", kind, strings.Join(names, ", "), meant(kind, names...))
		return false
	}
	good := true
	for key, of := range keys {
		if r.has(at+"."+key) && !slices.Contains(of, kind) {
			r.add(at+"."+key, "it does not belong to type %s", kind)
			good = false
		}
	}
	return good
}

// patience reports whether the durations of a table are valid.
func (r *report) patience(at string, p *Patience) bool {
	good := true
	for key, d := range p.durations() {
		good = good && d.bad == nil
		r.duration(at+"."+key, d)
	}
	return good
}

// refused reports an error of a [Builder], which begins with the key. It ignores nil.
func (r *report) refused(at string, err error) {
	if err == nil {
		return
	}
	message := err.Error()
	var e *tga.Error
	if errors.As(err, &e) {
		message = e.Message
	}
	if key, rest, ok := strings.Cut(message, ": "); ok && keyForm.MatchString(key) {
		at, message = at+"."+key, rest
	}
	r.add(at, "%s", message)
}

var keyForm = regexp.MustCompile(`^[a-z_]+(?:\.[a-z0-9_]+)*$`)

func (c *Config) checkVerifiers(r *report, b Builder) {
	seen := map[string]bool{}
	for i := range c.Verifiers {
		v, at := &c.Verifiers[i], fmt.Sprintf("verifier.%d", i)
		if n := len(v.ResourceType); n < 1 || n > 64 {
			r.add(at+".resource_type", "%d bytes, want 1 to 64", n)
		}
		if seen[v.ResourceType] {
			r.add(at+".resource_type", "%q has a verifier already", v.ResourceType)
		}
		seen[v.ResourceType] = true
		r.bytes(at+".max_bytes", v.MaxBytes)
		if !checkKind(r, at, v.Type, verifierTypes, verifierOnly) || !r.patience(at, &v.Patience) {
			continue
		}
		if b != nil {
			r.refused(at, b.CheckVerifier(c, v))
		}
	}
}

func (c *Config) checkProbers(r *report, servers map[string]*Server, b Builder) {
	seen := map[[2]string]bool{}
	for i := range c.Probers {
		p, at := &c.Probers[i], fmt.Sprintf("prober.%d", i)
		if servers[p.Server] == nil {
			r.add(at+".server", "%q is the id of no [[server]]", p.Server)
		}
		if p.Tool != AnyTool && !tga.CleanName(p.Tool) {
			r.add(at+".tool", "%q: want %s; or * for every other tool", p.Tool, tga.CleanNameForm)
		}
		if seen[[2]string{p.Server, p.Tool}] {
			r.add(at+".tool", "%q on %q has a prober already", p.Tool, p.Server)
		}
		seen[[2]string{p.Server, p.Tool}] = true
		if !checkKind(r, at, p.Type, proberTypes, proberOnly) || !r.patience(at, &p.Patience) || !p.checkRules(r, at) {
			continue
		}
		if b != nil {
			r.refused(at, b.CheckProber(c, p))
		}
	}
}

// checkRules refuses conditions that belong to the other type.
func (p *Prober) checkRules(r *report, at string) bool {
	good := true
	for key, rules := range map[string][]Answered{"ran": p.Ran, "not_ran": p.NotRan, "reply.failure": p.Reply.Failure} {
		for i, rule := range rules {
			switch {
			case p.Type == MCP && rule.Status != nil:
				r.add(fmt.Sprintf("%s.%s.%d.status", at, key, i), "it does not belong to type %s", p.Type)
			case p.Type == HTTP && rule.Failed:
				r.add(fmt.Sprintf("%s.%s.%d.failed", at, key, i), "it does not belong to type %s", p.Type)
			default:
				continue
			}
			good = false
		}
	}
	return good
}

// ProberOf is the index of the [[prober]] of a tool: its own, or the one for "*" of the server; -1 if
// there is none.
func (c *Config) ProberOf(server, tool string) int {
	found := -1
	for i := range c.Probers {
		p := &c.Probers[i]
		if p.Server == server && (p.Tool == tool || p.Tool == AnyTool && found < 0) {
			found = i
			if p.Tool == tool {
				break
			}
		}
	}
	return found
}

// checkTrust checks the keys of a row beside the licence.
func (c *Config) checkTrust(r *report, at string, t *Tool, server *Server, servers map[string]*Server) {
	var ok bool
	if t.replay, ok = replayModes[t.Replay]; !ok {
		r.add(at+".replay", "%q: want strict, warn or human%s", t.Replay, meant(t.Replay, "strict", "warn", "human"))
	}
	r.duration(at+".confirm_every", t.ConfirmEvery)
	t.Probe.check(r, at+".probe")
	t.Retry.check(r, at+".retry")
	if t.Retry.Attempts > 0 && !c.profile.NeedsLicence() {
		r.add(at+".retry", "profile %s makes no new attempts", c.Profile)
	}
	if t.Log != "" && t.Log != "none" {
		r.add(at+".log", "%q: want none, or leave it out", t.Log)
	}
	if t.Key.From != "" && !verify.ValidPointer(t.Key.From) {
		r.add(at+".key.from", "%q is no JSON Pointer", t.Key.From)
	}
	if t.AutoCompensate && t.Inverse == nil {
		r.add(at+".auto_compensate", "the tool has no inverse")
	}
	if server == nil {
		return
	}
	c.checkProbing(r, at, t, server)
	if t.Inverse != nil && t.Inverse.Server != "" && servers[t.Inverse.Server] == nil {
		r.add(at+".inverse.server", "%q is the id of no [[server]]", t.Inverse.Server)
	}
	switch {
	case server.SpeaksMCP() && t.Answer == outcome.FormJSON:
		r.add(at+".answer", "answers of a server of type %s have the form %s", server.Type, outcome.FormMCP)
	case server.Type == HTTP && t.Answer == outcome.FormMCP:
		r.add(at+".answer", "answers of a server of type %s have the form %s", server.Type, outcome.FormJSON)
	}
	if t.Key.Header != "" && server.SpeaksMCP() {
		r.add(at+".key.header", "it does not belong to type %s", server.Type)
	}
	var e *tga.Error
	if _, err := outcome.Compile(outcome.Config{Tools: []outcome.Tool{t.rules(server, c.profile)}}); errors.As(err, &e) {
		path := outcomePath(at, e.Pointer)
		r.add(path, "%s", strings.TrimPrefix(e.Message, path[strings.LastIndexByte(path, '.')+1:]+": "))
	}
}

var replayModes = map[string]runtime.ReplayMode{
	"": runtime.ReplayStrict, "strict": runtime.ReplayStrict, "warn": runtime.ReplayWarn, "human": runtime.ReplayHuman,
}

// checkProbing refuses the licence probe for a tool that no prober can ask about.
func (c *Config) checkProbing(r *report, at string, t *Tool, server *Server) {
	n := c.ProberOf(t.Server, t.Name)
	none := t.Prober == "none"
	switch {
	case t.Prober != "" && !none:
		r.add(at+".prober", "%q: want none, or a [[prober]] of its own", t.Prober)
	case none && server.Type != External:
		r.add(at+".prober", "only a tool of a server of type %s can do without", External)
	case none && n >= 0:
		r.add(at+".prober", "%s on %q has one", t.Name, t.Server)
	case t.licence.Kind == ledger.Probe && n < 0 && !none:
		r.add(at+".licence", "nothing asks whether %s on %q ran: it needs a [[prober]]", t.Name, t.Server)
	}
	if t.licence.Kind != ledger.Probe || n < 0 {
		return
	}
	most := cmp.Or(t.SendTimeout.D, runtime.DefaultSendTimeout)
	if settle := c.Probers[n].Settle.D; settle >= most {
		r.add(fmt.Sprintf("prober.%d.settle", n), "%v is not within the send_timeout of %s, %v, which bounds a question too", settle, t.Name, most)
	}
}

func (b Backoff) check(r *report, at string) {
	r.duration(at+".first", b.First)
	r.duration(at+".max", b.Max)
	r.repeats(at+".attempts", b.Attempts)
	if b.First.D > 0 && b.Max.D > 0 && b.First.D > b.Max.D {
		r.add(at+".first", "%v is over max, %v", b.First.D, b.Max.D)
	}
}

func (k *Capability) check(r *report) {
	const at = "capability"
	r.duration(at+".lifetime", k.Lifetime)
	r.skew(at+".skew", k.Skew)
	if k.KeyFile == "" && r.has(at) {
		r.add(at+".key_file", "there are no tokens without a key file")
	}
	for key, value := range map[string]string{"issuer": k.Issuer, "audience": k.Audience} {
		if value != "" && !capability.Party(value) {
			r.add(at+"."+key, "%q: want %s", value, capability.PartyForm)
		}
	}
	if d := k.Lifetime.D; d%1e9 != 0 || d > capability.MaxLifetime {
		r.add(at+".lifetime", "%v: want whole seconds, at most %v", d, capability.MaxLifetime)
	}
}

// skew checks the permitted difference of clocks; nil is the default.
func (r *report) skew(at string, d *Duration) {
	if d == nil {
		return
	}
	r.duration(at, *d)
	if d.D > capability.MaxSkew {
		r.add(at, "%v is over %v", d.D, capability.MaxSkew)
	}
}

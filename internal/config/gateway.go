package config

import (
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tgad/tgad/internal/mcpfront/names"
	"github.com/tgad/tgad/internal/mcpfront/subject"
	"github.com/tgad/tgad/internal/outcome"
	"github.com/tgad/tgad/schemas/tga"
)

// Gateway is the part about tgad gateway, without its servers.
type Gateway struct {
	Mode       string     `toml:"mode"` // enforce or observe
	Identities []Identity `toml:"identity"`
	JWT        JWT        `toml:"jwt"`
	TLS        GatewayTLS `toml:"tls"`
	Metrics    string     `toml:"metrics"` // address for GET /metrics: host:port of this machine, or unix:PATH; absent = none
}

// Identity is one client of a gateway, or several with one key.
type Identity struct {
	Name      string `toml:"name"`
	Namespace string `toml:"namespace"`  // of its calls and keys; the name
	KeySHA256 string `toml:"key_sha256"` // of its API key, in hex
	KeyFile   string `toml:"key_file"`   // file with its API key, in place of key_sha256
	Subject   string `toml:"subject"`    // claim sub of its tokens, see [JWT]
	// Certificate is a name in the subjectAltName of its certificate: a URI, a DNS name or an e-mail address; see [GatewayTLS].
	Certificate string   `toml:"certificate"`
	Allow       []string `toml:"allow"` // names of tools that it may have; absent = all
	Deny        []string `toml:"deny"`
	Resources   []string `toml:"resources"` // URIs of resources that it may have; absent = all that the servers give
	Limits      []Quota  `toml:"limit"`
}

// Quota bounds how many calls of some tools an identity makes.
type Quota struct {
	Tool  string   `toml:"tool"`  // a name, or the beginning of one and "*"; absent = all tools
	Calls int      `toml:"calls"` // in each window of length per
	Per   Duration `toml:"per"`
}

// JWT says which tokens authenticate an identity.
type JWT struct {
	JWKSFile string `toml:"jwks_file"` // the public keys, RFC 7517
	Issuer   string `toml:"issuer"`
	Audience string `toml:"audience"`
}

// GatewayTLS is the part about TLS between a gateway and its clients.
type GatewayTLS struct {
	CertFile     string `toml:"cert_file"` // the gateway's certificate and the intermediate ones, PEM
	KeyFile      string `toml:"key_file"`
	ClientCAFile string `toml:"client_ca_file"` // the authorities of clients' certificates, PEM
}

// BehindGateway are the servers that tgad gateway offers at its endpoint.
func (c *Config) BehindGateway() (all []*Server) {
	for i := range c.Servers {
		if s := &c.Servers[i]; s.SpeaksMCP() {
			all = append(all, s)
		}
	}
	return all
}

// Names are the names that the clients of a gateway see for the server's tools.
func (s *Server) Names() names.Names {
	n := names.Names{Prefix: names.Default(s.ID), Rename: s.Rename, Lists: names.Lists{Allow: s.Allow, Deny: s.Deny}}
	if s.Prefix != nil {
		n.Prefix = *s.Prefix
	}
	return n
}

// Address is an address of the configuration. The path of a socket is resolved against the file's directory.
func (c *Config) Address(a string) string {
	if path, ok := strings.CutPrefix(a, "unix:"); ok {
		return "unix:" + c.Path(path)
	}
	return a
}

// ForGatewayLog is the configuration of the daemon inside a gateway. The gateway calls the servers
// itself, so for that daemon they are external ones.
func (c *Config) ForGatewayLog() *Config {
	log := *c
	log.Servers, log.Tools = slices.Clone(c.Servers), slices.Clone(c.Tools)
	if c.Gateway.Observes() {
		log.AllowAll, log.Rules = false, c.observing()
	}
	mcp := map[string]bool{}
	for i := range log.Servers {
		if s := &log.Servers[i]; s.SpeaksMCP() {
			mcp[s.ID], s.Type, s.Workspace = true, External, ""
		}
	}
	for i := range log.Tools {
		if t := &log.Tools[i]; mcp[t.Server] && t.Answer == "" {
			t.Answer = outcome.FormMCP
		}
	}
	return &log
}

// checkGateway checks the keys of tgad gateway, without the names of tools: a daemon does not use those.
func (c *Config) checkGateway(r *report) {
	for i := range c.Servers {
		for key, list := range map[string][]string{"allow": c.Servers[i].Allow, "deny": c.Servers[i].Deny, "resources": c.Servers[i].Resources} {
			r.patterns(fmt.Sprintf("server.%d.%s", i, key), list)
		}
	}
	c.checkForwards(r)
	c.Gateway.check(r)
}

// Credentials says in which header a gateway's clients send the credentials for the server.
func (s *Server) Credentials() subject.Source {
	return subject.Source{Header: subject.HeaderOf(s.ForwardAuth, s.ID), URL: s.URL}
}

// PassesAuthorization reports whether the clients' header Authorization is for a server and not for the gateway.
func (c *Config) PassesAuthorization() bool {
	for i := range c.Servers {
		if c.Servers[i].ForwardAuth == subject.InAuthorization {
			return true
		}
	}
	return false
}

// checkForwards ensures that clients' credentials are sent only to the one server that they are for.
func (c *Config) checkForwards(r *report) {
	from, at := map[string]subject.Source{}, map[string]string{}
	for i := range c.Servers {
		s := &c.Servers[i]
		if s.ForwardAuth == "" || s.Type != MCPURL {
			continue // for another type the key is refused elsewhere
		}
		at[s.ID] = fmt.Sprintf("server.%d.forward_auth", i)
		from[s.ID] = s.Credentials()
		if from[s.ID].Header == "" {
			r.add(at[s.ID], "%q: want %s or %s%s", s.ForwardAuth, subject.InAuthorization, subject.InHeader, meant(s.ForwardAuth, subject.InAuthorization, subject.InHeader))
		} else if err := subject.Forwardable(s.URL, nil); err != nil {
			r.add(at[s.ID], "%v", err)
		}
		for _, id := range c.Gateway.Identities {
			if s.ForwardAuth == subject.InAuthorization && (id.KeySHA256 != "" || id.KeyFile != "" || id.Subject != "") {
				r.add(at[s.ID], "Authorization says that a client is %q, and so it is not sent on: want %q", id.Name, subject.InHeader)
				break
			}
		}
	}
	if server, err := subject.Check(from); err != nil {
		r.add(at[server], "%v", err)
	}
}

// patterns refuses names with a "*" that is not at the end.
func (r *report) patterns(path string, list []string) {
	for _, p := range list {
		if p == "" || strings.Contains(strings.TrimSuffix(p, "*"), "*") {
			r.add(path, "%q: want a name, or the beginning of one and *", p)
		}
	}
}

func (g *Gateway) check(r *report) {
	if g.Mode != "" && g.Mode != Enforce && g.Mode != Observe {
		r.add("gateway.mode", "%q: want %s or %s%s", g.Mode, Enforce, Observe, meant(g.Mode, Enforce, Observe))
	}
	if g.JWT != (JWT{}) && (g.JWT.JWKSFile == "" || g.JWT.Issuer == "" || g.JWT.Audience == "") {
		r.add("gateway.jwt", "jwks_file, issuer and audience are required: a token of another issuer, or for somebody else, is not for this gateway")
	}
	if g.TLS != (GatewayTLS{}) && (g.TLS.CertFile == "" || g.TLS.KeyFile == "") {
		r.add("gateway.tls", "cert_file and key_file are required")
	}
	taken := map[string]map[string]bool{"name": {}, "key_sha256": {}, "key_file": {}, "subject": {}, "certificate": {}}
	spaces := map[string][]int{}
	for i := range g.Identities {
		id, at := &g.Identities[i], fmt.Sprintf("gateway.identity.%d", i)
		if !tga.CleanName(id.Name) {
			r.add(at+".name", "%q: want %s", id.Name, tga.CleanNameForm)
		}
		for key, v := range map[string]string{"name": id.Name, "key_sha256": strings.ToLower(id.KeySHA256), "key_file": id.KeyFile, "subject": id.Subject, "certificate": id.Certificate} {
			if v != "" && taken[key][v] {
				r.add(at+"."+key, "it is another identity's too")
			}
			taken[key][v] = true
		}
		id.checkKey(r, at, g)
		spaces[id.Space()] = append(spaces[id.Space()], i)
		r.patterns(at+".allow", id.Allow)
		r.patterns(at+".deny", id.Deny)
		r.patterns(at+".resources", id.Resources)
		for j := range id.Limits {
			id.Limits[j].check(r, fmt.Sprintf("%s.limit.%d", at, j))
		}
	}
	for _, space := range slices.Sorted(maps.Keys(spaces)) {
		for _, i := range spaces[space] {
			if len(space) > 255 {
				r.add(fmt.Sprintf("gateway.identity.%d.namespace", i), "%d bytes, want at most 255", len(space))
			}
			if len(spaces[space]) > 1 && g.Identities[i].Namespace == "" {
				r.add(fmt.Sprintf("gateway.identity.%d", i), "another identity has the namespace %q too, and so the same keys: say namespace here if you mean that", space)
			}
		}
	}
}

// Space is the namespace of the identity's calls.
func (id *Identity) Space() string {
	if id.Namespace != "" {
		return id.Namespace
	}
	return id.Name
}

func (id *Identity) checkKey(r *report, at string, g *Gateway) {
	if id.KeySHA256 != "" {
		if raw, err := hex.DecodeString(id.KeySHA256); err != nil || len(raw) != 32 {
			r.add(at+".key_sha256", "want 64 hex digits: printf %%s KEY | sha256sum")
		}
	}
	switch {
	case id.KeySHA256 != "" && id.KeyFile != "":
		r.add(at+".key_file", "it cannot stand beside key_sha256")
	case id.KeySHA256 == "" && id.KeyFile == "" && id.Subject == "" && id.Certificate == "":
		r.add(at, "nobody can be it: give key_sha256, key_file, subject or certificate")
	}
	if id.Subject != "" && g.JWT == (JWT{}) {
		r.add(at+".subject", "no token can be checked: say [gateway.jwt]")
	}
	if id.Certificate != "" && g.TLS.ClientCAFile == "" {
		r.add(at+".certificate", "no certificate can be checked: say client_ca_file in [gateway.tls]")
	}
}

func (q *Quota) check(r *report, at string) {
	if q.Tool != "" {
		r.patterns(at+".tool", []string{q.Tool})
	}
	if q.Calls < 1 {
		r.add(at+".calls", "%d: want at least 1; to forbid a tool, list it in deny", q.Calls)
	}
	r.duration(at+".per", q.Per)
	if q.Per.bad == nil && q.Per.D <= 0 {
		r.add(at+".per", "want a time, as \"1m\"")
	}
}

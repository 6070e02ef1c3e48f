package config

import (
	"cmp"
	"path/filepath"
	"slices"
	"time"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
)

// Config is a configuration that [Parse] accepted, defaults filled in.
type Config struct {
	Profile string `toml:"profile"` // "strict" (default), "spec-9.3" or "talos"
	// TrustHints makes the hints of external servers count that the file does not list; executors
	// pass those hints on. It is for a log that only one user has.
	TrustHints bool `toml:"trust_hints"`
	AllowAll   bool `toml:"allow_all"` // approve every request; without it and without rules all are denied

	Store      Store      `toml:"store"`
	Keyring    Keyring    `toml:"keyring"`
	Evidence   Evidence   `toml:"evidence"`
	Retention  Retention  `toml:"retention"`
	Backup     Backup     `toml:"backup"`
	Audits     []Audit    `toml:"audit"`
	Notify     []Notify   `toml:"notify"`
	Redaction  Redaction  `toml:"redaction"`
	Socket     Socket     `toml:"socket"`
	Limits     Limits     `toml:"limits"`
	Servers    []Server   `toml:"server"`
	Tools      []Tool     `toml:"tool"`
	Verifiers  []Verifier `toml:"verifier"`
	Probers    []Prober   `toml:"prober"`
	Capability Capability `toml:"capability"`
	Approval   Approval   `toml:"approval"`

	Supervisors []Supervisor `toml:"supervisor"` // remote ones, whose signed approvals are taken

	Rules  []Rule  `toml:"rule"`
	Roles  []Role  `toml:"role"`
	Models []Model `toml:"model"`
	Agent  Agent   `toml:"agent"`

	Gateway Gateway `toml:"gateway"`

	profile ledger.Profile
	dir     string // of the file; relative paths in it start here

	warnings []string            // about who else can read or write the file
	places   map[string]position // of the keys in it
	zeros    []Advice            // about zeros in it that count as absent
}

// Socket is the part about the unix socket.
type Socket struct {
	Group string `toml:"group"` // name or number of the group that may connect; "" = the daemon's own
}

// Limits bound what callers can make the daemon do. Zero means the default.
type Limits struct {
	RequestBytes  Bytes `toml:"request_bytes"`  // body of one request; 16 MiB
	BodyBudget    Bytes `toml:"body_budget"`    // bodies of all requests in memory; [DefaultBodyBudget]
	ArtifactBytes Bytes `toml:"artifact_bytes"` // canonical form of one artifact; 8 MiB
	AnswerBytes   Bytes `toml:"answer_bytes"`   // what is kept of a tool's answer; 64 MiB
	Depth         int   `toml:"depth"`          // nesting of JSON; 128

	Connections    int `toml:"connections"`     // open at once; 2048
	UIDConnections int `toml:"uid_connections"` // of one uid; 1024
	InFlight       int `toml:"in_flight"`       // calls under way per namespace, waiting ones too; 2048
	Followers      int `toml:"followers"`       // open follow streams; 128
	Leases         int `toml:"leases"`          // held over the socket; 4096
	BatchItems     int `toml:"batch_items"`     // appends in one batch request; 256
	Page           int `toml:"page"`            // traces in one page of a list; 1000

	LeaseTTL    Duration `toml:"lease_ttl"`     // if a request names none; 30s
	MaxLeaseTTL Duration `toml:"max_lease_ttl"` // 1h
	CallTimeout Duration `toml:"call_timeout"`  // how long a call is waited for if its request names no time; 10m

	HeaderTimeout Duration `toml:"header_timeout"` // to read a request's header; 5s
	BodyTimeout   Duration `toml:"body_timeout"`   // to read its body; 30s
	IdleTimeout   Duration `toml:"idle_timeout"`   // of a connection between requests; 120s
	DrainTimeout  Duration `toml:"drain_timeout"`  // for calls under way after SIGTERM; 30s
	RecoverWidth  int      `toml:"recover_width"`  // traces recovered at once; 8
}

// Kinds of a [Server].
const (
	MCPCommand = "mcp-command" // a child process that speaks MCP on stdin and stdout
	MCPURL     = "mcp-url"     // an MCP server over streamable HTTP
	HTTP       = "http"        // POST {url}/{tool} with the arguments as JSON
	GRPC       = "grpc"        // unary methods, described by reflection or a descriptor set
	External   = "external"    // called by gateways themselves, through begin and finish
)

// Server is one tool server.
type Server struct {
	ID   string `toml:"id"` // the tool_server of requests
	Type string `toml:"type"`

	Command         []string          `toml:"command"`        // mcp-command
	Env             map[string]string `toml:"env"`            // mcp-command: added to what a child inherits
	EnvFile         string            `toml:"env_file"`       // mcp-command: secrets for it, NAME=value a line, mode 0600 or 0640
	Dir             string            `toml:"dir"`            // mcp-command: working directory
	URL             string            `toml:"url"`            // mcp-url, http; grpc: host:port or unix:/path
	DescriptorSet   string            `toml:"descriptor_set"` // grpc: file; absent = server reflection
	Services        []string          `toml:"services"`       // grpc: those listed as tools; absent = all
	HeadersFile     string            `toml:"headers_file"`
	ProtocolVersion string            `toml:"protocol_version"` // mcp-*
	StartTimeout    Duration          `toml:"start_timeout"`    // mcp-*; 30s
	Paths           map[string]string `toml:"paths"`            // http: path of a tool
	Statuses        map[string]string `toml:"statuses"`         // http: "409" = "failure", …
	ConnectAhead    *int              `toml:"connect_ahead"`    // http: unused connections at most; 8

	Concurrency int     `toml:"concurrency"` // calls under way at once; 32
	Breaker     Breaker `toml:"breaker"`
	Retry       Retry   `toml:"retry"`
	// Trusted lets the server's own hints suggest the class and licence of tools that have no row
	// in the file.
	Trusted bool `toml:"trusted"`

	// Workspace is a directory. tgad takes snapshots of it before and after each call of the server's
	// write tools, for tgad workspace; "" is none.
	Workspace          string   `toml:"workspace"`
	WorkspaceSnapshots string   `toml:"workspace_snapshots"` // where they are kept; absent = the workspace's path and ".tgad"
	WorkspaceExclude   []string `toml:"workspace_exclude"`   // paths in it that are left alone
	WorkspaceKeep      int      `toml:"workspace_keep"`      // calls whose snapshots are kept; 100

	// For tgad mcp, which is between a client and the server.
	CallIDs []string `toml:"call_ids"` // names in _meta whose value identifies one call of the client
	Drift   string   `toml:"drift"`    // a tool whose definition changed: "report" (default) or "block" (of tgad gateway)

	// For tgad gateway, which offers the servers of type mcp-* at one endpoint.
	Prefix *string           `toml:"prefix"` // before the client's names of the server's tools; the id and "__"
	Rename map[string]string `toml:"rename"` // a tool's name: the client's name of it
	Allow  []string          `toml:"allow"`  // tools that clients may have; absent = all
	// Resources are the URIs of resources that clients may have; absent = none.
	Resources []string `toml:"resources"`
	Deny      []string `toml:"deny"` // tools that they may not have
	// ForwardAuth says where clients send their own credentials for the server: "authorization" or "header"; absent =
	// clients send none.
	ForwardAuth string `toml:"forward_auth"` // mcp-url
}

// Breaker is the circuit breaker of a server.
type Breaker struct {
	Failures int      `toml:"failures"` // in a row that open it; 5
	Open     Duration `toml:"open"`     // for how long; 60s
	Trials   int      `toml:"trials"`   // successes that close it; 3
}

// Retry is transport retry: it repeats a send only if no byte of the call reached the server.
type Retry struct {
	Tries    int      `toml:"tries"`     // 3
	Delay    Duration `toml:"delay"`     // 100ms
	MaxDelay Duration `toml:"max_delay"` // 2s
}

// Rule is one line of the supervisor's table. Absent server, tool and risk match
// everything.
type Rule struct {
	Server    string   `toml:"server"`
	Tool      string   `toml:"tool"`
	Risk      string   `toml:"risk"`     // READ, WRITE or HIGH_RISK
	Decision  string   `toml:"decision"` // APPROVE, DENY or NEEDS_APPROVAL
	Rationale string   `toml:"rationale"`
	Required  int      `toml:"required"` // NEEDS_APPROVAL: votes it takes; 1
	Within    Duration `toml:"within"`   // NEEDS_APPROVAL: how long the request waits; for ever
}

// Verb is something a peer may do over the socket.
type Verb string

// Verbs. None implies another: the right to submit must not include the right to approve.
const (
	Read   Verb = "read"   // look at traces and evidence
	Append Verb = "append" // make calls, begin and finish them, append to traces
	Decide Verb = "decide" // vote on requests, append a supervisor_decision
	Admin  Verb = "admin"  // resolve, abandon, compensate, recover all, verify the store, backup, seal, erase, unfreeze
)

var verbs = []Verb{Read, Append, Decide, Admin}

// AnyNamespace is the namespace of a role that is not bound to one.
const AnyNamespace = "*"

// Role says what a peer may do, and in which namespace. The first role that names the
// peer's uid or gid is the peer's.
type Role struct {
	UID       []uint32 `toml:"uid"`
	GID       []uint32 `toml:"gid"`
	Namespace string   `toml:"namespace"` // absent = "default"; "*" = any, and the request names it
	Verbs     []Verb   `toml:"verbs"`
}

// Has reports whether the role has a verb.
func (r Role) Has(v Verb) bool {
	return slices.Contains(r.Verbs, v)
}

// RoleOf returns the role of a peer, the zero Role if no role names it. If the file has no role
// at all, the daemon's own uid has every verb in every namespace.
func (c *Config) RoleOf(uid, gid, own uint32) Role {
	if len(c.Roles) == 0 && uid == own {
		return Role{UID: []uint32{own}, Namespace: AnyNamespace, Verbs: verbs}
	}
	for _, r := range c.Roles {
		for _, u := range r.UID {
			if u == uid {
				return r
			}
		}
		for _, g := range r.GID {
			if g == gid {
				return r
			}
		}
	}
	return Role{}
}

const defaultRequestBytes = 16 << 20

func (c *Config) fill() {
	if c.Profile == "" {
		c.Profile = ledger.Strict.String()
	}
	l := &c.Limits
	for _, d := range []struct {
		at *Bytes
		n  int64
	}{
		{&l.RequestBytes, defaultRequestBytes}, {&l.ArtifactBytes, tga.DefaultMaxBytes}, {&l.AnswerBytes, 64 << 20},
	} {
		if d.at.N == 0 {
			d.at.N = d.n
		}
	}
	if l.BodyBudget.N == 0 {
		l.BodyBudget.N = DefaultBodyBudget(Memory(), l.RequestBytes.N)
	}
	for _, d := range []struct {
		at *int
		n  int
	}{
		{&l.Depth, tga.DefaultMaxDepth}, {&l.Connections, 2048}, {&l.UIDConnections, 1024}, {&l.InFlight, 2048}, {&l.Followers, 128},
		{&l.Leases, 4096}, {&l.BatchItems, 256}, {&l.Page, 1000}, {&l.RecoverWidth, 8},
	} {
		if *d.at == 0 {
			*d.at = d.n
		}
	}
	for _, d := range []struct {
		at *Duration
		d  time.Duration
	}{
		// If the file has one of these two, choose the default of the other so that lease_ttl is not
		// longer than max_lease_ttl.
		{&l.MaxLeaseTTL, max(time.Hour, l.LeaseTTL.D)}, {&l.LeaseTTL, min(30*time.Second, cmp.Or(l.MaxLeaseTTL.D, time.Hour))}, {&l.CallTimeout, 10 * time.Minute},
		{&l.HeaderTimeout, 5 * time.Second}, {&l.BodyTimeout, 30 * time.Second},
		{&l.IdleTimeout, 2 * time.Minute}, {&l.DrainTimeout, 30 * time.Second}, {&c.Retention.Every, 24 * time.Hour},
	} {
		if d.at.D == 0 {
			d.at.D = d.d
		}
	}
	for i := range c.Servers {
		if c.Servers[i].Concurrency == 0 {
			c.Servers[i].Concurrency = 32
		}
	}
	for i := range c.Roles {
		if c.Roles[i].Namespace == "" {
			c.Roles[i].Namespace = tga.DefaultNamespace
		}
	}
	for i := range c.Tools {
		if c.Tools[i].Class == "" {
			c.Tools[i].Class = tga.ClassWrite
		}
	}
	for i := range c.Audits {
		c.Audits[i].fill()
	}
	for i := range c.Notify {
		c.Notify[i].fill()
	}
	c.Capability.fill()
	c.Backup.fill()
}

// JSONLimits are the limits of JSON from callers.
func (c *Config) JSONLimits() tga.Limits {
	return tga.Limits{MaxBytes: int(c.Limits.ArtifactBytes.N), MaxDepth: c.Limits.Depth}
}

// Path resolves a path of the file against the file's directory.
func (c *Config) Path(p string) string {
	if p == "" || filepath.IsAbs(p) {
		return p
	}
	return filepath.Join(c.dir, p)
}

// LedgerProfile is the profile that the file names.
func (c *Config) LedgerProfile() ledger.Profile { return c.profile }

// Warnings say who else can read or write the file.
func (c *Config) Warnings() []string { return c.warnings }

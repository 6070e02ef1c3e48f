package config

import (
	"cmp"
	"slices"
	"strings"

	"github.com/tgad/tgad/internal/outcome"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// Tool is what the operator attests about one tool of a server.
type Tool struct {
	Server  string `toml:"server"`
	Name    string `toml:"name"`    // "*" = every tool of the server that has no row
	Class   string `toml:"class"`   // "write" (default) or "read"
	Licence string `toml:"licence"` // park, probe, dedupe_key, dedupe_args, read_only
	// ClientLicence lets the program that runs the tool claim a licence; window, margin and
	// max_in_flight limit the times of the claim.
	ClientLicence bool     `toml:"client_licence"`
	Window        Duration `toml:"window"`        // dedupe_key: how long the server honours a key
	Margin        Duration `toml:"margin"`        // dedupe_key: kept before the window's end; 1m
	MaxInFlight   Duration `toml:"max_in_flight"` // probe: how long a request can be under way after its sender died
	SendTimeout   Duration `toml:"send_timeout"`  // of one dispatch; 30s
	Resends       *int     `toml:"resends"`       // licensed re-sends of one run; 2
	RepeatWindow  Duration `toml:"repeat_window"` // how long a lost answer is served to an identical call without a key; 1h
	PermitTime    Duration `toml:"permit_time"`   // how long a remote executor counts as executing; send_timeout

	Replay       string   `toml:"replay"`        // for a record whose changes are gone: "strict" (default), "warn" or "human"
	ConfirmAll   bool     `toml:"confirm_all"`   // verify before every repeat, and not only if the caller says replay
	ConfirmEvery Duration `toml:"confirm_every"` // how long a confirmation is valid; 0 = verify each time
	Probe        Backoff  `toml:"probe"`         // pauses between probes of a call in doubt
	Prober       string   `toml:"prober"`        // "none": of an external server, licence probe without a [[prober]]
	Retry        Backoff  `toml:"retry"`         // new attempts after a retryable_failure; attempts = 0: none
	// AutoCompensate undoes a compensatable_failure automatically.
	AutoCompensate bool `toml:"auto_compensate"`

	Answer   string           `toml:"answer"`  // form of the answers that rules read: "json", or "mcp" (of mcp-* servers always)
	Outcomes []outcome.Rule   `toml:"outcome"` // tried in order; the first that matches gives the class
	Changes  []outcome.Change `toml:"change"`  // what a call changes in the world
	Inverse  *outcome.Inverse `toml:"inverse"` // the call that undoes one
	Key      Key              `toml:"key"`
	Redact   Redact           `toml:"redact"` // what of a call is not stored

	Log string `toml:"log"` // tgad mcp: "none" passes the tool's calls on without a trace

	licence ledger.Licence
	replay  runtime.ReplayMode
}

// Key says where the idempotency key comes from, and where else the tool's server expects it, beside
// the place where the transport puts it.
type Key struct {
	From string `toml:"from"` // tgad mcp: JSON Pointer to the key in the client's arguments
	outcome.Key
}

// Backoff has the pauses between repetitions: first, then twice as long each time, up to max.
type Backoff struct {
	First    Duration `toml:"first"`    // 1s
	Max      Duration `toml:"max"`      // 1h
	Attempts int      `toml:"attempts"` // of probe: 0 = without end
}

func (b Backoff) policy() runtime.Backoff {
	return runtime.Backoff{First: b.First.D, Max: b.Max.D, Attempts: b.Attempts}
}

// policy is the row as a policy of the runtime.
func (t *Tool) policy() runtime.Policy {
	p := runtime.Policy{
		Class: t.Class, Licence: t.licence, LicenceSet: t.Licence != "", ClientLicence: t.ClientLicence,
		SendTimeout: t.SendTimeout.D, PermitTime: t.PermitTime.D, RepeatWindow: t.RepeatWindow.D,
		Replay: t.replay, ConfirmAll: t.ConfirmAll, ConfirmEvery: t.ConfirmEvery.D,
		Probe: t.Probe.policy(), Retry: t.Retry.policy(), AutoCompensate: t.AutoCompensate,
	}
	if t.Resends != nil {
		p.Resends = *t.Resends
		if p.Resends == 0 {
			p.Resends = -1 // the runtime takes 0 for its default
		}
	}
	return p
}

// rules are the rules of the row about answers, for package outcome.
func (t *Tool) rules(s *Server, profile ledger.Profile) outcome.Tool {
	class := cmp.Or(t.Class, tga.ClassWrite)
	o := outcome.Tool{
		Server: t.Server, Name: t.Name, Answer: t.Answer, Rules: t.Outcomes, Changes: t.Changes,
		Inverse: t.Inverse, Key: t.Key.Key,
		Licence: ledger.Effective(t.licence, t.Licence != "", class, profile),
	}
	if o.Answer == "" && s.SpeaksMCP() {
		o.Answer = outcome.FormMCP
	}
	return o
}

// SpeaksMCP reports whether the daemon calls the server over MCP.
func (s *Server) SpeaksMCP() bool { return s.Type == MCPCommand || s.Type == MCPURL }

// AnyTool is the name of the row for every tool of a server that has no row of its own.
const AnyTool = outcome.AnyTool

// ToolOf returns the row of a tool: its own, or the one for "*" of the server; nil if there is none.
func (c *Config) ToolOf(server, tool string) *Tool {
	var found *Tool
	for i := range c.Tools {
		t := &c.Tools[i]
		if t.Server == server && (t.Name == tool || t.Name == AnyTool && found == nil) {
			found = t
			if t.Name == tool {
				break
			}
		}
	}
	return found
}

// HasServer reports whether the file has a tool server.
func (c *Config) HasServer(id string) bool {
	return slices.ContainsFunc(c.Servers, func(s Server) bool { return s.ID == id })
}

// Policy returns what the file attests about a tool.
func (c *Config) Policy(server, tool string) (runtime.Policy, bool) {
	t := c.ToolOf(server, tool)
	if t == nil {
		return runtime.Policy{}, false
	}
	return t.policy(), true
}

// outcomePath is the key of the file that a JSON Pointer of package outcome names, below at.
func outcomePath(at, pointer string) string {
	rest := strings.TrimPrefix(pointer, "/tool/0")
	return at + strings.ReplaceAll(rest, "/", ".")
}

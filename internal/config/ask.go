package config

import (
	"bytes"

	"github.com/pelletier/go-toml/v2"

	"github.com/tgad/tgad/internal/verify"
	"github.com/tgad/tgad/internal/verify/filecheck"
	"github.com/tgad/tgad/internal/verify/gitcheck"
	"github.com/tgad/tgad/internal/verify/github"
	"github.com/tgad/tgad/internal/verify/httpcheck"
	"github.com/tgad/tgad/internal/verify/mcpcheck"
	"github.com/tgad/tgad/internal/verify/pgcheck"
	"github.com/tgad/tgad/internal/verify/sqlcheck"
	"github.com/tgad/tgad/internal/verify/sqlitecheck"
	"github.com/tgad/tgad/runtime"
)

// Kinds of a [Verifier]; HTTP is one too. MCP and HTTP are also those of a [Prober].
const (
	GitHub   = "github"
	File     = "file"
	Git      = "git"
	Postgres = "postgres"
	SQLite   = "sqlite"
	MCP      = "mcp"
)

// Verifier looks whether changes of one type of resource stand. The packages below
// internal/verify say what the keys of each kind mean.
type Verifier struct {
	ResourceType string `toml:"resource_type"`
	Type         string `toml:"type"`

	URL         string            `toml:"url"`    // http
	Method      string            `toml:"method"` // http
	HeadersFile string            `toml:"headers_file"`
	OK          []int             `toml:"ok"`
	CAFile      string            `toml:"ca_file"`  // http, github
	BaseURL     string            `toml:"base_url"` // github
	TokenFile   string            `toml:"token_file"`
	Root        string            `toml:"root"` // file
	MaxBytes    Bytes             `toml:"max_bytes"`
	Repository  string            `toml:"repository"` // git
	Git         string            `toml:"git"`
	Reachable   string            `toml:"reachable_from"`
	DSN         string            `toml:"dsn"` // postgres
	Password    string            `toml:"password_file"`
	File        string            `toml:"file"`  // sqlite
	Query       string            `toml:"query"` // postgres, sqlite
	Params      []string          `toml:"params"`
	Rows        int               `toml:"rows"`
	Columns     []sqlcheck.Column `toml:"column"`
	Server      string            `toml:"server"` // mcp: id of the server that is asked
	Tool        string            `toml:"tool"`
	Answer      string            `toml:"answer"`
	Arguments   map[string]string `toml:"arguments"`
	Checks      []verify.Check    `toml:"check"`  // http, mcp
	Gone        any               `toml:"gone"`   // http: statuses; mcp: rules
	Ignore      []string          `toml:"ignore"` // all but git

	Patience
}

// Prober asks whether a call of a tool ran.
type Prober struct {
	Server string `toml:"server"` // of the calls in doubt
	Tool   string `toml:"tool"`   // "*" = every tool of the server that has no prober
	Type   string `toml:"type"`   // http or mcp

	URL         string            `toml:"url"` // http
	Method      string            `toml:"method"`
	HeadersFile string            `toml:"headers_file"`
	CAFile      string            `toml:"ca_file"`
	Body        map[string]string `toml:"body"`
	AskServer   string            `toml:"ask_server"` // mcp: the server that is asked; server
	AskTool     string            `toml:"ask_tool"`
	Answer      string            `toml:"answer"`
	Arguments   map[string]string `toml:"arguments"`
	Fences      bool              `toml:"fences"` // asking makes the server refuse the attempts made before
	Ran         []Answered        `toml:"ran"`
	NotRan      []Answered        `toml:"not_ran"`
	Reply       Reply             `toml:"reply"`

	Patience
}

// Answered is a rule about the answer to a question.
type Answered struct {
	Status []int          `toml:"status"` // http
	Failed bool           `toml:"failed"` // mcp: holds for an error of the tool
	Checks []verify.Check `toml:"check"`
}

// Reply says what is recorded of a call that ran.
type Reply struct {
	Result  string     `toml:"result"`
	Summary string     `toml:"summary"`
	Failure []Answered `toml:"failure"`
}

// Patience is [verify.Patience] in the file's values.
type Patience struct {
	Timeout     Duration `toml:"timeout"`
	Tries       int      `toml:"tries"`
	Delay       Duration `toml:"delay"`
	MaxDelay    Duration `toml:"max_delay"`
	Settle      Duration `toml:"settle"`
	SettleEvery Duration `toml:"settle_every"`
}

func (p *Patience) durations() map[string]Duration {
	return map[string]Duration{"timeout": p.Timeout, "delay": p.Delay, "max_delay": p.MaxDelay, "settle": p.Settle, "settle_every": p.SettleEvery}
}

func (p *Patience) of() verify.Patience {
	return verify.Patience{
		Timeout: p.Timeout.D, Tries: p.Tries, Delay: p.Delay.D, MaxDelay: p.MaxDelay.D, Settle: p.Settle.D, SettleEvery: p.SettleEvery.D,
	}
}

// callers returns what the tools of a server are called through, nil where it is none
// that speaks MCP.
type callers func(server string) runtime.Dispatcher

// verifierKinds makes the verifier of a table, by its type.
var verifierKinds = map[string]func(c *Config, v *Verifier, of callers) (runtime.Verifier, error){
	HTTP: func(c *Config, v *Verifier, _ callers) (runtime.Verifier, error) {
		o := httpcheck.Config{
			URL: v.URL, Method: v.Method, HeadersFile: c.path(v.HeadersFile), CAFile: c.path(v.CAFile),
			OK: v.OK, Ignore: v.Ignore, Checks: v.Checks, Patience: v.of(),
		}
		if err := v.gone(&o.Gone); err != nil {
			return nil, err
		}
		return httpcheck.New(o)
	},
	GitHub: func(c *Config, v *Verifier, _ callers) (runtime.Verifier, error) {
		return github.New(github.Config{
			BaseURL: v.BaseURL, TokenFile: c.path(v.TokenFile), CAFile: c.path(v.CAFile), Ignore: v.Ignore, Patience: v.of(),
		})
	},
	File: func(c *Config, v *Verifier, _ callers) (runtime.Verifier, error) {
		return filecheck.New(filecheck.Config{Root: c.path(v.Root), MaxBytes: v.MaxBytes.N, Ignore: v.Ignore, Patience: v.of()})
	},
	Git: func(c *Config, v *Verifier, _ callers) (runtime.Verifier, error) {
		return gitcheck.New(gitcheck.Config{Repository: c.path(v.Repository), Git: v.Git, ReachableFrom: v.Reachable, Patience: v.of()})
	},
	Postgres: func(c *Config, v *Verifier, _ callers) (runtime.Verifier, error) {
		return pgcheck.New(pgcheck.Config{DSN: v.DSN, PasswordFile: c.path(v.Password), Config: v.sql()})
	},
	SQLite: func(c *Config, v *Verifier, _ callers) (runtime.Verifier, error) {
		return sqlitecheck.New(sqlitecheck.Config{File: c.path(v.File), Config: v.sql()})
	},
	MCP: func(_ *Config, v *Verifier, of callers) (runtime.Verifier, error) {
		caller := of(v.Server)
		if caller == nil {
			return nil, verify.Invalid("server", "%q is the id of no [[server]] that speaks MCP", v.Server)
		}
		o := mcpcheck.Config{
			Server: v.Server, Tool: v.Tool, Answer: v.Answer, Arguments: v.Arguments, Ignore: v.Ignore, Checks: v.Checks, Patience: v.of(),
		}
		if err := v.gone(&o.Gone); err != nil {
			return nil, err
		}
		return mcpcheck.New(o, caller)
	},
}

func (v *Verifier) sql() sqlcheck.Config {
	return sqlcheck.Config{Query: v.Query, Params: v.Params, Rows: v.Rows, Columns: v.Columns, Ignore: v.Ignore, Patience: v.of()}
}

// gone reads the key of that name, which has a form for each kind.
func (v *Verifier) gone(to any) error {
	if v.Gone == nil {
		return nil
	}
	raw, err := toml.Marshal(map[string]any{"gone": v.Gone})
	if err != nil {
		return verify.Invalid("gone", "%w", err)
	}
	d := toml.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	switch to := to.(type) {
	case *[]int:
		var form struct {
			Gone []int `toml:"gone"`
		}
		if d.Decode(&form) != nil {
			return verify.Invalid("gone", "want statuses, as [404, 410]")
		}
		*to = form.Gone
	case *[]mcpcheck.Rule:
		var form struct {
			Gone []mcpcheck.Rule `toml:"gone"`
		}
		if d.Decode(&form) != nil {
			return verify.Invalid("gone", "want tables with the keys failed and check")
		}
		*to = form.Gone
	}
	return nil
}

// proberKinds makes the prober of a table, by its type.
var proberKinds = map[string]func(c *Config, p *Prober, of callers) (runtime.Prober, error){
	HTTP: func(c *Config, p *Prober, _ callers) (runtime.Prober, error) {
		rules := func(all []Answered) (list []httpcheck.Rule) {
			for _, a := range all {
				list = append(list, httpcheck.Rule{Status: a.Status, Checks: a.Checks})
			}
			return list
		}
		return httpcheck.NewProber(httpcheck.ProberConfig{
			URL: p.URL, Method: p.Method, HeadersFile: c.path(p.HeadersFile), CAFile: c.path(p.CAFile), Body: p.Body, Fences: p.Fences,
			Ran: rules(p.Ran), NotRan: rules(p.NotRan), Patience: p.of(),
			Reply: httpcheck.Reply{Result: p.Reply.Result, Summary: p.Reply.Summary, Failure: rules(p.Reply.Failure)},
		})
	},
	MCP: func(_ *Config, p *Prober, of callers) (runtime.Prober, error) {
		rules := func(all []Answered) (list []mcpcheck.Rule) {
			for _, a := range all {
				list = append(list, mcpcheck.Rule{Failed: a.Failed, Checks: a.Checks})
			}
			return list
		}
		key, server := "ask_server", p.AskServer
		if server == "" {
			key, server = "server", p.Server
		}
		caller := of(server)
		if caller == nil {
			return nil, verify.Invalid(key, "%q is the id of no [[server]] that speaks MCP", server)
		}
		return mcpcheck.NewProber(mcpcheck.ProberConfig{
			AskServer: server, AskTool: p.AskTool, Answer: p.Answer, Arguments: p.Arguments, Fences: p.Fences,
			Ran: rules(p.Ran), NotRan: rules(p.NotRan), Patience: p.of(),
			Reply: mcpcheck.Reply{Result: p.Reply.Result, Summary: p.Reply.Summary, Failure: rules(p.Reply.Failure)},
		}, caller)
	},
}

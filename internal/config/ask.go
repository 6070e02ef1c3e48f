package config

import (
	"bytes"
	"reflect"

	"github.com/pelletier/go-toml/v2"

	"github.com/tgad/tgad/internal/verify"
	"github.com/tgad/tgad/internal/verify/sqlcheck"
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

// Verifier checks whether recorded changes of one type of resource are still there. The packages
// below internal/verify describe the keys of each kind.
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

// Answered is a condition on the answer to a probe.
type Answered struct {
	Status []int          `toml:"status"` // http
	Failed bool           `toml:"failed"` // mcp: the tool answered with an error
	Checks []verify.Check `toml:"check"`
}

// Reply says what is recorded for a call that ran.
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

// Gone reads the key gone, whose form depends on the kind. It is the zero value if the key is
// absent.
func Gone[T any](v *Verifier, want string) (T, error) {
	var form struct {
		Gone T `toml:"gone"`
	}
	if v.Gone == nil {
		return form.Gone, nil
	}
	raw, err := toml.Marshal(map[string]any{"gone": v.Gone})
	if err != nil {
		return form.Gone, verify.Invalid("gone", "%w", err)
	}
	d := toml.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if d.Decode(&form) != nil {
		return form.Gone, verify.Invalid("gone", "want %s", want)
	}
	for path := range positionsOf(raw) {
		if misspelt(reflect.TypeOf(form), path) != nil {
			return form.Gone, verify.Invalid("gone", "want %s", want)
		}
	}
	return form.Gone, nil
}

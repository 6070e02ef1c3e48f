package assemble

import (
	"context"
	"slices"

	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/internal/optional"
	"github.com/tgad/tgad/internal/verify"
	"github.com/tgad/tgad/internal/verify/filecheck"
	"github.com/tgad/tgad/internal/verify/gitcheck"
	"github.com/tgad/tgad/internal/verify/github"
	"github.com/tgad/tgad/internal/verify/httpcheck"
	"github.com/tgad/tgad/internal/verify/mcpcheck"
	"github.com/tgad/tgad/internal/verify/sqlcheck"
	"github.com/tgad/tgad/runtime"
)

func patience(p config.Patience) verify.Patience {
	return verify.Patience{
		Timeout: p.Timeout.D, Tries: p.Tries, Delay: p.Delay.D, MaxDelay: p.MaxDelay.D, Settle: p.Settle.D, SettleEvery: p.SettleEvery.D,
	}
}

// callers returns what the tools of a server are called through, nil where it is none
// that speaks MCP.
type callers func(server string) runtime.Dispatcher

// builder is the [config.Builder] of this package: it makes what a table describes and lets it
// go. None of it contacts anybody.
type builder struct{}

// CheckStore implements [config.Builder].
func (builder) CheckStore(_ *config.Config, s *config.Store) error {
	if !s.ListIndex || s.URL != "" { // a database has the index in tables of its own
		return nil
	}
	_, err := optional.SQLDriver()
	return err
}

// CheckServer implements [config.Builder].
func (builder) CheckServer(_ *config.Config, s *config.Server) error {
	if s.Type == config.GRPC {
		return optional.HasGRPC()
	}
	return nil
}

// CheckVerifier implements [config.Builder].
func (builder) CheckVerifier(c *config.Config, v *config.Verifier) error {
	_, err := verifierKinds[v.Type](c, v, speaksMCP(c))
	return err
}

// CheckProber implements [config.Builder].
func (builder) CheckProber(c *config.Config, p *config.Prober) error {
	_, err := proberKinds[p.Type](c, p, speaksMCP(c))
	return err
}

// noCaller stands for an MCP server while a file is only read.
var noCaller = runtime.DispatcherFunc(func(context.Context, runtime.Call) (runtime.Reply, error) {
	return runtime.Reply{}, runtime.ErrNotSent
})

// speaksMCP says that a server speaks MCP, for a file that is only read.
func speaksMCP(c *config.Config) callers {
	return func(id string) runtime.Dispatcher {
		if slices.ContainsFunc(c.Servers, func(s config.Server) bool { return s.ID == id && s.SpeaksMCP() }) {
			return noCaller
		}
		return nil
	}
}

// verifierKinds makes the verifier of a table, by its type.
var verifierKinds = map[string]func(c *config.Config, v *config.Verifier, of callers) (runtime.Verifier, error){
	config.HTTP: func(c *config.Config, v *config.Verifier, _ callers) (runtime.Verifier, error) {
		o := httpcheck.Config{
			URL: v.URL, Method: v.Method, HeadersFile: c.Path(v.HeadersFile), CAFile: c.Path(v.CAFile),
			OK: v.OK, Ignore: v.Ignore, Checks: v.Checks, Patience: patience(v.Patience),
		}
		var err error
		if o.Gone, err = config.Gone[[]int](v, "statuses, as [404, 410]"); err != nil {
			return nil, err
		}
		return httpcheck.New(o)
	},
	config.GitHub: func(c *config.Config, v *config.Verifier, _ callers) (runtime.Verifier, error) {
		return github.New(github.Config{
			BaseURL: v.BaseURL, TokenFile: c.Path(v.TokenFile), CAFile: c.Path(v.CAFile), Ignore: v.Ignore, Patience: patience(v.Patience),
		})
	},
	config.File: func(c *config.Config, v *config.Verifier, _ callers) (runtime.Verifier, error) {
		return filecheck.New(filecheck.Config{Root: c.Path(v.Root), MaxBytes: v.MaxBytes.N, Ignore: v.Ignore, Patience: patience(v.Patience)})
	},
	config.Git: func(c *config.Config, v *config.Verifier, _ callers) (runtime.Verifier, error) {
		return gitcheck.New(gitcheck.Config{Repository: c.Path(v.Repository), Git: v.Git, ReachableFrom: v.Reachable, Patience: patience(v.Patience)})
	},
	config.Postgres: func(c *config.Config, v *config.Verifier, _ callers) (runtime.Verifier, error) {
		return optional.Postgres(v.DSN, c.Path(v.Password), sqlOf(v))
	},
	config.SQLite: func(c *config.Config, v *config.Verifier, _ callers) (runtime.Verifier, error) {
		return optional.SQLite(c.Path(v.File), sqlOf(v))
	},
	config.MCP: func(_ *config.Config, v *config.Verifier, of callers) (runtime.Verifier, error) {
		caller := of(v.Server)
		if caller == nil {
			return nil, verify.Invalid("server", "%q is the id of no [[server]] that speaks MCP", v.Server)
		}
		o := mcpcheck.Config{
			Server: v.Server, Tool: v.Tool, Answer: v.Answer, Arguments: v.Arguments, Ignore: v.Ignore, Checks: v.Checks, Patience: patience(v.Patience),
		}
		var err error
		if o.Gone, err = config.Gone[[]mcpcheck.Rule](v, "tables with the keys failed and check"); err != nil {
			return nil, err
		}
		return mcpcheck.New(o, caller)
	},
}

func sqlOf(v *config.Verifier) sqlcheck.Config {
	return sqlcheck.Config{Query: v.Query, Params: v.Params, Rows: v.Rows, Columns: v.Columns, Ignore: v.Ignore, Patience: patience(v.Patience)}
}

// proberKinds makes the prober of a table, by its type.
var proberKinds = map[string]func(c *config.Config, p *config.Prober, of callers) (runtime.Prober, error){
	config.HTTP: func(c *config.Config, p *config.Prober, _ callers) (runtime.Prober, error) {
		rules := func(all []config.Answered) (list []httpcheck.Rule) {
			for _, a := range all {
				list = append(list, httpcheck.Rule{Status: a.Status, Checks: a.Checks})
			}
			return list
		}
		return httpcheck.NewProber(httpcheck.ProberConfig{
			URL: p.URL, Method: p.Method, HeadersFile: c.Path(p.HeadersFile), CAFile: c.Path(p.CAFile), Body: p.Body, Fences: p.Fences,
			Ran: rules(p.Ran), NotRan: rules(p.NotRan), Patience: patience(p.Patience),
			Reply: httpcheck.Reply{Result: p.Reply.Result, Summary: p.Reply.Summary, Failure: rules(p.Reply.Failure)},
		})
	},
	config.MCP: func(_ *config.Config, p *config.Prober, of callers) (runtime.Prober, error) {
		rules := func(all []config.Answered) (list []mcpcheck.Rule) {
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
			Ran: rules(p.Ran), NotRan: rules(p.NotRan), Patience: patience(p.Patience),
			Reply: mcpcheck.Reply{Result: p.Reply.Result, Summary: p.Reply.Summary, Failure: rules(p.Reply.Failure)},
		}, caller)
	},
}

package assemble

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/tgad/tgad/internal/access"
	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/internal/filelock"
	"github.com/tgad/tgad/internal/optional"
	"github.com/tgad/tgad/internal/outcome"
	"github.com/tgad/tgad/internal/redact"
	"github.com/tgad/tgad/internal/secretfile"
	"github.com/tgad/tgad/internal/workspace"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/dispatch"
	"github.com/tgad/tgad/runtime/dispatch/httpcall"
	"github.com/tgad/tgad/runtime/mcp"
	"github.com/tgad/tgad/schemas/tga"
)

// Parse is [config.Parse]. It also reports what the packages of this program would refuse.
func Parse(name string, raw []byte) (*config.Config, error) {
	return config.Parse(name, raw, builder{})
}

// Load is [config.Load]. It also reports what the packages of this program would refuse.
func Load(path string) (*config.Config, error) { return config.Load(path, builder{}) }

// Given is [Load] with an optional file: for "" it returns a configuration without any setting.
func Given(path string) (*config.Config, error) {
	if path == "" {
		return Parse("", nil)
	}
	return Load(path)
}

// Options say where a configuration is used.
type Options struct {
	// Store is the store's directory. The locks of child processes are kept in it, and
	// a file of keys inside it is refused.
	Store string
	// Children returns the directory for those locks if the store has no directory. It is called only
	// if the configuration has a server that is a child process.
	Children func() (string, error)
	Logger   *slog.Logger     // also gets what servers write
	Clock    func() time.Time // for tests; nil means time.Now
	// OnToolsChanged, if not nil, is called with the id of an MCP server whose tools may have changed;
	// see [mcp.Options].
	OnToolsChanged func(server string)
	// AtRest makes only what is needed to read a log: the rules for outcomes and inverses, and no
	// tool server.
	AtRest bool
}

// Tools is the dispatcher of the configured servers, with the suggestions of trusted servers, and
// with the verifiers, probers and supervisors of the configuration.
type Tools struct {
	dispatch.Router
	config *config.Config
	trust  runtime.Trust
	// redactor is nil if calls are stored without redaction.
	redactor   *redact.Redactor
	rules      *outcome.Rules
	supervisor runtime.Rules
	nodes      map[string]*node
	trusted    []string
	named      map[string]bool // external servers of the file, and whether their hints are trusted

	mu        sync.Mutex
	suggested map[[2]string]runtime.Policy
	asked     map[string]bool // trusted servers that have suggested what they do
}

// Build makes the Tools of a configuration. It contacts no server.
func Build(c *config.Config, o Options) (*Tools, error) {
	cur := &current{}
	t, err := assemble(c, o, cur)
	if err == nil {
		cur.take(t)
	}
	return t, err
}

// assemble makes Tools that may replace those of cur. They share the servers that both configurations
// describe alike.
func assemble(c *config.Config, o Options, cur *current) (_ *Tools, err error) {
	t := &Tools{Router: dispatch.Router{}, config: c, nodes: map[string]*node{}, suggested: map[[2]string]runtime.Policy{}, asked: map[string]bool{}, named: map[string]bool{}}
	fresh := map[string]*node{}
	defer func() {
		if err != nil {
			err = errors.Join(err, closeNodes(fresh))
		}
	}()
	if t.supervisor, err = c.Supervisor(); err != nil {
		return nil, err
	}
	for _, w := range c.Warnings() {
		o.Logger.Warn(w)
	}
	if t.rules, err = c.Outcomes(); err != nil {
		return nil, err
	}
	if t.redactor, err = redactor(c, o.Store); err != nil {
		return nil, err
	}
	if o.AtRest {
		t.trust = runtime.Trust{Outcome: t.rules.Outcome, Inverse: t.rules.Inverse}
		return t, nil
	}
	children, err := o.children(c)
	if err != nil {
		return nil, err
	}
	for i := range c.Servers {
		s := &c.Servers[i]
		t.named[s.ID] = s.Type == config.External && s.Trusted
		if s.Type == config.External {
			continue
		}
		if s.SpeaksMCP() && s.Trusted {
			t.trusted = append(t.trusted, s.ID)
		}
		made, err := madeOfServer(c, s)
		if err != nil {
			return nil, fmt.Errorf("tool server %q: %w", s.ID, err)
		}
		n := cur.like(s.ID, &made)
		if n == nil {
			n = &node{made: made}
			fresh[s.ID] = n
			if err := t.reach(n, s, cur, children, o); err != nil {
				return nil, fmt.Errorf("tool server %q: %w", s.ID, err)
			}
		}
		t.nodes[s.ID], t.Router[s.ID] = n, n.stack
	}
	t.trust, err = t.buildTrust(o, cur)
	return t, err
}

// reach makes the transport of a tool server and its decorators.
func (t *Tools) reach(n *node, s *config.Server, cur *current, children string, o Options) error {
	transport, err := t.transport(n, s, cur, children, o)
	if err != nil {
		return err
	}
	n.stack, err = t.stack(n, s, transport, cur, o.Logger)
	return err
}

// children makes the directory for the locks of child processes.
func (o *Options) children(c *config.Config) (dir string, err error) {
	dir = filepath.Join(o.Store, "children")
	if o.Store == "" {
		if !slices.ContainsFunc(c.Servers, func(s config.Server) bool { return s.Type == config.MCPCommand }) {
			return "", nil
		}
		if dir, err = o.Children(); err != nil {
			return "", err
		}
	}
	if err := access.MkdirAll(dir); err != nil {
		return "", tga.Errorf(tga.StoreUnavailable, "make the directory of the children's locks: %w", err)
	}
	return dir, nil
}

// stack decorates a transport in the order that package dispatch prescribes. The result may outlive
// t, so it takes the policies of tools from the Tools that are current when a call comes.
func (t *Tools) stack(n *node, s *config.Server, transport runtime.Dispatcher, cur *current, log *slog.Logger) (runtime.Dispatcher, error) {
	d := dispatch.Breaker(transport, dispatch.BreakerOptions{
		Failures: s.Breaker.Failures, Open: s.Breaker.Open.D, Trials: s.Breaker.Trials,
		OnChange: func(namespace, state string) {
			n.breakers.change(namespace, state)
			log.Warn("circuit breaker", "tool_server", s.ID, "namespace", namespace, "state", state)
		},
	})
	d = dispatch.Limit(d, s.Concurrency)
	d = dispatch.Retry(d, dispatch.RetryOptions{Tries: s.Retry.Tries, Delay: s.Retry.Delay.D, MaxDelay: s.Retry.MaxDelay.D})
	if s.Workspace != "" {
		k, err := workspace.Open(context.Background(), Workspace(t.config, s))
		if err != nil {
			return nil, err
		}
		// Inside the time-out: the window of a licence is computed with the send time-out, so the
		// snapshots must be part of it.
		d = &snapshots{next: d, keeper: k, log: log, reads: func(tool string) bool { return cur.tools().Policy(s.ID, tool).Class == tga.ClassRead }}
	}
	d = dispatch.Timeout(d, func(tool string) time.Duration { return cur.tools().Policy(s.ID, tool).SendTimeout })
	return &placer{next: d, cur: cur}, nil
}

func (t *Tools) transport(n *node, s *config.Server, cur *current, dir string, b Options) (runtime.Dispatcher, error) {
	if s.Type == config.HTTP {
		statuses := map[int]httpcall.Outcome{}
		for status, word := range s.Statuses {
			code, err := strconv.Atoi(status)
			if err != nil {
				return nil, err
			}
			if statuses[code], err = httpcall.ParseOutcome(word); err != nil {
				return nil, err
			}
		}
		header := http.Header{}
		for name, value := range n.made.headers {
			header.Set(name, value)
		}
		ahead := httpcall.DefaultAhead
		if s.ConnectAhead != nil {
			ahead = *s.ConnectAhead
		}
		if ahead == 0 {
			ahead = -1 // the option's zero is its default
		}
		server, err := httpcall.New(s.URL, httpcall.Options{
			Paths: s.Paths, Header: header, Statuses: statuses, MaxAnswer: t.config.Limits.AnswerBytes.N,
			KeyHeader: func(tool string) string { return cur.tools().rules.Key(s.ID, tool).Header }, Ahead: ahead,
		})
		if err != nil {
			return nil, err
		}
		n.close = server.Close
		return server, nil
	}
	if s.Type == config.GRPC {
		server, err := optional.GRPC(s.URL, optional.GRPCOptions{
			DescriptorSet: n.made.set, Services: s.Services, MaxAnswer: int(t.config.Limits.AnswerBytes.N), Logger: b.Logger,
		})
		if err == nil {
			n.grpc = server
		}
		return server, err
	}
	o := mcp.Options{
		Command: s.Command, Dir: t.config.Path(s.Dir), URL: s.URL, Headers: n.made.headers, Env: n.made.env,
		MaxAnswerBytes: t.config.Limits.AnswerBytes.N, StartTimeout: s.StartTimeout.D,
		ProtocolVersion: s.ProtocolVersion, Logger: b.Logger,
		KeyMeta: func(tool string) string { return cur.tools().rules.Key(s.ID, tool).Meta },
	}
	if b.OnToolsChanged != nil {
		o.OnToolsChanged = func() { b.OnToolsChanged(s.ID) }
	}
	if s.Type == config.MCPCommand {
		// Name the file by the digest of the id: an id may contain a slash and be 128 bytes long.
		sum := tga.Sum([]byte(s.ID))
		o.LockFile = filepath.Join(dir, "child-"+sum.String()[:16]+".lock")
	}
	server, err := mcp.New(s.ID, o)
	if err != nil {
		return nil, err
	}
	n.close, n.mcp = server.Close, newListed(server)
	return server, nil
}

// Environment has the variables that a server's process gets beside those that it inherits. Those of
// the file of secrets come last, and so override the others.
func Environment(c *config.Config, s *config.Server) (all []string, err error) {
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		all = append(all, name+"="+s.Env[name])
	}
	secrets, err := secretfile.Env(c.Path(s.EnvFile))
	if err != nil {
		return nil, tga.Errorf(tga.ValidationError, "env_file: %w", err)
	}
	return append(all, secrets...), nil
}

// headers reads the headers file of a server.
func headers(c *config.Config, s *config.Server) (map[string]string, error) {
	headers, err := secretfile.Headers(c.Path(s.HeadersFile))
	if err != nil {
		return nil, tga.Errorf(tga.ValidationError, "headers_file: %w", err)
	}
	return headers, nil
}

// Policy is [runtime.Options.Policy]: the policy in the configuration, or, only if that has none for
// the tool, the one that a trusted server suggests.
func (t *Tools) Policy(server, tool string) runtime.Policy {
	if p, ok := t.config.Policy(server, tool); ok {
		return p
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.suggested[[2]string{server, tool}]
}

// Asks reports whether the configuration has a prober for a tool.
func (t *Tools) Asks(server, tool string) bool { return t.config.ProberOf(server, tool) >= 0 }

// Options are the runtime's.
func (t *Tools) Options() runtime.Options {
	o := runtime.Options{Profile: t.config.LedgerProfile(), Policy: t.Policy, Trust: t.trust, Limits: t.config.JSONLimits(), Lock: lockHolder, MaxAnswer: t.config.Limits.AnswerBytes.N}
	if t.redactor != nil {
		o.Redact = t.redactor
	}
	return o
}

// Suggest asks the trusted servers that were not asked yet for their hints, concurrently. A server that
// cannot be asked suggests nothing. The errors are returned together.
func (t *Tools) Suggest(ctx context.Context) error {
	all := make([]error, len(t.trusted))
	var asked sync.WaitGroup
	for i, id := range t.trusted {
		asked.Go(func() { all[i] = t.suggest(ctx, id) })
	}
	asked.Wait()
	return errors.Join(all...)
}

// suggest asks one trusted server for its hints.
func (t *Tools) suggest(ctx context.Context, id string) error {
	t.mu.Lock()
	known := t.asked[id]
	t.mu.Unlock()
	if known {
		return nil
	}
	tools, err := t.nodes[id].mcp.ListTools(ctx)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asked[id] = true
	// What the answer does not repeat is withdrawn, and would license a repeated send.
	maps.DeleteFunc(t.suggested, func(at [2]string, _ runtime.Policy) bool { return at[0] == id })
	for _, tool := range tools {
		hint := ""
		switch {
		case tool.ReadOnly:
			hint = runtime.HintReadOnly
		case tool.Idempotent:
			hint = runtime.HintIdempotent
		default:
			continue
		}
		t.suggested[[2]string{id, tool.Name}], _ = hinted(hint)
	}
	return nil
}

// maxHinted limits the tools that have hints from executors, because executors choose the names.
const maxHinted = 10_000

// Hint takes the hint of an external server about its tool, which the executor that begins a call
// passes on. The hint counts if the configuration trusts the server and has no policy for the tool.
// It lasts until another call of the tool begins with another hint or none.
func (t *Tools) Hint(server, tool, hint string) error {
	p, ok := hinted(hint)
	if !ok {
		return tga.Errorf(tga.ValidationError, "%q: want %s or %s", hint, runtime.HintReadOnly, runtime.HintIdempotent).At("/hint")
	}
	if !t.hintsCount(server) || !tga.CleanName(server) || !tga.CleanName(tool) {
		return nil
	}
	at := [2]string{server, tool}
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := t.suggested[at]; hint == "" {
		delete(t.suggested, at)
	} else if known || len(t.suggested) < maxHinted {
		t.suggested[at] = p
	}
	return nil
}

// hintsCount reports whether hints of an external server count, which an executor passes on.
func (t *Tools) hintsCount(server string) bool {
	if trusted, named := t.named[server]; named {
		return trusted
	}
	return t.config.TrustHints
}

// trusts reports whether a server's own hints count.
func (t *Tools) trusts(server string) bool { return slices.Contains(t.trusted, server) }

// hinted is the policy that a hint suggests.
func hinted(hint string) (runtime.Policy, bool) {
	switch hint {
	case "":
		return runtime.Policy{}, true
	case runtime.HintReadOnly:
		return runtime.Policy{Class: tga.ClassRead, Licence: ledger.Licence{Kind: ledger.ReadOnly}}, true
	case runtime.HintIdempotent:
		return runtime.Policy{Licence: ledger.Licence{Kind: ledger.DedupeArgs}}, true
	}
	return runtime.Policy{}, false
}

// Trusts reports whether any server is trusted to suggest.
func (t *Tools) Trusts() bool { return len(t.trusted) > 0 }

// Close ends the servers' sessions and children.
func (t *Tools) Close() error { return closeNodes(t.nodes) }

// lockHolder says whether the process that holds a lock file is alive. Executors on this machine and
// their clients hold such files.
func lockHolder(path string) ledger.Liveness {
	held, known := filelock.Held(path)
	switch {
	case !known:
		return ledger.HolderUnknown
	case held:
		return ledger.HolderAlive
	}
	return ledger.HolderGone
}

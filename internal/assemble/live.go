package assemble

import (
	"context"
	"sync"

	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/dispatch"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Live is the [Tools] of a configuration file that can be reloaded while calls run. Each method uses
// the configuration that is current when it is called; a reload makes all of a new one current at
// once. A call that was sent to a server finishes there. If the new configuration describes a server
// differently, or not at all, the old server is closed after its last call has ended.
type Live struct {
	cur     *current
	options Options
	left    sync.WaitGroup // counts nodes that are out of use and not closed yet
}

// Start builds the Tools of the first configuration.
func Start(c *config.Config, o Options) (*Live, error) {
	l := &Live{cur: &current{}, options: o}
	t, err := assemble(c, o, l.cur)
	if err != nil {
		return nil, err
	}
	l.cur.take(t)
	return l, nil
}

// Take makes another configuration current. If it cannot be built, nothing changes. A server that
// both configurations describe alike is kept as it is.
func (l *Live) Take(c *config.Config) error {
	next, err := assemble(c, l.options, l.cur)
	if err != nil {
		return err
	}
	for _, n := range l.cur.take(next) {
		l.left.Go(func() {
			n.under.Wait()
			if n.close == nil {
				return
			}
			if err := n.close(); err != nil {
				l.options.Logger.Warn("a tool server that is out of use was not closed", "tool_server", n.made.server.ID, "error", err)
				return
			}
			l.options.Logger.Info("closed a tool server that is out of use", "tool_server", n.made.server.ID)
		})
	}
	return nil
}

// Close ends the servers' sessions and children, once no call is under way.
func (l *Live) Close() error {
	l.left.Wait()
	return l.cur.tools().Close()
}

// Config is the current configuration.
func (l *Live) Config() *config.Config { return l.cur.tools().config }

// Breakers has the servers that this process calls. The value is the number of namespaces whose breaker is open
// or half-open.
func (l *Live) Breakers() map[string]int {
	all := map[string]int{}
	for id, n := range l.cur.tools().nodes {
		all[id] = n.breakers.count()
	}
	return all
}

// SpeaksMCP reports whether a tool server speaks MCP.
func (l *Live) SpeaksMCP(server string) bool {
	n := l.cur.tools().nodes[server]
	return n != nil && n.mcp != nil
}

// Policy is [Tools.Policy].
func (l *Live) Policy(server, tool string) runtime.Policy {
	return l.cur.tools().Policy(server, tool)
}

// Asks is [Tools.Asks].
func (l *Live) Asks(server, tool string) bool { return l.cur.tools().Asks(server, tool) }

// Hint is [Tools.Hint].
func (l *Live) Hint(server, tool, hint string) error {
	return l.cur.tools().Hint(server, tool, hint)
}

// Trusts is [Tools.Trusts].
func (l *Live) Trusts() bool { return l.cur.tools().Trusts() }

// Suggest is [Tools.Suggest]. It keeps the servers from being closed while it asks them.
func (l *Live) Suggest(ctx context.Context) error {
	t := l.cur.tools()
	for _, id := range t.trusted {
		_, leave := l.cur.enter(id)
		defer leave()
	}
	return t.Suggest(ctx)
}

// router routes to one server. It is nil if the current configuration does not have the server.
func (l *Live) router(server string) (_ dispatch.Router, leave func()) {
	n, leave := l.cur.enter(server)
	if n == nil {
		return nil, leave
	}
	return dispatch.Router{server: n.stack}, leave
}

// Dispatch implements [runtime.Dispatcher].
func (l *Live) Dispatch(ctx context.Context, call runtime.Call) (runtime.Reply, error) {
	r, leave := l.router(call.Server)
	defer leave()
	return r.Dispatch(ctx, call)
}

// Check implements [runtime.Checker].
func (l *Live) Check(ctx context.Context, call runtime.Call) error {
	r, leave := l.router(call.Server)
	defer leave()
	if _, named := l.cur.tools().named[call.Server]; r == nil && named && !call.Remote {
		return tga.Errorf(tga.NotFound, "the tool server is external: a program sends its calls itself (begin and finish), and the daemon sends none").In(call.TraceID)
	}
	return r.Check(ctx, call)
}

// Prepare implements [runtime.Preparer].
func (l *Live) Prepare(ctx context.Context, call runtime.Call) ([]chain.Attachment, error) {
	r, leave := l.router(call.Server)
	defer leave()
	return r.Prepare(ctx, call)
}

// Licence is the licence by the current configuration for a call in doubt of a tool and class. claim is the
// licence that the call's program claims, or nil.
func (l *Live) Licence(server, tool, class string, claim *ledger.Licence) (ledger.Licence, runtime.Policy) {
	t := l.cur.tools()
	p := t.Policy(server, tool)
	return ledger.Claimed(ledger.Effective(p.Licence, p.LicenceSet, class, t.config.LedgerProfile()), claim, p.ClientLicence, class), p
}

// Supervisor decides by the rules of the current configuration.
func (l *Live) Supervisor() runtime.PureSupervisor { return liveRules{l.cur} }

type liveRules struct{ cur *current }

func (liveRules) Pure() {}

func (r liveRules) Decide(ctx context.Context, request *tga.Artifact) (runtime.Verdict, error) {
	return r.cur.tools().supervisor.Decide(ctx, request)
}

// Options are options for the runtime whose functions use the current configuration. The limits and
// the profile are those of the first configuration: a reload cannot change them.
func (l *Live) Options() runtime.Options {
	t := l.cur.tools()
	o := t.Options()
	o.Policy = l.Policy
	if t.redactor != nil {
		o.Redact = liveRedactor{l.cur}
	}
	o.Trust.Outcome = func(call runtime.Call, reply *runtime.Reply) error { return l.cur.tools().rules.Outcome(call, reply) }
	o.Trust.Inverse = func(call *tga.ToolCall, effect *tga.ToolEffect, result []byte) (runtime.Inverse, bool, error) {
		return l.cur.tools().rules.Inverse(call, effect, result)
	}
	if l.options.AtRest {
		return o
	}
	o.Trust.Schema = func(ctx context.Context, server, tool string) (tga.Digest, error) {
		n, leave := l.cur.enter(server)
		defer leave()
		if n == nil || n.mcp == nil {
			return tga.Digest{}, nil
		}
		return n.mcp.schema(ctx, tool)
	}
	o.Trust.Verifier = func(kind string) runtime.Verifier { return l.cur.tools().trust.Verifier(kind) }
	o.Trust.Prober = func(server, tool string) runtime.Prober { return l.cur.tools().trust.Prober(server, tool) }
	o.Trust.Supervisor = func(who string) runtime.TokenChecker { return l.cur.tools().trust.Supervisor(who) }
	if o.Trust.Capabilities != nil {
		o.Trust.Capabilities = liveKeys{l.cur}
	}
	return o
}

// liveKeys are the keys of the current configuration. A reload cannot add or remove [capability] keys
// as a whole.
type liveKeys struct{ cur *current }

func (k liveKeys) Mint(ctx context.Context, g runtime.Grant) (string, error) {
	return k.cur.tools().trust.Capabilities.Mint(ctx, g)
}

func (k liveKeys) Check(ctx context.Context, token string, g runtime.Grant) error {
	return k.cur.tools().trust.Capabilities.Check(ctx, token, g)
}

// liveRedactor redacts by the current configuration. A reload cannot turn redaction on or off.
type liveRedactor struct{ cur *current }

func (r liveRedactor) Args(call runtime.Call) ([]byte, bool, error) {
	return r.cur.tools().redactor.Args(call)
}

func (r liveRedactor) Reply(call runtime.Call, reply runtime.Reply) (runtime.Reply, bool, error) {
	return r.cur.tools().redactor.Reply(call, reply)
}

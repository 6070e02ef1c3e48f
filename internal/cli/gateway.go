//go:build unix

package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/tgad/tgad/internal/assemble"
	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/internal/mcpfront"
	"github.com/tgad/tgad/internal/mcpfront/gateway"
	"github.com/tgad/tgad/internal/mcpfront/identity"
	"github.com/tgad/tgad/internal/mcpfront/toolcall"
	"github.com/tgad/tgad/internal/secretfile"
	"github.com/tgad/tgad/internal/workspace"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
)

// gatewayCommand is the verb gateway. It does for all servers of a configuration what the
// verb mcp does for one.
type gatewayCommand struct {
	mcp
	as   string
	conf *config.Config // that it was started with

	looks   map[string]*workspace.Keeper // of servers
	tracer  runtime.Tracer
	client  *client.Client // of the log
	metrics *gatewayMetrics
	door    *gateway.Door
	shims   map[shimOf]madeShim
	leaving sync.WaitGroup // of shims that are no more
}

// Gateway makes the verb gateway. socket is the flag of every verb.
func Gateway(s *Streams, socket *string) *cobra.Command {
	g := &gatewayCommand{mcp: mcp{Streams: s, socket: socket}, looks: map[string]*workspace.Keeper{}}
	c := &cobra.Command{
		Use:   "gateway --config FILE",
		Short: "Run several MCP servers behind one endpoint",
		Long: `gateway has the servers of type mcp-command and mcp-url of FILE behind one endpoint, on stdin
and stdout or, with --listen, over streamable HTTP. What tgad mcp does for the calls of one
server it does for the calls of each. A client sees a tool under the server's prefix and the
tool's name; prefix, rename, allow and deny of a [[server]] say otherwise.

With a [[gateway.identity]] the clients are known by an API key or a token, and each has a
namespace of its own: the same key of two clients is two calls. With [gateway.tls] clients
may be on other machines, and be known by a certificate.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return g.run(cmd.Context(), cmd) },
	}
	f := c.PersistentFlags()
	f.StringVar(&g.file, "config", "", "configuration `file` (TOML)")
	f.StringVar(&g.data, "data", os.Getenv("TGAD_DATA"), "keep the log in this directory (or $TGAD_DATA)")
	f.StringVar(&g.state, "state", "", "directory for what the gateway itself remembers")
	f.TextVar(&g.level, "log-level", slog.LevelWarn, "debug, info, warn or error, on stderr")
	f.StringVar(&g.as, "identity", "", "`NAME` of the identity that the client on stdin is")
	c.Flags().StringVar(&g.listen, "listen", "", "serve streamable HTTP on `ADDR` or unix:PATH in place of stdin and stdout; on another address than this machine's with [gateway.tls] alone")
	c.AddCommand(g.accept(), g.observed())
	return c
}

// load reads the configuration.
func (g *gatewayCommand) load() (err error) {
	if g.file == "" {
		return Usagef("give --config: it names the servers")
	}
	g.conf, err = g.read()
	return err
}

func (g *gatewayCommand) read() (*config.Config, error) {
	conf, err := assemble.Load(g.file)
	if err != nil {
		return nil, err
	}
	if len(conf.BehindGateway()) == 0 {
		return nil, tga.Errorf(tga.ValidationError, "%s has no [[server]] of type %s or %s: there is nothing to put behind the gateway", g.file, config.MCPCommand, config.MCPURL)
	}
	return conf, nil
}

// open reads the configuration and finds the log.
func (g *gatewayCommand) open(ctx context.Context, cmd *cobra.Command) (log *client.Client, stop func(), err error) {
	if err := g.load(); err != nil {
		return nil, nil, err
	}
	g.logs, g.alone = (*config.Config).ForGatewayLog, g.conf.Gateway.Observes() // its rules approve everything
	if log, stop, err = g.log(ctx, cmd, g.logger()); err != nil {
		return nil, nil, err
	}
	if err := g.mustOwnLog(); err != nil {
		stop()
		return nil, nil, err
	}
	return log, stop, nil
}

func (g *gatewayCommand) logger() *slog.Logger { return g.Lines(g.level, false) }

func (g *gatewayCommand) run(ctx context.Context, cmd *cobra.Command) (err error) {
	caught := catchHangups()
	defer OutliveReaders()()
	log, stop, err := g.open(ctx, cmd)
	if err != nil {
		return err
	}
	defer stop()
	if g.conf.Gateway.Observes() {
		g.logger().Warn("observe mode: calls pass and are recorded; nothing is refused, and nothing is protected")
	}
	if err := g.fits(g.conf); err != nil {
		return err
	}
	g.client, g.metrics = log, newGatewayMetrics()
	g.reloaded = g.metrics.took
	var flush func(context.Context)
	g.tracer, flush = assemble.Telemetry(ctx, nil, func() prometheus.Gatherer { return g.metrics.registry }, func(text string) { g.logger().Warn("telemetry", "warning", text) })
	defer flush(context.WithoutCancel(ctx))
	if at := g.conf.Gateway.Metrics; at != "" {
		end, failed := g.metrics.listen(g.conf.Address(at))
		if failed != nil {
			return failed
		}
		defer func() { err = errors.Join(err, end()) }()
	}
	g.now.Store(g.conf)
	p, err := g.plan(ctx, g.conf)
	if err != nil {
		return err
	}
	g.shims = p.shims
	defer func() {
		for _, s := range g.shims {
			err = errors.Join(err, s.shim.Close())
		}
		g.leaving.Wait()
	}()
	g.door = &gateway.Door{Who: p.who, Passes: p.passes, Gates: map[string]*gateway.Gate{}, Watch: g.metrics.watch(""), Logger: g.logger()}
	if g.door.TLS, err = g.tls(); err != nil {
		return err
	}
	for name, of := range p.gates {
		if g.door.Gates[name], err = gateway.NewGate(of.behind, of.o); err != nil {
			return err
		}
	}
	gate := g.door.Gates[g.as]
	leave, end := context.WithCancel(ctx)
	defer end()
	defer g.heed(caught, g.logger(), func() ([]string, error) { return g.reload(leave) })()
	if g.listen != "" {
		return g.door.Listen(ctx, g.listen)
	}
	return gate.Stdio(ctx, g.In, g.Out)
}

// fits refuses a configuration whose identities and servers do not agree with the flags.
func (g *gatewayCommand) fits(conf *config.Config) error {
	people := conf.Gateway.Identities
	if g.listen == "" && (g.as == "") != (len(people) == 0) || g.listen != "" && g.as != "" {
		return Usagef("--identity says who the client on stdin is, where the configuration has identities")
	}
	if g.as != "" && !slices.ContainsFunc(people, func(p config.Identity) bool { return p.Name == g.as }) {
		return Usagef("--identity %q: the configuration has no such identity", g.as)
	}
	if g.listen == "" {
		for _, s := range conf.BehindGateway() {
			if s.ForwardAuth != "" {
				return tga.Errorf(tga.ValidationError, "server %q has forward_auth: a client on stdin sends no credentials along. Serve it over HTTP, with --listen", s.ID)
			}
		}
	}
	return tlsFits(conf, g.listen)
}

// tlsFits refuses TLS without an identity: anybody who reaches the port could call tools.
func tlsFits(conf *config.Config, listen string) error {
	if conf.Gateway.TLS != (config.GatewayTLS{}) && listen != "" && len(conf.Gateway.Identities) == 0 {
		return tga.Errorf(tga.ValidationError, "[gateway.tls] without a [[gateway.identity]]: whoever reaches the port could call tools")
	}
	return nil
}

// tls returns the TLS configuration for clients; nil if TLS is not used.
func (g *gatewayCommand) tls() (*tls.Config, error) {
	t := &g.conf.Gateway.TLS
	if *t == (config.GatewayTLS{}) || g.listen == "" {
		return nil, nil
	}
	return identity.TLS(identity.Files{Cert: g.conf.Path(t.CertFile), Key: g.conf.Path(t.KeyFile), ClientCA: g.conf.Path(t.ClientCAFile)}, g.logger())
}

// who returns a function that finds the identity of a client by its Authorization or certificate.
func who(conf *config.Config) (func(string, *x509.Certificate) string, error) {
	if len(conf.Gateway.Identities) == 0 {
		return func(string, *x509.Certificate) string { return "" }, nil
	}
	var tokens *identity.Tokens
	var err error
	if j := conf.Gateway.JWT; j.JWKSFile != "" {
		if tokens, err = identity.OpenTokens(conf.Path(j.JWKSFile), j.Issuer, j.Audience); err != nil {
			return nil, err
		}
	}
	var all []identity.Known
	for _, p := range conf.Gateway.Identities {
		all = append(all, identity.Known{Name: p.Name, KeySHA256: p.KeySHA256, KeyFile: conf.Path(p.KeyFile), Subject: p.Subject, Certificate: p.Certificate})
	}
	book, err := identity.New(all, tokens)
	if err != nil {
		return nil, err
	}
	return book.Of, nil
}

// options returns the options of the shim for one server and one namespace.
func (g *gatewayCommand) options(ctx context.Context, conf *config.Config, log *client.Client, s *config.Server, namespace string) (o mcpfront.Options, err error) {
	headers, err := secretfile.Headers(conf.Path(s.HeadersFile))
	if err != nil {
		return o, tga.Errorf(tga.ValidationError, "server %q: headers_file: %w", s.ID, err)
	}
	state, err := g.remembers()
	if err != nil {
		return o, err
	}
	o = mcpfront.Options{
		Server: s.ID, Command: s.Command, Dir: conf.Path(s.Dir), URL: s.URL, Headers: headers, ForwardAuth: s.Credentials().Header, Namespace: namespace, KeySpace: namespace, State: state,
		CallIDs: s.CallIDs, TrustHints: s.Trusted, StartTimeout: s.StartTimeout.D, Stderr: os.Stderr, Logger: g.logger(),
		Log: log, Look: log, Find: g.find, Accept: g.acceptVerb(conf, s, namespace), Tracer: g.tracer,
		Tools: func(name string) toolcall.Tool {
			now := g.now.Load()
			t := toolOf(now, s.ID, name)
			t.Block = drift(now, s.ID) != "report"
			return t
		},
	}
	if o.Env, err = assemble.Environment(conf, s); err != nil {
		return o, err
	}
	if s.Workspace != "" && g.looks[s.ID] == nil {
		if g.looks[s.ID], err = workspace.Open(ctx, assemble.Workspace(conf, s)); err != nil {
			return o, err
		}
	}
	o.Workspace = g.looks[s.ID]
	return o, nil
}

// remembers returns the directory for the gateway's own state.
func (g *gatewayCommand) remembers() (dir string, err error) {
	if g.state != "" {
		return g.state, nil
	}
	if dir = g.data; dir == "" {
		if dir, err = stateDir("--state"); err != nil {
			return "", err
		}
	}
	return filepath.Join(dir, "mcp"), nil
}

// acceptVerb returns the command line that pins the current definitions of a server's tools.
func (g *gatewayCommand) acceptVerb(conf *config.Config, s *config.Server, namespace string) string {
	words := []string{"tgad gateway accept", ShellWord(s.ID), "--config", ShellWord(Absolute(g.file)), g.find}
	for _, p := range conf.Gateway.Identities {
		if p.Space() == namespace {
			words = append(words, "--identity", ShellWord(p.Name))
			break
		}
	}
	if s.ForwardAuth != "" {
		words = append(words, "--headers-file FILE")
	}
	return strings.Join(words, " ")
}

func (g *gatewayCommand) accept() *cobra.Command {
	c := &cobra.Command{
		Use:   "accept --config FILE SERVER",
		Short: "Pin the definitions of a server's tools as they are now",
		Long: `accept starts a server of FILE, pins the definitions of its tools as they are now, and ends it.
A gateway refuses the calls of a tool whose definition is not the pinned one, unless the
[[server]] says drift = "report". Definitions are pinned for each namespace: say whose with
--identity. A server with forward_auth may want an Authorization: give it in --headers-file.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			log, stop, err := g.open(cmd.Context(), cmd)
			if err != nil {
				return err
			}
			defer stop()
			var of *config.Identity
			for i, p := range g.conf.Gateway.Identities {
				if p.Name == g.as {
					of = &g.conf.Gateway.Identities[i]
				}
			}
			if of == nil {
				if g.as != "" || len(g.conf.Gateway.Identities) > 0 {
					return Usagef("--identity %q: the configuration has no such identity", g.as)
				}
				of = &config.Identity{}
			}
			for _, server := range g.conf.BehindGateway() {
				if server.ID == args[0] {
					return g.pin(cmd.Context(), log, server, of)
				}
			}
			return tga.Errorf(tga.NotFound, "%s has no server %q behind the gateway", g.file, args[0])
		},
	}
	c.Flags().StringVar(&g.headers, "headers-file", "", "further headers for the server")
	return c
}

func (g *gatewayCommand) pin(ctx context.Context, log *client.Client, server *config.Server, of *config.Identity) error {
	g.now.Store(g.conf)
	o, err := g.options(ctx, g.conf, log, server, of.Space())
	if err != nil {
		return err
	}
	more, err := secretfile.Headers(g.headers)
	if err != nil {
		return tga.Errorf(tga.ValidationError, "--headers-file: %w", err)
	}
	if more == nil {
		more = map[string]string{}
	}
	for name, value := range o.Headers {
		if more[name] == "" {
			more[name] = value
		}
	}
	o.ForwardAuth, o.Headers = "", more // there is no client whose credentials could be forwarded
	s, err := mcpfront.New(o)
	if err != nil {
		return err
	}
	tools, err := s.Inspect(ctx, true)
	if err == nil {
		err = g.tabulate(server.ID, tools, g.conf)
	}
	return errors.Join(err, s.Close())
}

//go:build unix

package cli

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/internal/assemble"
	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/internal/daemon/embed"
	"github.com/tgad/tgad/internal/mcpfront"
	"github.com/tgad/tgad/internal/mcpfront/say"
	"github.com/tgad/tgad/internal/mcpfront/setup"
	"github.com/tgad/tgad/internal/mcpfront/toolcall"
	"github.com/tgad/tgad/internal/secretfile"
	"github.com/tgad/tgad/internal/workspace"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
)

// mcp is the verb mcp: its flags, and what is made from them.
type mcp struct {
	*Streams
	socket *string

	server, file, data, state, scope string
	url, headers, listen             string
	callIDs, keys, keyArgs, free     []string
	block, trust, forward, settle    bool
	tasks                            string
	level                            slog.Level

	workspace workspace.Options

	now  atomic.Pointer[config.Config] // the configuration that holds
	find string                        // flags that lead other verbs to the log

	logs  func(*config.Config) *config.Config // makes the configuration of an own log; nil leaves it
	alone bool                                // an own log is shared with no other process
	own   *embed.Daemon                       // the own log; nil where it is a daemon's, or has no file

	reloaded func(ok bool) // is told of each reload; nil is nobody
}

// MCP makes the verb mcp. socket is the flag of every verb.
func MCP(s *Streams, socket *string) *cobra.Command {
	m := &mcp{Streams: s, socket: socket, level: slog.LevelWarn}
	c := &cobra.Command{
		Use:   "mcp [flags] -- COMMAND [ARGS]",
		Short: "Run an MCP server behind tgad, for an MCP client",
		Long: `mcp runs the MCP tool server COMMAND and speaks its protocol on stdin and stdout: put
"tgad mcp --" before the command in a client's configuration, and nothing else changes.
What is not a tool call passes byte for byte. A tool call is made durable before it is
sent and recorded before it is answered; the same call again gets the recorded answer.

With --data, or where no daemon is found, the log is kept by the shim itself; shims of
the same store share it. Without --config such a log approves every call, as the client
would without tgad.`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error { return m.run(cmd.Context(), cmd, args) },
	}
	f := c.PersistentFlags()
	f.StringVar(&m.server, "server-id", "", "id of the tool server in the log (default: from the command)")
	f.StringVar(&m.file, "config", "", "configuration `file` (TOML); a daemon has its own, and only what it says of tgad mcp counts")
	f.StringVar(&m.data, "data", os.Getenv("TGAD_DATA"), "keep the log in this directory (or $TGAD_DATA)")
	f.StringVar(&m.state, "state", "", "directory for what the shim itself remembers")
	f.StringVar(&m.url, "url", "", "the tool server is at this `URL` (streamable HTTP)")
	f.StringVar(&m.headers, "headers-file", "", "headers for --url, a \"Name: value\" a line")
	c.Flags().StringVar(&m.scope, "scope", "", "keeps calls apart that are identical but for it")
	c.Flags().StringVar(&m.listen, "listen", "", "serve streamable HTTP on `ADDR` or unix:PATH in place of stdin and stdout")
	c.Flags().BoolVar(&m.forward, "forward-auth", false, "send each client's Authorization header to --url, and keep clients with different ones apart (with --listen)")
	c.Flags().StringArrayVar(&m.callIDs, "call-id", nil, "member of _meta in which the client names one call, the same when it repeats it (repeatable; default: none)")
	c.Flags().StringArrayVar(&m.keys, "key", nil, "`TOOL=/pointer`: where the key stands in a tool's arguments (repeatable)")
	c.Flags().StringArrayVar(&m.keyArgs, "key-argument", nil, "`TOOL=/pointer`: argument that the key is copied to (repeatable)")
	c.Flags().StringArrayVar(&m.free, "ungoverned", nil, "`TOOL` whose calls pass untraced (repeatable)")
	c.Flags().BoolVar(&m.block, "block-changed", false, "refuse calls of a tool whose definition is not the pinned one")
	f.BoolVar(&m.trust, "trust-hints", false, "believe the tool server's readOnlyHint and idempotentHint about tools of which the configuration says nothing")
	c.Flags().BoolVar(&m.settle, "settle-tool", false, "offer a tool tgad_settle by which a model may settle a call in doubt: that it ran, or that nobody can know")
	c.Flags().StringVar(&m.tasks, "tasks", "auto", "make durable tasks of calls for clients that understand them: on, off, or auto, where the tool server has none")
	f.StringVar(&m.workspace.Dir, "workspace", "", "take snapshots of this `directory` before and after each write call: see tgad workspace")
	f.StringVar(&m.workspace.Aside, "workspace-snapshots", "", "`directory` for the snapshots (default: the workspace's path and .tgad)")
	f.StringArrayVar(&m.workspace.Exclude, "workspace-exclude", nil, "`path` in the workspace that is left alone (repeatable)")
	f.IntVar(&m.workspace.Keep, "workspace-keep", 0, "how many calls' snapshots are kept (default 100)")
	f.TextVar(&m.level, "log-level", slog.LevelWarn, "debug, info, warn or error, on stderr")
	c.AddCommand(m.inspect(), m.config(), m.install(), m.uninstall(), m.serve())
	return c
}

// options returns the options of the shim, without its log.
func (m *mcp) options(args []string) (mcpfront.Options, error) {
	o := mcpfront.Options{
		Server: m.server, Command: args, URL: m.url, Scope: m.scope, State: m.state, CallIDs: m.callIDs,
		Stderr: os.Stderr, Logger: m.Lines(m.level, false),
	}
	if (len(args) == 0) == (m.url == "") {
		return o, Usagef("give the tool server's command after --, or --url")
	}
	if m.forward && (m.url == "" || m.listen == "") {
		return o, Usagef("--forward-auth wants --url and --listen: there is no Authorization header on stdin")
	}
	if m.forward {
		o.ForwardAuth = "Authorization"
	}
	if o.Server == "" {
		if o.Server = m.derivedID(args); o.Server == "" {
			return o, Usagef("no id can be made of --url %q: give --server-id", m.url)
		}
	}
	var err error
	if o.Tasks, err = mcpfront.ParseTaskMode(m.tasks); err != nil {
		return o, Usagef("--%v", err)
	}
	if o.Headers, err = secretfile.Headers(m.headers); err != nil {
		return o, tga.Errorf(tga.ValidationError, "--headers-file: %w", err)
	}
	if o.State == "" {
		dir := m.data
		if dir == "" {
			if dir, err = stateDir("--state"); err != nil {
				return o, err
			}
		}
		o.State = filepath.Join(dir, "mcp")
	}
	conf := config.Default()
	if m.file != "" {
		if conf, err = assemble.Load(m.file); err != nil {
			return o, err
		}
	}
	m.now.Store(conf)
	block := m.block
	for i := range conf.Servers {
		if s := &conf.Servers[i]; s.ID == o.Server {
			m.trust = m.trust || s.Trusted
			if o.CallIDs == nil && s.CallIDs != nil {
				o.CallIDs = s.CallIDs
			}
			if m.workspace.Dir == "" && s.Workspace != "" {
				m.workspace = assemble.Workspace(conf, s)
			}
		}
	}
	o.TrustHints, o.SettleTool = m.trust, m.settle
	tools, err := m.tools()
	o.Tools = func(name string) toolcall.Tool {
		t, ok := tools[name]
		if !ok {
			t = toolOf(m.now.Load(), o.Server, name)
		}
		t.Block = block || drift(m.now.Load(), o.Server) == "block"
		return t
	}
	return o, err
}

// toolOf returns what a configuration says about how a shim treats a tool's calls.
func toolOf(conf *config.Config, server, name string) toolcall.Tool {
	row := conf.ToolOf(server, name)
	if row == nil {
		return toolcall.Tool{}
	}
	return toolcall.Tool{
		Ungoverned: row.Log == "none", KeyPointer: row.Key.From, KeyArgument: row.Key.Argument, KeyMeta: row.Key.Meta,
	}
}

// tools reads the flags about single tools.
func (m *mcp) tools() (map[string]toolcall.Tool, error) {
	all := map[string]toolcall.Tool{}
	for _, name := range m.free {
		t := all[name]
		t.Ungoverned = true
		all[name] = t
	}
	for _, list := range []struct {
		flag  string
		words []string
		set   func(*toolcall.Tool, string)
	}{
		{"--key", m.keys, func(t *toolcall.Tool, v string) { t.KeyPointer = v }},
		{"--key-argument", m.keyArgs, func(t *toolcall.Tool, v string) { t.KeyArgument = v }},
	} {
		for _, word := range list.words {
			name, value, ok := strings.Cut(word, "=")
			if !ok || name == "" || value == "" || value[0] != '/' {
				return nil, Usagef("%s %q: want TOOL=/pointer", list.flag, word)
			}
			t := all[name]
			list.set(&t, value)
			all[name] = t
		}
	}
	return all, nil
}

// log finds the log: the one that --data names, or else a daemon's, or else the shim's own
// in the default place.
func (m *mcp) log(ctx context.Context, cmd *cobra.Command, log *slog.Logger) (c *client.Client, stop func(), err error) {
	socket, data := *m.socket, m.data
	named := cmd.Flags().Changed("socket") || os.Getenv("TGAD_SOCKET") != ""
	if named && data != "" && cmd.Flags().Changed("data") {
		return nil, nil, Usagef("give --socket or --data, not both")
	}
	if data == "" && !named {
		if _, err := os.Stat(socket); errors.Is(err, fs.ErrNotExist) {
			if data, err = stateDir("--data"); err != nil {
				return nil, nil, err
			}
			data = filepath.Join(data, "store")
		}
	}
	stop = func() {}
	o := client.Options{Name: "tgad-mcp", MaxIdle: 64}
	if data != "" && !(named && !cmd.Flags().Changed("data")) {
		var conf *config.Config
		if m.file != "" {
			if conf, err = assemble.Load(m.file); err != nil {
				return nil, nil, err
			}
			conf = m.ofLog(conf)
		}
		start := embed.Start
		if m.alone {
			start = embed.Alone
		}
		e, err := start(ctx, data, conf, log)
		if err != nil {
			return nil, nil, err
		}
		if c, stop = e.Client(o), e.Close; m.file != "" {
			m.own = e
		}
		if data, err = filepath.Abs(data); err != nil {
			return nil, nil, err
		}
		m.find = "--data " + ShellWord(data)
	} else {
		c = client.New(socket, o)
		m.find = "--socket " + ShellWord(socket)
	}
	end := stop // not the named result, which is about to be this very function
	return c, func() { endClient(c, log); end() }, nil
}

// ofLog returns the configuration for the process's own log.
func (m *mcp) ofLog(conf *config.Config) *config.Config {
	own := *conf
	own.TrustHints = conf.TrustHints || m.trust
	if m.logs != nil {
		return m.logs(&own)
	}
	return &own
}

// endClient closes a client. An error is only logged: the client's work is done.
func endClient(c *client.Client, log *slog.Logger) {
	if err := c.Close(); err != nil {
		log.Warn("a connection to the daemon would not close", "error", err)
	}
}

func (m *mcp) run(ctx context.Context, cmd *cobra.Command, args []string) error {
	o, err := m.options(args)
	if err != nil {
		return err
	}
	caught := catchHangups()
	defer OutliveReaders()()
	c, stop, err := m.log(ctx, cmd, o.Logger)
	if err != nil {
		return err
	}
	defer stop()
	defer m.heed(caught, o.Logger, func() ([]string, error) { return m.reload(o.Server) })()
	o.Log, o.Look, o.Find, o.Accept = c, c, m.find, m.acceptVerb(o.Server, args)
	var flush func(context.Context)
	o.Tracer, flush = assemble.Telemetry(ctx, nil, nil, func(text string) { o.Logger.Warn("telemetry", "warning", text) })
	defer flush(context.WithoutCancel(ctx))
	if m.workspace.Dir != "" {
		if o.Workspace, err = workspace.Open(ctx, m.workspace); err != nil {
			return err
		}
	}
	s, err := mcpfront.New(o)
	if err != nil {
		return err
	}
	if m.listen != "" {
		err = s.Listen(ctx, m.listen)
	} else {
		err = s.Stdio(ctx, m.In, m.Out)
	}
	return errors.Join(err, s.Close())
}

// acceptVerb returns the command line that pins the current definitions.
func (m *mcp) acceptVerb(server string, args []string) string {
	words := []string{"tgad mcp inspect --accept --server-id", ShellWord(server), m.find}
	for _, f := range []struct{ name, value string }{{"--config", Absolute(m.file)}, {"--url", m.url}, {"--headers-file", Absolute(m.headers)}} {
		if f.value != "" {
			words = append(words, f.name, ShellWord(f.value))
		}
	}
	if len(args) > 0 {
		words = append(words, "--")
	}
	for _, w := range args {
		words = append(words, ShellWord(w))
	}
	return strings.Join(words, " ")
}

// derivedID makes an id for a tool server from its URL or command; "" if none can be made.
func (m *mcp) derivedID(args []string) string {
	if m.url != "" {
		return setup.ServerIDOfURL(m.url)
	}
	return setup.ServerID(args)
}

func (m *mcp) config() *cobra.Command {
	return &cobra.Command{
		Use:   "config [flags] -- COMMAND [ARGS]",
		Short: "Print the lines to change in an MCP client's configuration",
		Args:  cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if (len(args) == 0) == (m.url == "") {
				return Usagef("give the tool server's command after --, or --url")
			}
			var flags []string
			if m.server != "" {
				flags = []string{"--server-id", m.server}
			}
			flags = append(append(flags, m.written(cmd)...), m.writtenOfOne()...)
			server := m.server
			if server == "" {
				server = m.derivedID(args)
			}
			if server == "" {
				return Usagef("no id can be made of --url %q: give --server-id", m.url)
			}
			all, err := setup.Snippets(server, args, m.url, "tgad", flags)
			if err != nil {
				return err
			}
			for _, s := range all {
				if m.JSON {
					if err := m.Line(s); err != nil {
						return err
					}
					continue
				}
				m.Printf("%s (%s)\n\nbefore:\n%s\nafter:\n%s\n", s.Client, s.File, s.Before, s.After)
			}
			return nil
		},
	}
}

func (m *mcp) serve() *cobra.Command {
	return &cobra.Command{
		Use:   "serve",
		Short: "Offer the commands list, show, in_doubt and verify as MCP tools",
		Long: `serve speaks MCP on stdin and stdout and offers four tools that look at the log and change
nothing: list, show, in_doubt and verify.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log := m.Lines(m.level, false)
			c, stop, err := m.log(cmd.Context(), cmd, log)
			if err != nil {
				return err
			}
			defer stop()
			return say.Serve(cmd.Context(), c, m.In, m.Out)
		},
	}
}

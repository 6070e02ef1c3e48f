package mcpfront

import (
	"cmp"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/tgad/tgad/internal/access"
	"github.com/tgad/tgad/internal/clip"
	"github.com/tgad/tgad/internal/mcpfront/asklog"
	"github.com/tgad/tgad/internal/mcpfront/attempt"
	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpfront/owntask"
	"github.com/tgad/tgad/internal/mcpfront/owntool"
	"github.com/tgad/tgad/internal/mcpfront/subject"
	"github.com/tgad/tgad/internal/mcpfront/toolcall"
	"github.com/tgad/tgad/internal/mcpfront/toolset"
	"github.com/tgad/tgad/internal/workspace"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
)

// Options describe a shim. Server, Log and one of Command and URL are required.
type Options struct {
	Server  string   // tool_server of the calls
	Command []string // program and arguments of a tool server on stdin and stdout
	Env     []string // added to the environment of Command
	Dir     string   // its working directory; "" = this process's
	URL     string   // a tool server over streamable HTTP
	Headers map[string]string
	// ForwardAuth names a header of clients over HTTP whose value is sent to URL, as Authorization, and
	// nowhere else. Clients with different values are kept apart. The value is never logged or stored.
	// "" forwards nothing.
	ForwardAuth string

	Log       asklog.Log
	Namespace string
	// KeySpace is put before every key that a client names, with a colon, so that equal keys of two
	// clients differ for the tool server too. "" leaves keys as they are.
	KeySpace string
	// State is a directory in which the shims of this machine note which of them run, and which
	// permits are in use. Required.
	State string
	// Scope keeps apart calls that are otherwise identical. "" keeps none apart.
	Scope string
	// Tools says how a tool's calls go through; nil governs all alike.
	Tools func(tool string) toolcall.Tool
	// CallIDs are members of `_meta` with the client's id of a call. The operator attests that the
	// client repeats the id when it repeats the call. Empty means that no member is used.
	CallIDs []string

	// Workspace takes snapshots of a directory before and after each send of a write call; nil
	// takes none.
	Workspace *workspace.Keeper
	// Look is the client of the daemon that lists calls in doubt for an MCP client that cannot ask
	// its person; nil means that the list is not offered.
	Look *client.Client
	// SettleTool offers a tool by which a model may settle a call in doubt; [runtime.ViaModel] says
	// with which outcomes. It needs Look, and a peer with the right to settle.
	SettleTool bool
	// TrustHints passes the tool server's hints about its tools (readOnlyHint, idempotentHint) on
	// to the log. The log decides whether they count.
	TrustHints bool

	Tasks         TaskMode      // whether calls become tasks of the shim's own
	MaxFrameBytes int64         // longest message; zero means [frames.DefaultMaxFrameBytes]
	MaxKeepBytes  int64         // longest answer that is recorded whole; zero means [DefaultMaxKeepBytes]
	MaxRequests   int           // requests under way at once; zero means 4096
	StartTimeout  time.Duration // of the tool server; zero means 30s
	CancelGrace   time.Duration // for an answer after a cancellation; zero means 2s
	EndGrace      time.Duration // for calls under way once the client has closed its end; zero means 30s
	LogTimeout    time.Duration // how long a call waits for a log that is away; zero means 30s

	// Find are the flags, as typed, by which the verbs of the command find the log: "--data
	// /home/ann/log". The shim puts them into the commands that it tells its clients to run.
	Find string
	// Accept is the command, as typed, that pins the current definitions of the tool server's
	// tools. It contains the flag --accept.
	Accept string

	// Observe puts the shim into observe mode: calls and answers pass unchanged, and the log only records
	// them. Observe is called with what would have become of each call. nil governs calls.
	Observe func(Would)

	// Tracer makes spans of calls and sends; nil makes none, and the span contexts of clients pass
	// unchanged.
	Tracer runtime.Tracer

	Stderr *os.File     // stderr of the tool server; nil means none
	Logger *slog.Logger // nil discards all records
}

// DefaultMaxKeepBytes is the longest answer that is recorded whole. Encoded, it still fits the
// default body limit of a daemon.
const DefaultMaxKeepBytes = 11 << 20

const (
	// endGrace is how long the shim waits for calls under way when the client has closed its end. An
	// answer that comes in that time is recorded; a call that has none by then is in doubt. A client
	// that wants the shim to end sooner sends SIGTERM, as the protocol says.
	endGrace = 30 * time.Second
	// quitWait is how long the shim waits for the end of the tool server. It takes longer only if a
	// message is being written to a client that has stopped reading, which could last for ever.
	quitWait = 10 * time.Second
)

// Shim is one shim: a log, a tool server, and the clients that talk to it.
type Shim struct {
	*attempt.Desk
	opts  Options
	users *subject.Secret // derives subjects from credentials; nil if none are forwarded
	owns  *owntool.Tools  // the shim's own tools that clients are offered; nil is none
	tasks *owntask.Set

	mu       sync.Mutex
	seats    int // number of conversations
	pins     *toolset.Pins
	mirrors  toolset.Mirrors
	patience time.Duration // [approvalPatience], or less in a test
	quit     time.Duration // [quitWait], or less in a test
}

// New makes a shim. It starts nothing.
func New(o Options) (*Shim, error) {
	if !tga.CleanName(o.Server) {
		return nil, tga.Errorf(tga.ValidationError, "server id %q: want %s", o.Server, tga.CleanNameForm)
	}
	if (len(o.Command) == 0) == (o.URL == "") {
		return nil, tga.Errorf(tga.ValidationError, "tool server %q: want exactly one of a command and a URL", o.Server)
	}
	if o.Log == nil || o.State == "" {
		return nil, tga.Errorf(tga.ValidationError, "tool server %q: a log and a state directory are required", o.Server)
	}
	if strings.ContainsRune(o.Scope, 0) {
		return nil, tga.Errorf(tga.ValidationError, "the scope holds a zero byte")
	}
	if o.ForwardAuth != "" {
		if err := subject.Forwardable(o.URL, o.Headers); err != nil {
			return nil, err
		}
		// A client asks about a task for days, and by then has another token. The list of calls in
		// doubt shows the arguments of all clients.
		o.Tasks, o.Look = TasksOff, nil
	}
	if o.Observe != nil {
		// In observe mode the client sees the tool server unchanged, and its calls are not governed.
		o.Tasks, o.Look, o.SettleTool, o.Workspace = TasksOff, nil, false, nil
	}
	if o.Tools == nil {
		o.Tools = func(string) toolcall.Tool { return toolcall.Tool{} }
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.MaxFrameBytes = cmp.Or(o.MaxFrameBytes, frames.DefaultMaxFrameBytes)
	o.MaxKeepBytes = cmp.Or(o.MaxKeepBytes, DefaultMaxKeepBytes)
	o.StartTimeout = cmp.Or(o.StartTimeout, 30*time.Second)
	o.CancelGrace = cmp.Or(o.CancelGrace, 2*time.Second)
	o.EndGrace = cmp.Or(o.EndGrace, endGrace)
	o.LogTimeout = cmp.Or(o.LogTimeout, 30*time.Second)
	o.MaxRequests = cmp.Or(o.MaxRequests, 4096)
	if err := access.MkdirAll(o.State); err != nil {
		return nil, tga.Errorf(tga.StoreUnavailable, "make the shim's directory: %w", err)
	}
	o.Find = strings.TrimSpace(o.Find)
	s := &Shim{quit: quitWait, patience: approvalPatience, opts: o}
	var err error
	if o.ForwardAuth != "" {
		if s.users, err = subject.ReadSecret(o.State); err != nil {
			return nil, err
		}
	}
	s.Desk, err = attempt.NewDesk(attempt.Options{
		Server: o.Server, Namespace: o.Namespace, State: o.State, Find: o.Find, Log: o.Log, Logger: o.Logger, Workspace: o.Workspace, Tracer: o.Tracer,
		Looks: o.Look != nil, Settles: o.Look != nil && o.SettleTool, MaxKeepBytes: o.MaxKeepBytes, CancelGrace: o.CancelGrace, LogTimeout: o.LogTimeout,
	})
	if err != nil {
		return nil, err
	}
	s.tasks = owntask.NewSet(s.Desk, o.LogTimeout)
	s.owns = owntool.New(o.Look, o.Server, o.Namespace, o.Find, o.SettleTool)
	s.pins = toolset.NewPins(s.Life, s.Shelf, &s.mirrors, s.Log)
	return s, nil
}

// fileName makes a file name from a server id, which may contain a slash.
func fileName(id string) string {
	sum := tga.Sum([]byte(id))
	return strings.NewReplacer("/", "_", ".", "_").Replace(clip.Bytes(id, 32)) + "-" + sum.String()[:8]
}

// Server is the id of the tool server.
func (s *Shim) Server() string { return s.opts.Server }

// Credentials says from which header the tool server gets its clients' credentials.
func (s *Shim) Credentials() subject.Source {
	return subject.Source{Header: s.opts.ForwardAuth, URL: s.opts.URL}
}

// Owns reports whether a tool is the shim's own.
func (s *Shim) Owns(tool string) bool { return s.owns.Of(tool) != nil }

// Observes reports a [Would] to the observer, if there is one. It reports whether the shim is in observe mode.
func (s *Shim) Observes(w Would) bool {
	if s.opts.Observe != nil {
		s.opts.Observe(w)
	}
	return s.opts.Observe != nil
}

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
	Command []string // a tool server on stdin and stdout
	Env     []string // added to its environment
	Dir     string   // its working directory; "" = this process's
	URL     string   // a tool server over streamable HTTP
	Headers map[string]string
	// ForwardAuth is a header of clients over HTTP that is sent to URL, as Authorization, and nowhere
	// else. Clients with different ones are kept apart. It is never logged or stored. "" is none.
	ForwardAuth string

	Log       asklog.Log
	Namespace string
	// KeySpace goes before every key that a client names, and a colon, so that two clients' keys
	// are two for a tool server too. "" leaves keys as they are.
	KeySpace string
	// State is a directory for what the shims of this machine must know of each other:
	// which of them runs, and the permits that are out. Required.
	State string
	// Scope keeps calls apart that are identical but for it. "" keeps none apart.
	Scope string
	// Tools says how a tool's calls go through; nil governs all alike.
	Tools func(tool string) toolcall.Tool
	// CallIDs are members of `_meta` in which the client names one call, the same when it
	// repeats it: the operator says so. None are taken for that unasked.
	CallIDs []string

	// Workspace is a directory of which snapshots are taken before and after each send of a
	// write call; nil is none.
	Workspace *workspace.Keeper
	// Look is where calls in doubt are looked up for a client that cannot ask its person; nil
	// means that it is not offered that.
	Look *client.Client
	// SettleTool offers a tool by which a model may settle a call in doubt, as [runtime.ViaModel]
	// says what it may. It needs Look, and a peer with the right to settle.
	SettleTool bool
	// TrustHints passes on to the log what the tool server says of its tools: readOnlyHint and
	// idempotentHint. Whether they count is the log's to say.
	TrustHints bool

	Tasks         TaskMode      // whether calls become tasks of the shim's own
	MaxFrameBytes int64         // longest message; zero means [frames.DefaultMaxFrameBytes]
	MaxKeepBytes  int64         // longest answer that is recorded whole; zero means [DefaultMaxKeepBytes]
	MaxRequests   int           // requests under way at once; zero means 4096
	StartTimeout  time.Duration // of the tool server; zero means 30s
	CancelGrace   time.Duration // for an answer after a cancellation; zero means 2s
	EndGrace      time.Duration // for calls under way once the client has closed its end; zero means 30s
	LogTimeout    time.Duration // how long a call waits for a log that is away; zero means 30s

	// Find are flags that lead the verbs of the command to the log, as they are typed:
	// "--data /home/ann/log". They stand in what the shim tells its clients to run.
	Find string
	// Accept is the command that pins the definitions of the tool server's tools as they are
	// now, as it is typed: the flag --accept is in it.
	Accept string

	// Observe has the shim observe: calls and answers pass as they are, and the log only hears of them.
	// It is told, of each call, what would have become of it. nil governs calls.
	Observe func(Would)

	// Tracer makes spans of calls and sends; nil makes none, and what clients say of theirs passes as
	// it is.
	Tracer runtime.Tracer

	Stderr *os.File     // the tool server's; nil means none
	Logger *slog.Logger // nil means nothing is said
}

// DefaultMaxKeepBytes is the longest answer that is recorded whole. It fits a daemon's
// default body limit when it is encoded.
const DefaultMaxKeepBytes = 11 << 20

const (
	// endGrace is how long calls under way are waited for when the client has closed its end. An
	// answer that comes is recorded, and a call that is given up is in doubt. A client that wants the
	// end sooner sends SIGTERM, as the protocol says.
	endGrace = 30 * time.Second
	// quitWait is how long the end of the tool server is waited for. It takes longer only where
	// a message is on its way to a client that has stopped reading: that would be for ever.
	quitWait = 10 * time.Second
)

// Shim is one shim: a log, a tool server, and the clients that talk to it.
type Shim struct {
	*attempt.Desk
	opts  Options
	users *subject.Secret // nil where no credentials are forwarded
	owns  *owntool.Tools  // that clients are offered; nil is none
	tasks *owntask.Set

	mu       sync.Mutex
	seats    int // conversations
	pins     *toolset.Pins
	mirrors  toolset.Mirrors
	patience time.Duration // how long a client that hears nothing waits for people
	quit     time.Duration // how long the end of a tool server is waited for
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
		// A task is asked about for days, and by then its client has another token. The list of
		// calls in doubt shows the arguments of everybody's.
		o.Tasks, o.Look = TasksOff, nil
	}
	if o.Observe != nil {
		// The client sees its tool servers as they are, and nothing is done about its calls.
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

// fileName makes a file's name of a server id: an id may hold a slash.
func fileName(id string) string {
	sum := tga.Sum([]byte(id))
	return strings.NewReplacer("/", "_", ".", "_").Replace(clip.Bytes(id, 32)) + "-" + sum.String()[:8]
}

// Server is the id of the tool server.
func (s *Shim) Server() string { return s.opts.Server }

// Credentials says where the credentials come from that the tool server gets of its clients.
func (s *Shim) Credentials() subject.Source {
	return subject.Source{Header: s.opts.ForwardAuth, URL: s.opts.URL}
}

// Owns reports whether a tool is the shim's own.
func (s *Shim) Owns(tool string) bool { return s.owns.Of(tool) != nil }

// Observes tells who observes what would have become of a call. It reports whether anybody does.
func (s *Shim) Observes(w Would) bool {
	if s.opts.Observe != nil {
		s.opts.Observe(w)
	}
	return s.opts.Observe != nil
}

package mcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	goruntime "runtime"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/tgad/tgad/internal/onwire"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// Options describe how a tool server is reached. Exactly one of Command and URL must be set.
type Options struct {
	// Command is the program and its arguments; it speaks MCP on stdin and stdout.
	// A program without a slash is looked up in this process's PATH.
	Command []string
	// Env is added to the child's environment ("NAME=value"). The child inherits only
	// the variables in [InheritedEnv], so that a tool server does not get secrets of this
	// process.
	Env []string
	Dir string // the child's working directory; "" = this process's
	// LockFile is a path that stays locked for as long as a child or one of its
	// descendants lives. A new child is started only once the lock is free, so that a
	// child that outlived its killed parent cannot act beside its successor. "" = no
	// such guard. The file is created if needed and never removed.
	LockFile string

	// URL is the endpoint of a streamable HTTP server.
	URL string
	// Headers are sent with every request to URL.
	Headers map[string]string

	// KeyMeta returns, for a tool, the name of another member of _meta that carries the
	// idempotency key too; "" is none. Nil means none for every tool.
	KeyMeta func(tool string) string

	// OnToolsChanged is called when the tools may have changed since they were listed: the
	// server has sent notifications/tools/list_changed, or a new session has replaced one
	// that ended. It must not block: the caller is the goroutine that reads the server's
	// messages, or a call that waits for its session. If a server of revision 2026-07-28
	// offers the notification, it is subscribed to, and subscribed to again if the stream
	// breaks; a change during the break is assumed. A server of an earlier revision over
	// HTTP can notify only while it answers a request. Nil means that nobody is told.
	OnToolsChanged func()

	// MaxAnswerBytes is the longest result or error that is kept, in bytes. Of a longer one
	// only length and digest are kept. Zero means [DefaultMaxAnswerBytes].
	MaxAnswerBytes int64
	// StartTimeout bounds start and handshake together, including the wait for LockFile.
	// Zero means [DefaultStartTimeout].
	StartTimeout time.Duration
	// ProtocolVersion is offered to the server. "" = the newest that the SDK speaks, with
	// fallback. Set it for a server that fails when it is offered an unknown version.
	ProtocolVersion string
	// Logger gets the server's stderr, one record a line, and notices about messages of the
	// server that belong to no call. Nil means [slog.Default].
	Logger *slog.Logger
}

// Defaults of [Options].
const (
	DefaultMaxAnswerBytes = 64 << 20
	DefaultStartTimeout   = 30 * time.Second
)

// Server is one MCP tool server. The first call starts it, and so does the first call after it
// went away. Its methods are safe for concurrent use.
type Server struct {
	name string
	opts Options
	log  *slog.Logger

	// starting is held while a session is being made, so that there is at most one child.
	starting chan struct{}
	// life ends with Close. That also ends a start that is under way.
	life context.Context
	end  context.CancelFunc

	mu       sync.Mutex
	current  *session // nil, or dead, when the next call has to make one
	closed   bool
	failures uint64         // starts that failed because of the server, not of the caller's context
	failure  error          // error of the newest of them
	acks     uint64         // number of acknowledged subscriptions
	work     sync.WaitGroup // subscriptions
}

var _ runtime.Dispatcher = (*Server)(nil)

// New makes a [Server] without contacting the tool server. name is for logs and errors.
func New(name string, opts Options) (*Server, error) {
	if (len(opts.Command) == 0) == (opts.URL == "") {
		return nil, tga.Errorf(tga.ValidationError, "tool server %q: want exactly one of a command and a URL", name)
	}
	if !commandsRun && len(opts.Command) != 0 {
		return nil, tga.Errorf(tga.ValidationError, "tool server %q: a command as tool server does not run on %s: give its URL", name, goruntime.GOOS)
	}
	if opts.URL != "" {
		// The error does not repeat the URL, which may contain a secret.
		u, err := url.Parse(opts.URL)
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
			return nil, tga.Errorf(tga.ValidationError, "tool server %q: URL: want http:// or https:// and a host", name)
		}
	}
	opts.MaxAnswerBytes = cmp.Or(opts.MaxAnswerBytes, DefaultMaxAnswerBytes)
	opts.StartTimeout = cmp.Or(opts.StartTimeout, DefaultStartTimeout)
	if opts.MaxAnswerBytes < 0 || opts.StartTimeout < 0 {
		return nil, tga.Errorf(tga.ValidationError, "tool server %q: negative limit", name)
	}
	opts.Logger = cmp.Or(opts.Logger, slog.Default())
	s := &Server{
		name: name, opts: opts, log: opts.Logger.With("tool_server", name),
		starting: make(chan struct{}, 1),
	}
	s.life, s.end = context.WithCancel(context.Background())
	return s, nil
}

// Dispatch sends one tools/call. Its errors are those of [runtime.Dispatcher].
//
// Every failure before the call's own bytes are handed to the system is ErrNotSent, including a
// failed start or handshake. After a later failure the call is in doubt.
func (s *Server) Dispatch(ctx context.Context, call runtime.Call) (runtime.Reply, error) {
	sess, err := s.session(ctx)
	if err != nil {
		return runtime.Reply{}, fmt.Errorf("tool server %q, call %s: %w", s.name, call.ToolCallID, err)
	}
	mirrored, fresh, err := s.mirrored(ctx, sess, call)
	var a *answer
	if err == nil {
		a, err = sess.link.exchange(ctx, &jsonrpc.Request{Method: "tools/call", Params: callParams(call, s.keyMeta(call.Tool), sess.meta, runtime.SpanContextOf(ctx))}, mirrored...)
	}
	if err == nil {
		if !fresh && a.headerMismatch() {
			sess.forget()
			err = notSent("the server wants other headers than its definitions said; they are read again before the next call")
		}
	}
	if err == nil {
		var r runtime.Reply
		if r, err = a.reply(call.Attempt); err == nil {
			return r, nil
		}
	}
	return runtime.Reply{}, fmt.Errorf("tool server %q, call %s attempt %d: %w", s.name, call.ToolCallID, call.Attempt, err)
}

// session returns a live session. It makes one if there is none.
func (s *Server) session(ctx context.Context) (*session, error) {
	sess, seen, err := s.live()
	if sess != nil || err != nil {
		return sess, err
	}
	select {
	case s.starting <- struct{}{}:
	case <-ctx.Done():
		return nil, notSent("waiting for the server's start: %v", context.Cause(ctx))
	}
	defer func() { <-s.starting }()

	sess, now, err := s.live()
	if sess != nil || err != nil {
		return sess, err
	}
	if now != seen {
		// A start failed while this call waited. If each waiting call tried again in turn,
		// the last one would wait for all of them.
		s.mu.Lock()
		defer s.mu.Unlock()
		return nil, s.failure
	}
	startCtx, cancel := context.WithTimeout(ctx, s.opts.StartTimeout)
	defer cancel()
	defer context.AfterFunc(s.life, cancel)()
	sess, err = s.start(startCtx)
	follows, err := s.take(ctx, sess, err)
	if err != nil {
		return nil, err
	}
	if follows {
		s.toolsChanged() // the new session may have other tools
	}
	return sess, nil
}

// take makes sess the current session, or notes err as the reason why there is none. It
// reports whether there was a session before.
func (s *Server) take(ctx context.Context, sess *session, err error) (follows bool, _ error) {
	s.mu.Lock()
	if err != nil {
		defer s.mu.Unlock()
		if ctx.Err() == nil {
			s.failures++
			s.failure = err
		}
		return false, err
	}
	if s.closed {
		s.mu.Unlock() // before close, which waits for readers that may lock it in heard
		sess.link.close()
		return false, notSent("the server was closed")
	}
	defer s.mu.Unlock()
	follows = s.current != nil
	s.current = sess
	if sess.subscribes && s.opts.OnToolsChanged != nil {
		s.work.Go(func() { s.subscribe(sess) })
	}
	return follows, nil
}

// live returns the current session if it can still be used, and the number of failed
// starts so far.
func (s *Server) live() (*session, uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, 0, notSent("the server was closed")
	}
	if s.current != nil && s.current.link.alive() {
		return s.current, s.failures, nil
	}
	return nil, s.failures, nil
}

// start makes a session: it starts the process or describes the endpoint, and makes the handshake.
func (s *Server) start(ctx context.Context) (*session, error) {
	s.mu.Lock()
	old := s.current
	s.mu.Unlock()
	if old != nil {
		old.link.retire()
	}
	l, err := s.connect(ctx)
	if err != nil {
		return nil, notSent("start: %v", err)
	}
	sess, err := handshake(ctx, l, s.opts.ProtocolVersion)
	if err != nil {
		l.close()
		return nil, notSent("handshake: %v", err)
	}
	s.log.Debug("tool server ready", "protocol_version", sess.version)
	return sess, nil
}

func (s *Server) connect(ctx context.Context) (link, error) {
	if s.opts.URL != "" {
		return newHTTPLink(s.life, s.opts, s.log, s.heard), nil
	}
	return startChild(ctx, s.opts, s.log, s.heard)
}

// Close ends the session. A child gets EOF on stdin, then SIGTERM, then SIGKILL. Calls that are
// under way end in doubt.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	sess := s.current
	s.mu.Unlock()
	s.end()
	s.starting <- struct{}{} // waits for a start under way, which ends its own session
	defer func() { <-s.starting }()
	if sess != nil {
		sess.link.close()
	}
	s.work.Wait()
	return nil
}

// InheritedEnv are the variables that a child inherits from this process.
var InheritedEnv = []string{"HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"}

func childEnv(extra []string) []string {
	var env []string
	for _, name := range InheritedEnv {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return append(env, extra...)
}

func notSent(format string, args ...any) error {
	return onwire.NotSent(fmt.Errorf(format, args...))
}

// errGone is the error of a call whose session ended before the answer.
var errGone = errors.New("session ended before the answer")

// toolsChanged handles a possible change of the server's tools.
func (s *Server) toolsChanged() {
	s.mu.Lock()
	sess := s.current
	s.mu.Unlock()
	if sess != nil {
		sess.forget()
	}
	if s.opts.OnToolsChanged != nil {
		s.opts.OnToolsChanged()
	}
}

func (s *Server) keyMeta(tool string) string {
	if s.opts.KeyMeta == nil {
		return ""
	}
	return s.opts.KeyMeta(tool)
}

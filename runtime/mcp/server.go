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

// Options describe how a tool server is reached. Exactly one of Command and URL is
// set.
type Options struct {
	// Command is the program and its arguments; it speaks MCP on stdin and stdout.
	// A program without a slash is looked up in this process's PATH.
	Command []string
	// Env is added to the child's environment ("NAME=value"). The child inherits only
	// the variables in [InheritedEnv]: a secret of this process is not a tool server's.
	Env []string
	Dir string // the child's working directory; "" = this process's
	// LockFile is a path that is locked for as long as a child or one of its
	// descendants lives. A new child is started only once the lock is free, so that a
	// child that outlived a killed parent cannot act beside its successor. "" = no
	// such guard. The file is created where needed and never removed.
	LockFile string

	// URL is the endpoint of a streamable HTTP server.
	URL string
	// Headers go with every request to URL.
	Headers map[string]string

	// KeyMeta names, for a tool, another member of _meta that carries the idempotency
	// key too; "" is none. Nil means none for every tool.
	KeyMeta func(tool string) string

	// OnToolsChanged is called when the tools may be others than those that were listed:
	// the server has sent notifications/tools/list_changed, or a session has followed one
	// that ended. It is called from where the server's messages are read, or by a call that
	// waits for its session, and must not block. One of revision 2026-07-28 that offers the
	// notification is subscribed to, again where the stream of it breaks, and what it may
	// have said meanwhile counts as said. One of an earlier revision over HTTP is heard only
	// while it answers a request. Nil means nobody asks.
	OnToolsChanged func()

	// MaxAnswerBytes bounds what is kept of an answer's result or error; a longer one
	// is kept as length and digest. Zero means [DefaultMaxAnswerBytes].
	MaxAnswerBytes int64
	// StartTimeout bounds start and handshake together, the wait for LockFile
	// included. Zero means [DefaultStartTimeout].
	StartTimeout time.Duration
	// ProtocolVersion is offered to the server. "" = the newest that the SDK speaks,
	// with fallback; set it for a server that does not survive being asked.
	ProtocolVersion string
	// Logger gets the server's stderr, one line a record, and what the server says
	// outside of any call. Nil means [slog.Default].
	Logger *slog.Logger
}

// Defaults of [Options].
const (
	DefaultMaxAnswerBytes = 64 << 20
	DefaultStartTimeout   = 30 * time.Second
)

// Server is one MCP tool server. It is started by the first call and again by the
// first call after it went away. Methods may be called by many goroutines.
type Server struct {
	name string
	opts Options
	log  *slog.Logger

	// starting is held while a session is being made, so that there is one child.
	starting chan struct{}
	// life ends with Close, and a start under way with it.
	life context.Context
	end  context.CancelFunc

	mu       sync.Mutex
	current  *session // nil, or dead, when the next call has to make one
	closed   bool
	failures uint64         // starts that failed for a reason of the server's
	failure  error          // of the newest of them
	acks     uint64         // subscriptions that were acknowledged
	work     sync.WaitGroup // subscriptions
}

var _ runtime.Dispatcher = (*Server)(nil)

// New describes a tool server; it does not contact it. name is for logs and errors.
func New(name string, opts Options) (*Server, error) {
	if (len(opts.Command) == 0) == (opts.URL == "") {
		return nil, tga.Errorf(tga.ValidationError, "tool server %q: want exactly one of a command and a URL", name)
	}
	if !commandsRun && len(opts.Command) != 0 {
		return nil, tga.Errorf(tga.ValidationError, "tool server %q: a command as tool server does not run on %s: give its URL", name, goruntime.GOOS)
	}
	if opts.URL != "" {
		// The URL is not repeated in the error: it may carry a secret.
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

// Dispatch sends one tools/call. Errors are as [runtime.Dispatcher] says.
//
// Every failure before the call's own bytes are handed to the system is ErrNotSent,
// a failed start or handshake included. One that comes later is doubt.
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

// session returns a live session, making one where there is none.
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
		// It failed to start while this call waited. Each waiter trying again in turn
		// would make the last one wait for all of them.
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
		s.toolsChanged() // another process, or the same one with other tools
	}
	return sess, nil
}

// take makes sess the current session, or notes why there is none. It reports whether
// there was one before it.
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
		s.mu.Unlock() // first: its last messages are still heard
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

// start makes a session: process or endpoint, then handshake.
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

// Close ends the session: a child gets EOF on stdin, then SIGTERM, then SIGKILL. Calls
// under way end in doubt.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	sess := s.current
	s.mu.Unlock()
	s.end()
	s.starting <- struct{}{} // a start under way ends what it started
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

// errGone is why a call has no answer when its session ended first.
var errGone = errors.New("session ended before the answer")

// toolsChanged is told that the server's tools may be others now.
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

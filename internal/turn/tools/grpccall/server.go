package grpccall

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/tgad/tgad/internal/onwire"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/dispatch/httpcall"
	"github.com/tgad/tgad/schemas/tga"
)

// DefaultMaxAnswer is how many bytes of an answer are kept.
const DefaultMaxAnswer = 64 << 20

// Options configure a [Server]. The zero value sends plaintext and uses reflection.
type Options struct {
	// TLS encrypts; nil sends plaintext.
	TLS *tls.Config
	// Authority is the :authority of requests; "" = the target's host and port.
	Authority string
	// Metadata is sent with each call and with reflection. Names are in lower case.
	Metadata map[string]string
	// KeyMetadata returns, for a tool, the name of additional metadata that carries the
	// idempotency key; "" is none. Nil means none for every tool.
	KeyMetadata func(tool string) string

	// DescriptorSet is the path of a FileDescriptorSet (protoc --include_imports
	// --descriptor_set_out); with --include_source_info tools have descriptions. New reads it. ""
	// = server reflection, v1 or v1alpha.
	DescriptorSet string
	// Services says which services are listed as tools; nil = all but gRPC's own. It does not
	// limit calls.
	Services []string

	// Statuses says what a status code of this server's tools means, in place of the default. OK
	// is always a success.
	Statuses map[codes.Code]httpcall.Outcome
	// MaxAnswer is the most bytes of an answer's JSON that are kept; 0 = DefaultMaxAnswer. Of a
	// longer answer only size and digest are kept. An answer whose message is longer than four
	// times MaxAnswer is not read: the call is in doubt.
	MaxAnswer int
	// Dial connects; nil = TCP, or a unix socket.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Logger gets warnings of services whose descriptors are not available. Nil = [slog.Default].
	Logger *slog.Logger
}

// Server is one gRPC server as a tool server. Its methods may be called by many goroutines. It
// keeps no connection open between calls.
type Server struct {
	network, addr string
	opts          Options
	log           *slog.Logger

	loading chan struct{} // held while descriptors are requested
	mu      sync.Mutex
	known   *types // nil until they were requested
	fixed   bool   // known is from a file
}

var _ runtime.Dispatcher = (*Server)(nil)

var metadataName = regexp.MustCompile(`^[0-9a-z_.-]+$`)

// New makes a Server for target, "host:port" or "unix:/path". It does not contact the server.
// VALIDATION_ERROR if target, an option or the descriptor set is invalid.
func New(target string, o Options) (*Server, error) {
	s := &Server{network: "tcp", addr: target, opts: o, loading: make(chan struct{}, 1)}
	if path, ok := strings.CutPrefix(target, "unix:"); ok {
		s.network, s.addr = "unix", path
		if !filepath.IsAbs(path) {
			return nil, tga.Errorf(tga.ValidationError, "gRPC target %q: want unix:/path", target)
		}
	} else if host, port, err := net.SplitHostPort(target); err != nil || host == "" || port == "" {
		return nil, tga.Errorf(tga.ValidationError, "gRPC target %q: want host:port or unix:/path", target)
	}
	for name, value := range o.Metadata {
		if len(name) > 128 || !metadataName.MatchString(name) || strings.HasPrefix(name, "grpc-") || isOwn(name) || !onwire.FitsHeader(value) {
			return nil, tga.Errorf(tga.ValidationError, "metadata %q: the name is not allowed, or its value not visible ASCII", name)
		}
	}
	for code, outcome := range o.Statuses {
		if code == codes.OK || int(code) >= len(defaults) || outcome.String() == "" {
			return nil, tga.Errorf(tga.ValidationError, "gRPC status %d: outcome %d: no such pair", code, outcome)
		}
	}
	if o.MaxAnswer < 0 {
		return nil, tga.Errorf(tga.ValidationError, "answer limit %d is negative", o.MaxAnswer)
	}
	if o.MaxAnswer == 0 {
		s.opts.MaxAnswer = DefaultMaxAnswer
	}
	if s.opts.Dial == nil {
		s.opts.Dial = (&net.Dialer{}).DialContext
	}
	if s.log = o.Logger; s.log == nil {
		s.log = slog.Default()
	}
	if o.DescriptorSet != "" {
		known, err := readDescriptorSet(o.DescriptorSet)
		if err != nil {
			return nil, tga.Errorf(tga.ValidationError, "descriptor set: %w", err)
		}
		s.known, s.fixed = known, true
	}
	return s, nil
}

// Check implements [runtime.Checker]: it checks that the server has the method and that the
// arguments are a message of it. It requests missing descriptors, which has no effect on the
// server. If the server cannot be asked, the call is not refused.
func (s *Server) Check(ctx context.Context, call runtime.Call) error {
	if call.Remote && !s.described() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, describeTimeout)
	defer cancel()
	known, m, err := s.method(ctx, call.Tool)
	if err != nil {
		if errors.Is(err, tga.NotFound) || errors.Is(err, tga.ValidationError) {
			return err
		}
		return nil
	}
	if _, err := known.encode(m, call.Args); err != nil {
		return tga.Errorf(tga.ValidationError, "%w", err).In(call.TraceID)
	}
	return nil
}

// describeTimeout bounds the request of Check, which no time-out of a tool bounds.
const describeTimeout = 10 * time.Second

// described reports whether the descriptors are known.
func (s *Server) described() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known != nil
}

// Dispatch implements [runtime.Dispatcher]. Any failure before the stream of the call is begun is
// ErrNotSent: no connection, no descriptors, arguments that are not a message of the method.
func (s *Server) Dispatch(ctx context.Context, call runtime.Call) (runtime.Reply, error) {
	fail := func(code tga.Code, err error) (runtime.Reply, error) {
		return runtime.Reply{}, tga.Errorf(code, "%s on %s, attempt %d: %w", call.Tool, call.Server, call.Attempt, err).In(call.TraceID)
	}
	unsent := func(code tga.Code, err error) (runtime.Reply, error) {
		return fail(code, onwire.NotSent(err))
	}
	known, m, err := s.method(ctx, call.Tool)
	if err != nil {
		return unsent(codeOf(err), err)
	}
	if call.Key == "" {
		return unsent(tga.ValidationError, errors.New("the call has no idempotency key"))
	}
	request, err := known.encode(m, call.Args)
	if err != nil {
		return unsent(tga.ValidationError, err)
	}
	raw, sent, err := s.exchange(ctx, m, call, request)
	if !sent {
		return unsent(tga.ToolError, err)
	}
	if err == nil {
		return s.success(known, m, raw), nil
	}
	reply, err := classify(s.opts.Statuses, call.Attempt, err)
	if err != nil {
		return fail(tga.ToolError, err)
	}
	return reply, nil
}

func codeOf(err error) tga.Code {
	if c := tga.CodeOf(err); c != "" {
		return c
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return tga.ToolTimeout
	}
	return tga.ToolError
}

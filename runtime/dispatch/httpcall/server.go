package httpcall

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/tgad/tgad/internal/onwire"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// DefaultMaxAnswer is how many bytes of an answer are kept.
const DefaultMaxAnswer = 64 << 20

// Options configure a [Server]. The zero value posts to URL/tool.
type Options struct {
	// Paths are the server's tools and the path of each, joined to the URL. If it is
	// set, the server has no other tools. Nil means that a tool's name is its path.
	Paths map[string]string
	// Header goes with each request. It cannot change the headers that this package sets.
	Header http.Header
	// KeyHeader returns, for a tool, another header that carries the idempotency key too;
	// "" is none. Nil means none for every tool.
	KeyHeader func(tool string) string
	// Statuses says what a status code of this server's tools means, in place of the
	// default: 2xx success; 4xx failure, but 408 and 429 in doubt; the others in doubt.
	Statuses map[int]Outcome
	// MaxAnswer is the most bytes of an answer that are kept; 0 means
	// DefaultMaxAnswer. A longer answer is read to its end, and counted and digested.
	MaxAnswer int64
	// TLS is used for https. NextProtos is ignored: there is no HTTP/2.
	TLS *tls.Config
	// Dial connects; nil means TCP. A panic of it, or of a function of TLS, is a connection that was not made.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Ahead is how many connections at most are made before a call needs them, each for
	// one call; 0 means DefaultAhead, a negative number none. They are made while calls
	// follow each other, and closed after 2 s without a call.
	Ahead int
}

// Server is a [runtime.Dispatcher] for one HTTP tool server.
type Server struct {
	base      *url.URL
	opts      Options
	transport *http.Transport
	ahead     *ahead
}

// New returns a Server for the tools under rawURL (http or https), VALIDATION_ERROR
// if the URL or an option is wrong.
func New(rawURL string, o Options) (*Server, error) {
	base, err := url.Parse(rawURL)
	if err != nil {
		return nil, tga.Errorf(tga.ValidationError, "tool server url: %w", err)
	}
	if base.Scheme != "http" && base.Scheme != "https" || base.Host == "" || base.Fragment != "" {
		return nil, tga.Errorf(tga.ValidationError, "tool server url %q: want http(s)://host/path", base.Redacted())
	}
	if base.User != nil {
		return nil, tga.Errorf(tga.ValidationError, "tool server url %q: credentials belong in a header", base.Redacted())
	}
	for name := range o.Paths {
		if !tga.CleanName(name) {
			return nil, tga.Errorf(tga.ValidationError, "tool %.140q in paths: want %s", name, tga.CleanNameForm)
		}
	}
	for status, o := range o.Statuses {
		if status < 100 || status > 599 || o.String() == "" {
			return nil, tga.Errorf(tga.ValidationError, "status %d: outcome %d: no such pair", status, o)
		}
	}
	if o.MaxAnswer < 0 {
		return nil, tga.Errorf(tga.ValidationError, "answer limit %d is negative", o.MaxAnswer)
	}
	o.MaxAnswer = cmp.Or(o.MaxAnswer, DefaultMaxAnswer)
	if o.Dial == nil {
		o.Dial = (&net.Dialer{}).DialContext
	}
	config := &tls.Config{}
	if o.TLS != nil {
		config = o.TLS.Clone()
	}
	config.NextProtos = nil

	dial := plain(o.Dial)
	if base.Scheme == "https" {
		dial = secure(o.Dial, config)
	}
	o.Ahead = cmp.Or(o.Ahead, DefaultAhead)
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	ahead := newAhead(caught(dial), max(o.Ahead, 0))
	return &Server{base: base, opts: o, ahead: ahead, transport: &http.Transport{
		Proxy:                  nil, // a proxy may send again
		DialContext:            ahead.take,
		DialTLSContext:         ahead.take,
		DisableKeepAlives:      true,
		DisableCompression:     true, // an unpacked answer is not the bytes that came
		Protocols:              protocols,
		MaxResponseHeaderBytes: 1 << 20,
	}}, nil
}

// Close closes the connections that wait for a call. Calls under way go on; later calls
// dial their own connections.
func (s *Server) Close() error {
	s.ahead.close()
	return nil
}

// Prepare implements [runtime.Preparer]. It stores nothing. It makes sure that a connection
// exists, or is being made, while the attempt is made durable.
func (s *Server) Prepare(context.Context, runtime.Call) ([]chain.Attachment, error) {
	s.ahead.prepare()
	return nil, nil
}

// Check implements [runtime.Checker]. A tool's name goes into the URL unchanged, or is looked
// up in Paths exactly, so no other spelling leads to the same tool.
func (s *Server) Check(_ context.Context, call runtime.Call) error {
	_, err := s.path(call)
	return err
}

func (s *Server) path(call runtime.Call) (string, error) {
	if !tga.CleanName(call.Tool) {
		return "", tga.Errorf(tga.ValidationError, "tool %.140q: want %s", call.Tool, tga.CleanNameForm).In(call.TraceID)
	}
	if len(s.opts.Paths) == 0 {
		return call.Tool, nil
	}
	path, ok := s.opts.Paths[call.Tool]
	if !ok {
		return "", tga.Errorf(tga.NotFound, "the paths of the server name no such tool").In(call.TraceID)
	}
	return path, nil
}

// Dispatch implements [runtime.Dispatcher]: it returns the answer, ErrNotSent if no byte of
// the request left, any other error if the call may have run.
func (s *Server) Dispatch(ctx context.Context, call runtime.Call) (runtime.Reply, error) {
	s.ahead.enter()
	defer s.ahead.leave()
	resp, waited, err := s.exchange(ctx, call)
	if waited && errors.Is(err, runtime.ErrNotSent) && ctx.Err() == nil {
		// The server closed the connection while it waited. If the same happens on a newly
		// dialed connection, the server is not there.
		resp, _, err = s.exchange(context.WithValue(ctx, anew{}, true), call)
	}
	if err != nil {
		return runtime.Reply{}, err
	}
	reply, err := readAnswer(resp.Body, s.opts.MaxAnswer)
	err = errors.Join(err, resp.Body.Close())
	return s.classify(call, resp, reply, err)
}

// exchange sends the request of a call once. waited says that it went to a connection
// that was made ahead.
func (s *Server) exchange(ctx context.Context, call runtime.Call) (resp *http.Response, waited bool, err error) {
	var way onwire.Request
	req, err := s.request(way.Follow(ctx), call)
	if err != nil {
		code := cmp.Or(tga.CodeOf(err), tga.ValidationError)
		return nil, false, tga.Errorf(code, "%s on %s: %w", call.Tool, call.Server, errors.Join(runtime.ErrNotSent, err)).In(call.TraceID)
	}
	// RoundTrip and no http.Client: no redirect is followed, no cookie kept.
	resp, err = s.transport.RoundTrip(req)
	conn, ok := way.Conn().(*wire)
	waited = ok && conn.waited
	if err != nil {
		return nil, waited, tga.Errorf(tga.ToolError, "%s on %s, attempt %d: %w", call.Tool, call.Server, call.Attempt, way.Fault(err)).In(call.TraceID)
	}
	return resp, waited, nil
}

// classify completes reply, which has the body of the answer. It returns an error if the
// answer leaves open whether the call ran.
func (s *Server) classify(call runtime.Call, resp *http.Response, reply runtime.Reply, err error) (runtime.Reply, error) {
	answered := "HTTP " + statusText(resp.StatusCode)
	reply.RetryAfter = RetryAfter(resp.Header, time.Now())
	code := tga.ToolError
	if resp.StatusCode == http.StatusTooManyRequests {
		code = tga.RateLimited
	}
	fail := func(err error) (runtime.Reply, error) {
		e := tga.Errorf(code, "%s on %s, attempt %d: %s: %w", call.Tool, call.Server, call.Attempt, answered, err).In(call.TraceID)
		e.RetryAfter = reply.RetryAfter
		return runtime.Reply{}, e
	}
	if after := resp.Header.Get("Retry-After"); after != "" {
		answered += fmt.Sprintf(" (Retry-After: %.40s)", after)
	}
	if err != nil {
		return fail(fmt.Errorf("the answer broke off: %w", err))
	}
	o := outcome(s.opts.Statuses, resp.StatusCode, call.Attempt)
	reply.Class = o.Class()
	switch o {
	case Succeeded:
		reply.Status, reply.Summary = tga.StatusSuccess, answered
	case Failed:
		reply.Status, reply.ErrorCode, reply.ErrorMessage = tga.StatusFailure, string(tga.ToolError), answered
	case NotExecuted:
		if call.Attempt > 1 {
			// This attempt did nothing, but an earlier one may have run. Only the ledger knows
			// whether any attempt is in doubt.
			return fail(fmt.Errorf("%w: the server did not execute this attempt", runtime.ErrNotSent))
		}
		reply.Status, reply.ErrorCode, reply.ErrorMessage = tga.StatusFailure, string(code), answered
	default:
		return fail(errors.New("the call may have run"))
	}
	return reply, nil
}

// request builds the request of a call.
func (s *Server) request(ctx context.Context, call runtime.Call) (*http.Request, error) {
	path, err := s.path(call)
	if err != nil {
		return nil, err
	}
	if call.Key == "" {
		return nil, errors.New("the call has no idempotency key")
	}
	key := KeyText(call.Key)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.base.JoinPath(path).String(), bytes.NewReader(call.Args))
	if err != nil {
		return nil, err
	}
	// With GetBody the transport may send the request again.
	req.GetBody = nil
	req.Header = s.opts.Header.Clone()
	if req.Header == nil {
		req.Header = http.Header{}
	}
	if s.opts.KeyHeader != nil {
		if name := s.opts.KeyHeader(call.Tool); name != "" {
			req.Header.Set(name, key)
		}
	}
	for name, value := range map[string]string{
		"Content-Type":      "application/json",
		"Idempotency-Key":   key,
		"Tgad-Trace-Id":     call.TraceID.String(),
		"Tgad-Tool-Call-Id": call.ToolCallID.String(),
		"Tgad-Attempt":      strconv.FormatUint(uint64(call.Attempt), 10),
	} {
		req.Header.Set(name, value)
	}
	for name, value := range onwire.SpanHeaders(ctx) {
		req.Header.Set(name, value)
	}
	if req.Header.Get("User-Agent") == "" {
		req.Header.Set("User-Agent", "tgad")
	}
	return req, nil
}

// readAnswer reads an answer to its end. It keeps an answer of up to limit bytes; of a longer
// answer it keeps only the length and the digest.
func readAnswer(body io.Reader, limit int64) (runtime.Reply, error) {
	kept := bytes.NewBuffer(make([]byte, 0, 512)) // an empty answer is an answer: not nil
	if _, err := io.Copy(kept, io.LimitReader(body, limit)); err != nil {
		return runtime.Reply{}, err
	}
	var next [1]byte
	switch _, err := io.ReadFull(body, next[:]); err {
	case io.EOF:
		return runtime.Reply{Result: kept.Bytes()}, nil
	case nil:
	default:
		return runtime.Reply{}, err
	}
	kept.WriteByte(next[0])
	digest := sha256.New()
	size, err := io.Copy(digest, io.MultiReader(kept, body))
	if err != nil {
		return runtime.Reply{}, err
	}
	return runtime.Reply{Truncated: true, ResultBytes: size, ResultDigest: tga.Digest(digest.Sum(nil))}, nil
}

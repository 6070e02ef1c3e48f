package model

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/tgad/tgad/internal/onwire"
	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/schemas/tga"
)

// dialect is what is specific to one API. Everything that the APIs share is in [client].
type dialect struct {
	home, path  string // the API's address if there is no Options.BaseURL, and the path for questions
	longestName int    // of a tool, in bytes
	format      string // format of its messages
	// sign sets the API's headers. key may be empty.
	sign func(h http.Header, key string)
	// request encodes a question for the API.
	request func(c *client, q turn.Question, n *names, stream bool) (any, error)
	// plain reads an answer that comes in one piece.
	plain func(x *exchange, s *said, body []byte) error
	// event reads one event of a stream, and reports whether it was the last.
	event func(x *exchange, s *said, data []byte) (last bool, err error)
}

// client sends questions to one address.
type client struct {
	dialect
	opts      Options
	base      *url.URL
	transport *http.Transport
}

func newClient(d dialect, o Options) (turn.Model, error) {
	o, base, err := o.resolve(d.home)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{}
	if o.TLS != nil {
		config = o.TLS.Clone()
	}
	config.NextProtos = nil
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &client{dialect: d, opts: o, base: base, transport: &http.Transport{
		Proxy:       nil, // a proxy may send the request again
		DialContext: o.Dial,
		// Go's transport sends a request with an Idempotency-Key again when a connection that it
		// reused breaks. A connection that is never reused cannot cause that.
		DisableKeepAlives:      true,
		DisableCompression:     true, // the limit counts the bytes that were received
		TLSClientConfig:        config,
		Protocols:              protocols,
		MaxResponseHeaderBytes: 1 << 20,
	}}, nil
}

// Generate implements [turn.Model].
func (c *client) Generate(ctx context.Context, q turn.Question) (turn.Answer, error) {
	n := newNames(c.longestName, q.Tools)
	body, err := c.request(c, q, n, c.opts.Stream || q.OnDelta != nil)
	if err != nil {
		return turn.Answer{}, (&exchange{client: c, ctx: ctx}).refuse(err)
	}
	x, resp, err := c.post(ctx, q, body)
	if err != nil {
		return turn.Answer{}, err
	}
	s := newSaid(q)
	if streams(resp) {
		err = x.follow(resp, s)
	} else {
		err = x.read(resp, s)
	}
	if err == nil && s.finish == "" {
		err = x.garbled("it does not say why it ends")
	}
	if err != nil {
		return turn.Answer{}, err
	}
	return s.answer(q, n, c.format, tga.MillisOf(c.opts.Now())), nil
}

// exchange is one request and what is known of it.
type exchange struct {
	*client
	ctx context.Context
	key string // the API key
	way onwire.Request
}

// post sends a body. It returns the response if its status is 200, a failure otherwise.
func (c *client) post(ctx context.Context, q turn.Question, body any) (*exchange, *http.Response, error) {
	x := &exchange{client: c, ctx: ctx}
	if !onwire.FitsHeader(q.Key) {
		return nil, nil, x.refuse(fmt.Errorf("the question's key %.80q cannot stand in a header: visible ASCII, no space at either end", q.Key))
	}
	if c.opts.Key != nil {
		key, err := c.opts.Key()
		if err == nil && !onwire.FitsHeader(key) {
			err = errors.New("it is empty, or no visible ASCII")
		}
		if err != nil {
			return nil, nil, x.fail(tga.LLMError, true, fmt.Errorf("the model's key: %w", err))
		}
		x.key = key
	}
	var raw bytes.Buffer
	e := json.NewEncoder(&raw)
	e.SetEscapeHTML(false) // escapes would cost the model tokens and say nothing
	if err := e.Encode(body); err != nil {
		return nil, nil, x.refuse(err)
	}
	req, err := http.NewRequestWithContext(x.way.Follow(ctx), http.MethodPost, c.base.JoinPath(c.path).String(), bytes.NewReader(raw.Bytes()))
	if err != nil {
		return nil, nil, x.refuse(err)
	}
	// With GetBody set, the transport may send the request again.
	req.GetBody = nil
	req.Header = c.opts.Header.Clone()
	if req.Header == nil {
		req.Header = http.Header{}
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", q.Key)
	for name, value := range onwire.SpanHeaders(ctx) {
		req.Header.Set(name, value)
	}
	if req.Header.Get("User-Agent") == "" {
		req.Header.Set("User-Agent", "tgad")
	}
	c.sign(req.Header, x.key)
	// Use RoundTrip, not an http.Client: it follows no redirect and keeps no cookie.
	resp, err := c.transport.RoundTrip(req)
	if err != nil {
		return nil, nil, x.lost("no answer", err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, nil, x.refused(resp)
	}
	return x, resp, nil
}

// streams reports whether a response is a stream, whatever the request asked for.
func streams(resp *http.Response) bool {
	kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	return err == nil && kind == "text/event-stream"
}

// read reads an answer that comes in one piece.
func (x *exchange) read(resp *http.Response, s *said) error {
	body, err := io.ReadAll(&limited{r: resp.Body, left: x.opts.MaxAnswer})
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return x.lost("the answer broke off", err)
	}
	return x.plain(x, s, body)
}

// follow reads an answer that comes in events. The answer is complete once its last event has
// come. A stream that ends before that is a failure, even if the connection was closed in good
// order.
func (x *exchange) follow(resp *http.Response, s *said) error {
	// By then the answer is complete or has failed.
	defer func() { _ = resp.Body.Close() }()
	events := newEvents(&limited{r: resp.Body, left: x.opts.MaxAnswer})
	for {
		data, err := events.next()
		if err == io.EOF {
			return x.fail(tga.LLMError, false, errors.New("the stream ended before the answer did"))
		}
		if err != nil {
			return x.lost("the stream broke off", err)
		}
		if last, err := x.event(x, s, data); last || err != nil {
			return err
		}
	}
}

// decode decodes JSON of the API.
func (x *exchange) decode(data []byte, v any) error {
	if !utf8.Valid(data) {
		return x.garbled("it is not UTF-8")
	}
	if err := json.Unmarshal(data, v); err != nil {
		return x.garbled("%w", err)
	}
	return nil
}

// lost makes a failure of a request that was cut short, by the deadline or otherwise.
func (x *exchange) lost(what string, err error) error {
	code := tga.LLMError
	var timeout net.Error
	if ended := x.ctx.Err(); ended != nil {
		err = errors.Join(ended, err)
		if errors.Is(ended, context.DeadlineExceeded) {
			code = tga.LLMTimeout
		}
	} else if errors.As(err, &timeout) && timeout.Timeout() {
		code = tga.LLMTimeout
	}
	return x.fail(code, errors.Is(err, errTooLong), fmt.Errorf("%s: %w", what, err))
}

// garbled makes a failure of an answer that does not follow the API.
func (x *exchange) garbled(format string, args ...any) error {
	return x.fail(tga.LLMError, false, fmt.Errorf("the answer cannot be decoded: "+format, args...))
}

// refuse makes a failure of a question that cannot be encoded for the API.
func (x *exchange) refuse(err error) error { return x.fail(tga.ValidationError, true, err) }

func (x *exchange) fail(code tga.Code, permanent bool, err error) error {
	err = x.way.Fault(err)
	return &turn.Failure{Code: code, Message: x.hide(err.Error()), Permanent: permanent, Err: err}
}

// hide removes the key from a text, and cuts the text to a readable length.
func (x *exchange) hide(text string) string {
	if x.key != "" {
		text = strings.ReplaceAll(text, x.key, "[hidden]")
	}
	const most = 500
	text = strings.ToValidUTF8(text, "\ufffd")
	for i := range text {
		if i > most {
			return text[:i] + "…"
		}
	}
	return text
}

var errTooLong = errors.New("it is longer than the limit")

// limited is a body of which at most left bytes are read. A longer body is an error, not a silent
// end.
type limited struct {
	r    io.Reader
	left int64
}

func (l *limited) Read(p []byte) (int, error) {
	if int64(len(p)) > l.left+1 {
		p = p[:l.left+1]
	}
	n, err := l.r.Read(p)
	if int64(n) > l.left {
		return int(l.left), errTooLong
	}
	l.left -= int64(n)
	return n, err
}

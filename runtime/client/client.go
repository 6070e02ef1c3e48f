package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tgad/tgad/internal/onwire"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// Options of a [Client]. The zero value is ready for use.
type Options struct {
	// Name is sent in the Tgad-Client header; "" means "tgad-go".
	Name string
	// MaxAnswerBytes bounds one answer, or one line of a stream. Zero means 256 MiB.
	MaxAnswerBytes int64
	// MaxIdle is how many connections are kept; zero means 16.
	MaxIdle int
	// Remember sends with each request the newest checkpoint that the daemon has given, if the
	// daemon signs checkpoints. A daemon whose store was rolled back since then answers
	// STATE_CHECKSUM_MISMATCH.
	Remember bool
	// Receipts asks for the receipt of each call with its answer, [runtime.Result.Receipt]. A checkpoint covers the
	// newest appends only some seconds later: from then on [Proofs.Receipt] has the proofs.
	Receipts bool
	// Dial makes a connection; nil dials the socket.
	Dial func(ctx context.Context) (net.Conn, error)
	// Exchange, if it is set, is called first for every answer that is not a stream. It answers
	// the text of a request without a connection, or returns ok = false and has done nothing.
	// It is for a daemon in the same process.
	Exchange func(ctx context.Context, text []byte) (resp *http.Response, ok bool, err error)
}

// Client is a connection pool to one daemon. Its methods may be called from any number
// of goroutines.
//
// The deadline of a method's context is sent in the Tgad-Timeout header. When the deadline
// passes or the context is cancelled, only the waiting ends: the daemon goes on with what it
// has begun. [runtime.Request.Deadline] says until when a call may be sent.
type Client struct {
	opts  Options
	conns conns
	seen  newest // with Options.Remember
}

// New makes a client of the daemon at a socket. It does not dial.
func New(socket string, opts Options) *Client {
	opts.Name = cmp.Or(opts.Name, "tgad-go")
	opts.MaxAnswerBytes = min(cmp.Or(opts.MaxAnswerBytes, 256<<20), math.MaxInt64-1) // whole reads one more
	opts.MaxIdle = cmp.Or(opts.MaxIdle, 16)
	if opts.Dial == nil {
		opts.Dial = func(ctx context.Context) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}
	}
	return &Client{opts: opts, conns: conns{socket: socket, dial: opts.Dial, most: opts.MaxIdle}}
}

// Close closes the idle connections. It returns the error of one that could not be closed, which affects no exchange.
func (c *Client) Close() error { return c.conns.close() }

// request is one exchange.
type request struct {
	method, path string
	query        url.Values
	body         any // a message of package wire, nil for none
}

// do sends a request and returns the answer if its status is under 300. The caller closes
// its body. For any other status it returns the error in the answer.
func (c *Client) do(ctx context.Context, r request) (*http.Response, error) {
	return c.doBy(ctx, r, c.conns.exchange)
}

// near exchanges within this process if that is possible, else over a connection.
func (c *Client) near(ctx context.Context, text []byte) (*http.Response, error) {
	if c.opts.Exchange != nil {
		if resp, ok, err := c.opts.Exchange(ctx, text); ok {
			return resp, err
		}
	}
	return c.conns.exchange(ctx, text)
}

func (c *Client) doBy(ctx context.Context, r request, exchange func(context.Context, []byte) (*http.Response, error)) (*http.Response, error) {
	resp, err := exchange(ctx, c.text(ctx, r))
	if err != nil {
		return nil, c.unreachable(ctx, r, err)
	}
	if resp.StatusCode < 300 || resp.StatusCode == http.StatusNotModified {
		if c.opts.Remember {
			c.seen.keep(resp.Header.Get(wire.HeaderCheckpoint))
		}
		return resp, nil
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, c.opts.MaxAnswerBytes))
	if err != nil {
		return nil, c.unreachable(ctx, r, err)
	}
	return nil, refusal(r, resp, raw)
}

// newest is the [wire.HeaderCheckpoint] with the most appends.
type newest struct{ atomic.Pointer[string] }

// keep keeps a checkpoint that the daemon named, if it is newer than the one that is kept. The daemon names its newest
// when it begins with a request, so the answer to a long call has an older one than answers that came before it.
func (n *newest) keep(now string) {
	for size := appends(now); ; {
		kept := n.Load()
		if size < 0 || kept != nil && size <= appends(*kept) || n.CompareAndSwap(kept, &now) {
			return
		}
	}
}

// appends is the size in a [wire.HeaderCheckpoint], -1 if it has none.
func appends(checkpoint string) int64 {
	text, _, _ := strings.Cut(checkpoint, " ")
	size, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return -1
	}
	return size
}

// text returns a request in the form in which it is sent. net/http would build it from twice as many pieces.
func (c *Client) text(ctx context.Context, r request) []byte {
	target := url.URL{Path: r.path, RawQuery: r.query.Encode()}
	b := make([]byte, 0, textRoom)
	b = append(append(append(append(b, r.method...), ' '), target.RequestURI()...), " HTTP/1.1\r\nHost: "+wire.Host+"\r\n"+wire.HeaderClient+": "...)
	b = append(append(b, oneLine.Replace(c.opts.Name)...), "\r\n"...)
	if deadline, ok := ctx.Deadline(); ok {
		wait := time.Until(deadline)
		wait -= min(wait/4, time.Second) // so that the daemon's answer arrives before the deadline
		b = append(b, wire.HeaderTimeout+": "...)
		b = append(append(b, max(wait, time.Millisecond).Round(time.Millisecond).String()...), "\r\n"...)
	}
	b = appendSpan(b, runtime.SpanContextOf(ctx))
	if seen := c.seen.Load(); seen != nil {
		b = append(append(append(b, wire.HeaderCheckpoint+": "...), oneLine.Replace(*seen)...), "\r\n"...)
	}
	if c.opts.Receipts {
		b = append(b, wire.HeaderReceipt+": wanted\r\n"...)
	}
	if r.body == nil {
		if r.method == http.MethodPost {
			b = append(b, "Content-Length: 0\r\n"...)
		}
		return append(b, "\r\n"...)
	}
	b = append(b, "Content-Type: application/json\r\nContent-Length: "...)
	length := len(b)
	b = append(b, "          \r\n\r\n"...) // room for the length of the body, which is not known yet
	body := len(b)
	b = wire.Append(b, r.body)
	strconv.AppendInt(b[:length], int64(len(b)-body), 10)
	return b
}

// appendSpan appends the headers of a span context. It becomes the parent of the daemon's spans.
func appendSpan(b []byte, sc runtime.SpanContext) []byte {
	if sc == (runtime.SpanContext{}) {
		return b
	}
	for name, value := range onwire.SpanFields(sc) {
		b = append(append(append(append(b, name...), ": "...), oneLine.Replace(value)...), "\r\n"...)
	}
	return b
}

// textRoom is the initial capacity for the text of a request.
const textRoom = 2 << 10

// oneLine removes line breaks from the value of a header.
var oneLine = strings.NewReplacer("\r", " ", "\n", " ")

// refusal returns the error that an answer carries.
func refusal(r request, resp *http.Response, raw []byte) error {
	var p wire.Problem
	kind, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	if kind != wire.ProblemType || json.Unmarshal(raw, &p) != nil || p.Code == "" {
		return tga.Errorf(tga.StoreUnavailable, "%s %s: %s: %.200s", r.method, r.path, resp.Status, raw)
	}
	return &refused{p.Err(), p}
}

// refused carries the whole problem beside the error that it rebuilds.
type refused struct {
	err     *tga.Error
	problem wire.Problem
}

func (r *refused) Error() string { return r.err.Error() }
func (r *refused) Unwrap() error { return r.err }

// ProblemIn returns the problem that an error of this package came with.
func ProblemIn(err error) (wire.Problem, bool) {
	var r *refused
	if errors.As(err, &r) {
		return r.problem, true
	}
	return wire.Problem{}, false
}

// unreachable returns the error for a request without an answer. It is not known whether
// the daemon acted on the request.
func (c *Client) unreachable(ctx context.Context, r request, err error) error {
	if cause := ctx.Err(); cause != nil {
		err = cause
	}
	return tga.Errorf(tga.StoreUnavailable, "%s %s at %s: %w", r.method, r.path, c.conns.socket, err)
}

// ask sends a request and reads the answer into a message.
func (c *Client) ask(ctx context.Context, r request, into any) error {
	raw, _, err := c.bytes(ctx, r)
	if err != nil || into == nil {
		return err
	}
	if err := wire.DecodeAnswer(raw, into); err != nil {
		return tga.Errorf(tga.StoreUnavailable, "%s %s: the answer is not understood: %w", r.method, r.path, err)
	}
	return nil
}

// bytes sends a request and reads the whole answer.
func (c *Client) bytes(ctx context.Context, r request) ([]byte, http.Header, error) {
	resp, err := c.doBy(ctx, r, c.near)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	raw, err := c.whole(resp)
	if err != nil {
		return nil, nil, c.unreachable(ctx, r, err)
	}
	if int64(len(raw)) > c.opts.MaxAnswerBytes {
		return nil, nil, tga.Errorf(tga.LimitExceeded, "%s %s: the answer is over %d bytes", r.method, r.path, c.opts.MaxAnswerBytes)
	}
	return raw, resp.Header, nil
}

// knownRoom bounds the memory that is allocated for an answer only because its header names a
// length.
const knownRoom = 64 << 10

// whole reads an answer to its end, or up to one byte more than the limit.
func (c *Client) whole(resp *http.Response) ([]byte, error) {
	body := io.LimitReader(resp.Body, c.opts.MaxAnswerBytes+1)
	if n := resp.ContentLength; n < 0 || n > knownRoom {
		return io.ReadAll(body)
	}
	b := bytes.NewBuffer(make([]byte, 0, resp.ContentLength+bytes.MinRead)) // MinRead: the end is seen without more room
	_, err := b.ReadFrom(body)
	return b.Bytes(), err
}

func post(path string, body any) request {
	return request{method: http.MethodPost, path: path, body: body}
}

func get(path string, query ...string) request {
	q := url.Values{}
	for i := 0; i+1 < len(query); i += 2 {
		if query[i+1] != "" {
			q.Set(query[i], query[i+1])
		}
	}
	return request{method: http.MethodGet, path: path, query: q}
}

func tracePath(trace tga.ID, rest string) string { return fmt.Sprintf("/v1/traces/%s%s", trace, rest) }

package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	// Name stands in the Tgad-Client header; "" means "tgad-go".
	Name string
	// MaxAnswerBytes bounds one answer, or one line of a stream. Zero means 256 MiB.
	MaxAnswerBytes int64
	// MaxIdle is how many connections are kept; zero means 16.
	MaxIdle int
	// Remember sends what the daemon said last of the tree of its store with each request, where it
	// signs checkpoints: a daemon whose store was rolled back since then answers
	// STATE_CHECKSUM_MISMATCH.
	Remember bool
	// Receipts asks for the receipt of each call with its answer, [runtime.Result.Receipt]. A checkpoint covers the
	// newest appends some seconds later: [Proofs.Receipt] has the proofs then.
	Receipts bool
	// Dial makes a connection; nil dials the socket.
	Dial func(ctx context.Context) (net.Conn, error)
	// Exchange, where it is set, is asked first for every answer that is taken whole: it answers
	// the text of a request without a connection, or says with ok = false that it does not, and
	// has done nothing. It is for a daemon in the same process.
	Exchange func(ctx context.Context, text []byte) (resp *http.Response, ok bool, err error)
}

// Client is a connection pool to one daemon. Its methods may be called from any number
// of goroutines.
//
// A deadline of a method's context travels in the Tgad-Timeout header. Its end, and
// cancelling the context, end waiting: what the daemon has begun, it goes on with. Until
// when a call may be sent is [runtime.Request.Deadline].
type Client struct {
	opts  Options
	conns conns
	seen  atomic.Pointer[string] // the newest [HeaderCheckpoint], where it is remembered
}

// New makes a client of the daemon at a socket. It does not dial.
func New(socket string, opts Options) *Client {
	opts.Name = cmp.Or(opts.Name, "tgad-go")
	opts.MaxAnswerBytes = cmp.Or(opts.MaxAnswerBytes, 256<<20)
	opts.MaxIdle = cmp.Or(opts.MaxIdle, 16)
	if opts.Dial == nil {
		opts.Dial = func(ctx context.Context) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}
	}
	return &Client{opts: opts, conns: conns{socket: socket, dial: opts.Dial, most: opts.MaxIdle}}
}

// Close ends the idle connections. The error is that of one that would not close; no exchange is affected by it.
func (c *Client) Close() error { return c.conns.close() }

// request is one exchange.
type request struct {
	method, path string
	query        url.Values
	body         any // message, nil for none
}

// do sends a request and returns the answer of a status under 300. The caller closes its
// body. Any other status comes back as the error in it.
func (c *Client) do(ctx context.Context, r request) (*http.Response, error) {
	return c.doBy(ctx, r, c.conns.exchange)
}

// near exchanges within this process where that can be done, else by a connection.
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
		if now := resp.Header.Get(wire.HeaderCheckpoint); c.opts.Remember && now != "" {
			c.seen.Store(&now)
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

// text is a request as it is sent. net/http would put it together out of twice the parts.
func (c *Client) text(ctx context.Context, r request) []byte {
	target := url.URL{Path: r.path, RawQuery: r.query.Encode()}
	b := make([]byte, 0, textRoom)
	b = append(append(append(append(b, r.method...), ' '), target.RequestURI()...), " HTTP/1.1\r\nHost: "+wire.Host+"\r\n"+wire.HeaderClient+": "...)
	b = append(append(b, oneLine.Replace(c.opts.Name)...), "\r\n"...)
	if deadline, ok := ctx.Deadline(); ok {
		wait := time.Until(deadline)
		wait -= min(wait/4, time.Second) // so that the daemon's last word arrives in time
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
	b = append(b, "          \r\n\r\n"...) // room for the length of a body, which is not known before
	body := len(b)
	b = wire.Append(b, r.body)
	strconv.AppendInt(b[:length], int64(len(b)-body), 10)
	return b
}

// appendSpan appends the headers of a span context, which the daemon's spans are then below.
func appendSpan(b []byte, sc runtime.SpanContext) []byte {
	if sc == (runtime.SpanContext{}) {
		return b
	}
	for name, value := range onwire.SpanFields(sc) {
		b = append(append(append(append(b, name...), ": "...), oneLine.Replace(value)...), "\r\n"...)
	}
	return b
}

// textRoom is the first room of a request.
const textRoom = 2 << 10

// oneLine keeps a name on its line.
var oneLine = strings.NewReplacer("\r", " ", "\n", " ")

// refusal is the error that an answer carries.
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

// unreachable is the error where there is no answer. Whether the daemon acted on the
// request is not known.
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

// knownRoom bounds the room that an answer gets for the length alone that its head names.
const knownRoom = 64 << 10

// whole reads an answer to its end, or to one byte more than it may have.
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

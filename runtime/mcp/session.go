package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/internal/onwire"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// link is a connection to one server. It multiplexes requests: it gives each request an id and
// finds the answer by the id.
type link interface {
	// exchange writes req once and waits for its answer. It returns ErrNotSent if no byte was
	// written. If ctx ends after the write, it cancels the request at the server
	// (notifications/cancelled) and returns an error that is not ErrNotSent. mirrored are
	// arguments that a link over HTTP repeats in headers.
	exchange(ctx context.Context, req *jsonrpc.Request, mirrored ...mcpraw.ParamValue) (*answer, error)
	// notify writes a notification.
	notify(ctx context.Context, n *jsonrpc.Request) error
	// agreed tells the link the protocol version that the handshake agreed on.
	agreed(version mcpraw.Revision)
	// alive reports whether a new request may be written.
	alive() bool
	// retire is called on a link that is not alive, before its successor is made. It ends a
	// process. Over HTTP it does nothing, so an exchange under way may still get its answer.
	retire()
	// close ends the link and waits until its goroutines and exchanges have ended.
	close()
}

// session is a link after its handshake.
type session struct {
	link    link
	version mcpraw.Revision
	meta    []byte // members that _meta of every request has from 2026-07-28 on: ,"k":v…
	// subscribes says that the server announces changes of its tools, and only to subscribers.
	subscribes bool
	known      mirrors
}

var implementation = &mcp.Implementation{Name: "tgad", Version: "1"}

// handshake lets the SDK negotiate a protocol version (2024-11-05 to 2026-07-28) over an adapter
// of the link. The SDK's session ends with the handshake. Calls use the link directly, because
// the typed results of the SDK lose digits.
func handshake(ctx context.Context, l link, version string) (*session, error) {
	// No capabilities: tgad answers neither sampling nor roots nor elicitation.
	client := mcp.NewClient(implementation, &mcp.ClientOptions{Capabilities: &mcp.ClientCapabilities{}})
	t := &transport{link: l, incoming: make(chan jsonrpc.Message)}
	t.ctx, t.cancel = context.WithCancel(ctx)
	defer t.wg.Wait()
	defer t.cancel()
	cs, err := client.Connect(ctx, t, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		return nil, err
	}
	s := &session{link: l, version: mcpraw.Revision(cs.InitializeResult().ProtocolVersion)}
	l.agreed(s.version)
	if err := cs.Close(); err != nil {
		return nil, fmt.Errorf("end of handshake: %w", err)
	}
	if s.version.Stateless() {
		caps := cs.InitializeResult().Capabilities
		s.subscribes = caps != nil && caps.Tools != nil && caps.Tools.ListChanged
		s.known.listing = make(chan struct{}, 1)
		s.meta = fmt.Appendf(nil, `,%q:%q,%q:{"name":%q,"version":%q},%q:{}`,
			mcp.MetaKeyProtocolVersion, s.version,
			mcp.MetaKeyClientInfo, implementation.Name, implementation.Version,
			mcp.MetaKeyClientCapabilities)
	}
	return s, nil
}

// Members of a call's _meta. The key is the same for every attempt, so the server can
// deduplicate by it.
const (
	metaKey     = "dev.tgad/idempotencyKey"
	metaTrace   = "dev.tgad/traceId"
	metaAttempt = "dev.tgad/attempt"
)

// callParams makes the params of tools/call. It concatenates bytes, so that the arguments stay
// exact.
func callParams(call runtime.Call, keyMeta string, meta []byte, sc runtime.SpanContext) json.RawMessage {
	b := append([]byte(nil), `{"name":`...)
	b = tga.AppendString(b, call.Tool)
	b = append(b, `,"arguments":`...)
	b = append(b, call.Args...)
	b = append(b, `,"_meta":{"`+metaKey+`":`...)
	b = tga.AppendString(b, call.Key)
	b = append(b, `,"`+metaTrace+`":`...)
	b = tga.AppendString(b, call.TraceID.String())
	b = append(b, `,"`+metaAttempt+`":`...)
	b = strconv.AppendUint(b, uint64(call.Attempt), 10)
	switch keyMeta {
	case "", metaKey, metaTrace, metaAttempt:
	default:
		b = append(tga.AppendString(append(b, ','), keyMeta), ':')
		b = tga.AppendString(b, call.Key)
	}
	b = onwire.AppendSpan(b, keyMeta, sc)
	b = append(b, meta...)
	return append(b, "}}"...)
}

// frame encodes a message with an id of the link; 0 is none. It fails if the params are not
// JSON. It removes newlines in them, so that a frame is one line.
func frame(req *jsonrpc.Request, id int64) ([]byte, error) {
	r := *req
	if id != 0 {
		var err error
		if r.ID, err = jsonrpc.MakeID(float64(id)); err != nil {
			return nil, fmt.Errorf("request id %d: %w", id, err)
		}
	}
	b, err := jsonrpc.EncodeMessage(&r)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", req.Method, err)
	}
	return b, nil
}

func cancelled(id int64) *jsonrpc.Request {
	return &jsonrpc.Request{
		Method: "notifications/cancelled",
		Params: fmt.Appendf(nil, `{"requestId":%d,"reason":"the caller gave up"}`, id),
	}
}

// serverRequest makes the answer to a server's request: ping is served, other methods are refused.
func serverRequest(m *message) []byte {
	if m.env.Method == "ping" {
		return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":{}}`, m.env.RawID)
	}
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":"tgad does not serve this method"}}`, m.env.RawID, mcpraw.CodeNoMethod)
}

// transport lets an SDK client use a link during the handshake. It is both the SDK's Transport
// and its Connection. Its context ends with the handshake, which also ends every exchange that
// the SDK left under way.
type transport struct {
	link     link
	ctx      context.Context
	cancel   context.CancelFunc
	incoming chan jsonrpc.Message
	wg       sync.WaitGroup
}

func (t *transport) Connect(context.Context) (mcp.Connection, error) { return t, nil }
func (t *transport) SessionID() string                               { return "" }

func (t *transport) Close() error {
	t.cancel()
	return nil
}

func (t *transport) Read(ctx context.Context) (jsonrpc.Message, error) {
	select {
	case m := <-t.incoming:
		return m, nil
	case <-t.ctx.Done():
		return nil, io.EOF
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (t *transport) Write(ctx context.Context, m jsonrpc.Message) error {
	req, ok := m.(*jsonrpc.Request)
	if !ok {
		return fmt.Errorf("handshake wants to write a %T", m)
	}
	if !req.ID.IsValid() {
		return t.link.notify(ctx, req)
	}
	t.wg.Go(func() {
		resp := &jsonrpc.Response{ID: req.ID}
		resp.Result, resp.Error = t.exchange(req)
		select {
		case t.incoming <- resp:
		case <-t.ctx.Done():
		}
	})
	return nil
}

func (t *transport) exchange(req *jsonrpc.Request) (json.RawMessage, error) {
	a, err := t.link.exchange(t.ctx, req)
	if err != nil {
		return nil, err
	}
	return a.control()
}

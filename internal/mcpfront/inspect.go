//go:build unix

package mcpfront

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpfront/say"
	"github.com/tgad/tgad/internal/mcpfront/toolset"
	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/schemas/tga"
)

// MaxPages bounds a list of tools, because a server may never end its list.
const MaxPages = 1000

// discard is an outlet without a client.
type discard struct{}

func (discard) Send(*mcpraw.Envelope, ...io.WriterTo) error { return nil }
func (discard) Hand(*mcpraw.Envelope, ...io.WriterTo) error { return nil }

// Inspect starts the tool server, lists its tools, and ends it. With accept it pins the
// current definitions.
func (s *Shim) Inspect(ctx context.Context, accept bool) ([]toolset.Inspected, error) {
	c := s.newConv(discard{}, nil)
	defer c.end()
	kept := make(chan error, 1)
	go func() { kept <- c.supervise(s.dialer(c, "")) }()
	defer func() {
		c.end()
		<-kept
	}()
	ctx, cancel := context.WithTimeout(ctx, s.opts.StartTimeout)
	defer cancel()
	l, err := c.await(ctx)
	if err != nil {
		return nil, tga.Errorf(tga.ToolError, "tool server %q: %w", s.opts.Server, err)
	}
	base, err := c.tools.greet(ctx, l)
	if err != nil {
		return nil, tga.Errorf(tga.ToolError, "tool server %q: %w", s.opts.Server, err)
	}
	var all []toolset.Inspected
	pinned, err := s.pins.All(ctx)
	if err != nil {
		return nil, err
	}
	var defined []toolset.Definition
	err = c.tools.listTools(ctx, l, base, func(page []toolset.Definition) error {
		defined = append(defined, page...)
		return nil
	})
	for _, d := range defined {
		all = append(all, toolset.Inspect(d, pinned[d.Name]))
	}
	if err != nil {
		return nil, tga.Errorf(tga.ToolError, "tool server %q: list its tools: %w", s.opts.Server, err)
	}
	if accept {
		if err := s.pins.Accept(ctx, defined); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(all, func(a, b toolset.Inspected) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// greet makes the handshake with a tool server, or finds out that the server wants none, and
// returns the params that every request to it has. It tries the handshake first: a server that
// knows only the handshake may not survive another first request.
func (k *catalog) greet(ctx context.Context, l *link) (base []byte, err error) {
	const me = `{"name":"tgad","version":"1"}`
	f, err := k.c.request(ctx, l, "initialize", []byte(`{"protocolVersion":"`+string(mcpraw.Handshake)+`","capabilities":{},"clientInfo":`+me+`}`))
	if err == nil {
		err = refusedWith(f)
	}
	if err == nil {
		n := frames.NewFrame([]byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`))
		return []byte("{}"), l.up.Write(&frames.Message{Env: &n.Envelope, Parts: []io.WriterTo{n}})
	}
	base = []byte(`{"_meta":{"` + mcpraw.MetaRevision + `":"` + string(mcpraw.Newest) + `","` + say.MetaClientInfo + `":` + me + `,"` + say.MetaCapabilities + `":{}}}`)
	f, modern := k.c.request(ctx, l, "server/discover", base)
	if modern == nil {
		modern = refusedWith(f)
	}
	if modern != nil {
		return nil, fmt.Errorf("initialize: %w; server/discover: %w", err, modern)
	}
	return base, nil
}

// refusedWith returns the error of an answer, nil if the answer has a result.
func refusedWith(f *frames.Frame) error {
	defer f.Close()
	if f.Result.Present() {
		return nil
	}
	fault, err := f.Bytes(f.Fault, 4096)
	if err != nil {
		return err
	}
	return fmt.Errorf("it answers %s", fault)
}

// listTools asks a tool server for all pages of its tools and calls see with each. base are
// the params of each request, without the cursor.
func (k *catalog) listTools(ctx context.Context, l *link, base []byte, see func(page []toolset.Definition) error) error {
	cursor := ""
	for range MaxPages {
		params := base
		if cursor != "" {
			params = say.With(base, "cursor", tga.AppendString(nil, cursor))
		}
		result, err := k.list(ctx, l, params)
		if err != nil {
			return err
		}
		if err := see(toolset.Definitions(result)); err != nil {
			return err
		}
		if cursor = mcpraw.ScalarText(mcpraw.At(result, "/nextCursor")); cursor == "" {
			l.listed.Store(true)
			return nil
		}
	}
	return tga.Errorf(tga.LimitExceeded, "the list has more than %d pages", MaxPages)
}

// errNoList says that a tool server answered tools/list with an error.
var errNoList = errors.New("no list")

func (k *catalog) list(ctx context.Context, l *link, params []byte) ([]byte, error) {
	f, err := k.c.request(ctx, l, "tools/list", params)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if !f.Result.Present() {
		fault, err := f.Bytes(f.Fault, 4096)
		if err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("%w: it answers %s", errNoList, fault)
	}
	return f.Bytes(f.Result, toolset.MaxList)
}

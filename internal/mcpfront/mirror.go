package mcpfront

import (
	"context"
	"errors"
	"net/http"

	"github.com/tgad/tgad/internal/mcpfront/entry"
	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpfront/toolcall"
	"github.com/tgad/tgad/internal/mcpfront/toolset"
	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/schemas/tga"
)

// Over HTTP a call of revision 2026-07-28 repeats in headers those arguments that the tool's
// definition names. A client on stdin and stdout sends no such headers, and the headers of a
// client over HTTP may differ from its call. So the shim needs the definitions: it reads each
// list that passes, or asks for one.

// catalog reads the definitions of a tool server's tools.
type catalog struct{ c *conv }

// mirrors reports whether some arguments of a call may have to go into headers.
func (k *catalog) mirrors(p *toolcall.Params) bool {
	return k.c.s.opts.URL != "" && p.Revision().Stateless()
}

// marks returns what a tool's definition says of headers. If the tools were not listed yet, it
// lists them first. The error says that this was not possible. It is no error if the tool
// server answers that it lists no tools: then it has asked for no headers.
func (k *catalog) marks(ctx context.Context, p *toolcall.Params) (toolset.Mirror, error) {
	m, known := k.c.s.mirrors.Of(p.Tool)
	if known {
		return m, nil
	}
	ctx, cancel := context.WithTimeout(ctx, k.c.s.opts.StartTimeout)
	defer cancel()
	since := k.c.s.mirrors.Since()
	l, err := k.c.await(ctx)
	if err == nil {
		err = k.listTools(ctx, l, p.Protocol(), func(page []toolset.Definition) error {
			k.c.s.mirrors.Learn(page)
			return k.c.s.pins.See(ctx, page)
		})
	}
	if err == nil {
		k.c.s.mirrors.All(since)
	}
	if m, known = k.c.s.mirrors.Of(p.Tool); known || errors.Is(err, errNoList) {
		err = nil
	}
	return m, err
}

// mirrored finds out which arguments of a call go into headers. The error is VALIDATION_ERROR
// if a header cannot carry an argument, or if the tool's definition breaks the rules for headers.
func (k *catalog) mirrored(ctx context.Context, p *toolcall.Params) (toolset.Mirror, error) {
	if !k.mirrors(p) {
		return toolset.Mirror{}, nil
	}
	m, err := k.marks(ctx, p)
	if err != nil {
		k.c.s.Log.Debug("the definitions of the tools cannot be had; no argument goes into a header", "error", err)
	}
	if m.Bad != nil {
		return m, tga.Errorf(tga.ValidationError, "the definition of %s breaks the rules for headers: %w", p.Tool, m.Bad)
	}
	_, err = mcpraw.ParamValues(m.Headers, p.Args)
	return m, toolcall.Under("/params/arguments", err)
}

// hinted sets the tool server's hint about the call's tool, if hints are trusted. The hint of a
// definition that differs from the pinned one does not count.
func (q *call) hinted(ctx context.Context) {
	c := q.conv
	if !c.s.opts.TrustHints {
		return
	}
	m, err := c.tools.marks(ctx, q.Params)
	if err != nil {
		c.s.Log.Warn("the definitions of the tools cannot be had; no hint counts", "tool", q.Params.Tool, "error", err)
	}
	if err == nil && c.s.pins.Drifted(q.Params.Tool) == "" {
		q.Hint = m.Hint
	}
}

// Reread reads the definition of the call's tool again, and reports whether other arguments go into headers now.
func (q *call) Reread(ctx context.Context) bool {
	k := &q.conv.tools
	if !k.mirrors(q.Params) {
		return false
	}
	k.c.s.mirrors.Forget()
	m, err := k.mirrored(ctx, q.Params)
	if _, known := k.c.s.mirrors.Of(q.Params.Tool); err != nil || !known || toolset.EqualHeaders(q.headers, m.Headers) {
		return false
	}
	q.headers = m.Headers
	return true
}

// refusedParams compares the Mcp-Param headers of a call with its arguments. It does not check
// a header that the tool's definition does not name, nor any header if the tool is in no list,
// the tool server lists no tools, or the definition breaks the rules. If the tool server cannot
// be asked, the call is refused: its headers may be those of another call.
func (k *catalog) refusedParams(ctx context.Context, h http.Header, m *frames.Frame) *entry.Refusal {
	if m.Method != "tools/call" {
		return nil
	}
	p, err := toolcall.Parse(m.Head[m.Params.From:m.Params.To])
	if err != nil {
		return nil // the call is refused later, for its params
	}
	marks, err := k.marks(ctx, p)
	if err != nil {
		no := &entry.Refusal{Status: http.StatusOK, Code: mcpraw.CodeGone, Words: "the call was not sent: the definition of its tool cannot be had, to compare the headers with: " + err.Error()}
		errors.As(err, &no.Challenge)
		return no
	}
	if marks.Bad != nil {
		return nil
	}
	if at := marks.Differs(h, p.Args); at != "" {
		return entry.Mismatch(at)
	}
	return nil
}

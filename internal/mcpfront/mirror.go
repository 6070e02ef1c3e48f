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

// Over HTTP a call of revision 2026-07-28 repeats in headers those of its arguments that
// the tool's definition names. A client on stdin and stdout knows nothing of it, and one
// over HTTP may say in a header what it does not say in its call. So the shim reads the
// definitions: from each list that passes, or from one that it asks for.

// catalog is what a conversation knows of its tool server's tools.
type catalog struct{ c *conv }

// mirrors reports whether a call's arguments may have to go into headers.
func (k *catalog) mirrors(p *toolcall.Params) bool {
	return k.c.s.opts.URL != "" && p.Revision().Stateless()
}

// marks returns what a tool's definition says of headers. A tool server whose tools nobody
// has listed yet is asked for them first. The error says that it could not be; one that
// answers that it lists none has told nobody of any header.
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

// mirrored finds out which arguments of a call go into headers. VALIDATION_ERROR for a call
// that the headers cannot carry, and for a tool whose definition breaks the rules for them.
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

// hinted finds out what the tool server says of the call's tool, where that is believed. What
// a definition says that is not the pinned one is not.
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

// Reread reads the definition of the call's tool again, and reports whether other arguments go into headers by now.
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

// refusedParams compares the headers of a call's arguments with the arguments. A header that
// the tool's definition does not name is nobody's, and so are all of a tool that is in no
// list, of a tool server that lists none, and of a definition that breaks the rules. Where
// the tool server could not be asked the call is refused: its headers may be those of
// another call.
func (k *catalog) refusedParams(ctx context.Context, h http.Header, m *frames.Frame) *entry.Refusal {
	if m.Method != "tools/call" {
		return nil
	}
	p, err := toolcall.Parse(m.Head[m.Params.From:m.Params.To])
	if err != nil {
		return nil // and so it is refused for that
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

//go:build unix

package mcpfront

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpfront/say"
	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
)

// Inspected is one tool of a server: what it says of itself, and what was pinned.
type Inspected struct {
	Name        string   `json:"name"`
	Digest      string   `json:"digest"` // SHA-256 of the canonical definition
	Pinned      string   `json:"pinned"` // the pinned digest, "" where it was not seen before
	Hints       []string `json:"hints"`  // readOnlyHint, …, where the server sets them
	Description string   `json:"description"`
}

// Changed reports whether the definition is another than the pinned one.
func (i Inspected) Changed() bool { return i.Pinned != "" && i.Pinned != i.Digest }

// Suggests returns class and licence as the hints have them; "" where none says that a repeat
// is harmless.
func (i Inspected) Suggests() (class, licence string) {
	switch {
	case slices.Contains(i.Hints, "readOnlyHint=true"):
		return tga.ClassRead, ledger.ReadOnly.String()
	case slices.Contains(i.Hints, "idempotentHint=true"):
		return tga.ClassWrite, ledger.DedupeArgs.String()
	}
	return "", ""
}

// hints are the annotations that say something of a tool's effects.
var hints = []string{"readOnlyHint", "idempotentHint", "destructiveHint", "openWorldHint"}

// maxPages bounds a list of tools: a server that never ends its list is not followed.
const maxPages = 1000

// discard is a client that is told nothing.
type discard struct{}

func (discard) send(*mcpraw.Envelope, ...io.WriterTo) error { return nil }
func (discard) hand(*mcpraw.Envelope, ...io.WriterTo) error { return nil }

// Inspect starts the tool server, asks it for its tools, and ends it. With accept the
// definitions as they are now are pinned.
func (s *Shim) Inspect(ctx context.Context, accept bool) ([]Inspected, error) {
	c := s.newConv(discard{})
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
	var all []Inspected
	if err := s.shelf.load(ctx); err != nil {
		return nil, err
	}
	var defined []definition
	err = c.tools.listTools(ctx, l, base, func(page []definition) error {
		defined = append(defined, page...)
		return nil
	})
	pinned := parsePins(s.shelf.get(pinsName))
	for _, d := range defined {
		all = append(all, inspected(d, pinned[d.name]))
	}
	if err != nil {
		return nil, tga.Errorf(tga.ToolError, "tool server %q: list its tools: %w", s.opts.Server, err)
	}
	if accept {
		if err := s.pins.accept(ctx, defined); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(all, func(a, b Inspected) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// greet makes the handshake with a tool server, or finds out that it wants none, and
// returns the params of every request to it. The handshake comes first: servers that know
// no other way may not survive to be asked for one.
func (k *catalog) greet(ctx context.Context, l *link) (base []byte, err error) {
	const me = `{"name":"tgad","version":"1"}`
	f, err := k.c.request(ctx, l, "initialize", []byte(`{"protocolVersion":"`+string(mcpraw.Handshake)+`","capabilities":{},"clientInfo":`+me+`}`))
	if err == nil {
		err = refusedWith(f)
	}
	if err == nil {
		n := frames.NewFrame([]byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`))
		return []byte("{}"), l.up.Write(&frames.Message{Env: &n.Envelope, Parts: parts(n)})
	}
	base = []byte(`{"_meta":{"` + mcpraw.MetaRevision + `":"` + string(mcpraw.Newest) + `","` + metaClientInfo + `":` + me + `,"` + say.MetaCapabilities + `":{}}}`)
	f, modern := k.c.request(ctx, l, "server/discover", base)
	if modern == nil {
		modern = refusedWith(f)
	}
	if modern != nil {
		return nil, fmt.Errorf("initialize: %w; server/discover: %w", err, modern)
	}
	return base, nil
}

// refusedWith takes an answer that is of interest only where it is an error.
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

// listTools asks a tool server for its tools, all pages.
// base are the params of each request but for the page.
func (k *catalog) listTools(ctx context.Context, l *link, base []byte, see func(page []definition) error) error {
	cursor := ""
	for range maxPages {
		params := base
		if cursor != "" {
			params = say.With(base, "cursor", tga.AppendString(nil, cursor))
		}
		result, err := k.list(ctx, l, params)
		if err != nil {
			return err
		}
		if err := see(definitions(result)); err != nil {
			return err
		}
		if cursor = mcpraw.ScalarText(mcpraw.At(result, "/nextCursor")); cursor == "" {
			l.listed.Store(true)
			return nil
		}
	}
	return tga.Errorf(tga.LimitExceeded, "the list has more than %d pages", maxPages)
}

// errNoList says that a tool server was asked for its tools and does not list any.
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
	return f.Bytes(f.Result, maxList)
}

func inspected(d definition, pinned string) Inspected {
	i := Inspected{Name: d.name, Digest: d.digest, Pinned: pinned, Description: mcpraw.ScalarText(mcpraw.At(d.raw, "/description"))}
	for _, h := range hints {
		v := mcpraw.At(d.raw, "/annotations/"+h)
		var set bool
		if json.Unmarshal(v, &set) == nil {
			i.Hints = append(i.Hints, fmt.Sprintf("%s=%t", h, set))
		}
	}
	return i
}

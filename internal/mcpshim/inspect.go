//go:build unix

package mcpshim

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

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

// hints are the annotations that say something of a tool's effects.
var hints = []string{"readOnlyHint", "idempotentHint", "destructiveHint", "openWorldHint"}

// maxPages bounds a list of tools: a server that never ends its list is not followed.
const maxPages = 1000

// discard is a client that is told nothing.
type discard struct{}

func (discard) send(_ *envelope, parts ...io.WriterTo) error { return nil }

// Inspect starts the tool server, asks it for its tools, and ends it. With accept the
// definitions as they are now are pinned.
func (s *Shim) Inspect(ctx context.Context, accept bool) ([]Inspected, error) {
	c := s.newConv(discard{}, s.opts.Scope)
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
	hello := `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"tgad","version":"1"}}`
	f, err := c.request(ctx, l, "initialize", []byte(hello))
	if err != nil {
		return nil, tga.Errorf(tga.ToolError, "tool server %q: initialize: %w", s.opts.Server, err)
	}
	f.close()
	n := newFrame([]byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`))
	if err := l.up.write(&message{env: &n.envelope, parts: parts(n)}); err != nil {
		return nil, tga.Errorf(tga.ToolError, "tool server %q: initialized: %w", s.opts.Server, err)
	}
	var all []Inspected
	err = c.listTools(ctx, l, func(d definition) error {
		i, err := s.inspect(d, accept)
		all = append(all, i)
		return err
	})
	if err != nil {
		return nil, tga.Errorf(tga.ToolError, "tool server %q: list its tools: %w", s.opts.Server, err)
	}
	slices.SortFunc(all, func(a, b Inspected) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// listTools asks a tool server for its tools, all pages.
func (c *conv) listTools(ctx context.Context, l *link, see func(definition) error) error {
	cursor := ""
	for range maxPages {
		params := []byte("{}")
		if cursor != "" {
			params = append(appendString([]byte(`{"cursor":`), cursor), '}')
		}
		result, err := c.list(ctx, l, params)
		if err != nil {
			return err
		}
		for _, d := range definitions(result) {
			if err := see(d); err != nil {
				return err
			}
		}
		if cursor = scalarText(at(result, "/nextCursor")); cursor == "" {
			l.listed.Store(true)
			return nil
		}
	}
	return tga.Errorf(tga.LimitExceeded, "the list has more than %d pages", maxPages)
}

func (c *conv) list(ctx context.Context, l *link, params []byte) ([]byte, error) {
	f, err := c.request(ctx, l, "tools/list", params)
	if err != nil {
		return nil, err
	}
	defer f.close()
	if !f.result.present() {
		fault, err := f.bytes(f.fault, 4096)
		if err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("it answers %s", fault)
	}
	return f.bytes(f.result, maxList)
}

func (s *Shim) inspect(d definition, accept bool) (Inspected, error) {
	i := Inspected{Name: d.name, Digest: d.digest, Description: scalarText(at(d.raw, "/description"))}
	var err error
	if i.Pinned, err = s.book.get("pin " + d.name); err != nil {
		return i, err
	}
	for _, h := range hints {
		v := at(d.raw, "/annotations/"+h)
		var set bool
		if json.Unmarshal(v, &set) == nil {
			i.Hints = append(i.Hints, fmt.Sprintf("%s=%t", h, set))
		}
	}
	if accept {
		err = s.pins.accept(d)
	}
	return i, err
}

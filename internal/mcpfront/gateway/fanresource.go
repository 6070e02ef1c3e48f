//go:build unix

package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/yosida95/uritemplate/v3"

	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpfront/toolcall"
	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/schemas/tga"
)

// Resources have no names of a gateway's own: answers of tools have their URIs in them, and a client
// reads what it finds there. So a URI leads to the tool server that may have it by its patterns. Where
// several may, it is the first that lists the URI, or a template of it; and it stays that one for as long
// as the conversation lasts, whoever lists it later.

// resourcesChanged is the notification that the list of resources is another one.
const resourcesChanged = "notifications/resources/list_changed"

// has reports whether a URI may be a resource of a tool server that the client may have.
func (m *view) has(uri string) bool {
	return m.resources.Permit(uri) && (m.t.rules.resources == nil || m.t.rules.resources.Permit(uri))
}

// offeredResource is an item of resources/list; nil where the client is not to have it.
func (m *view) offeredResource(item []byte) []byte {
	if !m.has(mcpraw.Text(mcpraw.At(item, "/uri"))) {
		return nil
	}
	return item
}

// offeredTemplate is an item of resources/templates/list. Two tool servers may have the same one.
func (m *view) offeredTemplate(item []byte) []byte {
	template := mcpraw.Text(mcpraw.At(item, "/uriTemplate"))
	if !m.resources.PermitTemplate(template) || m.t.rules.resources != nil && !m.t.rules.resources.PermitTemplate(template) {
		return nil
	}
	return item
}

// owned leaves in the tool servers' lists of resources what is each one's own, in their order.
func (f *fan) owned(all []part) []part {
	for i := range all {
		p, m := &all[i], all[i].m
		var items []json.RawMessage
		if json.Unmarshal(slices.Concat([]byte("["), p.said, []byte("]")), &items) != nil {
			items = nil // never: they were read one by one
		}
		p.said = nil
		for _, item := range items {
			if f.claim(mcpraw.Text(mcpraw.At(item, "/uri")), m.member) != m.member {
				f.g.log.Debug("a resource was left out: another tool server has it", "tool_server", m.shim.Server())
				continue
			}
			if len(p.said) > 0 {
				p.said = append(p.said, ',')
			}
			p.said = append(p.said, item...)
		}
	}
	return all
}

// claim is whose a URI is, m's where it is nobody's yet.
func (f *fan) claim(uri string, m *member) *member {
	f.mu.Lock()
	defer f.mu.Unlock()
	if of := f.owners[uri]; of != nil {
		return of
	}
	if len(f.owners) < maxOwners && !m.retired { // else the order of the tool servers decides, each time
		f.owners[uri] = m
	}
	return m
}

// maxOwners bounds the URIs of which a conversation remembers whose they are.
const maxOwners = 1 << 16

// resource leads a request about a resource to its tool server. uri stands at a place in its params.
func (f *fan) resource(msg *frames.Frame, pointer string) {
	params, err := msg.Bytes(msg.Params, toolcall.MaxParams)
	if !msg.Params.Present() || err != nil {
		f.refuse(msg, mcpraw.CodeInvalidParams, tga.Errorf(tga.ValidationError, "want params").At("/params"))
		return
	}
	uri := mcpraw.Text(mcpraw.At(params, pointer))
	if uri == "" {
		f.refuse(msg, mcpraw.CodeInvalidParams, tga.Errorf(tga.NotFound, "the request has no URI, or none that can be read").At("/params"+pointer))
		return
	}
	var may []*member
	for _, m := range f.now().views {
		if pointer == refURI && m.offeredTemplate(mcpraw.At(params, "/ref")) != nil || m.has(uri) {
			may = append(may, m.member)
		}
	}
	switch len(may) {
	case 0:
		f.refuse(msg, mcpraw.CodeInvalidParams, tga.Errorf(tga.NotFound, "there is no resource %q at this gateway", uri))
	case 1:
		f.lead(msg, may[0], pointer)
	default:
		f.work.Go(func() { // elsewhere: their lists are asked for
			m, err := f.ownerOf(may, uri, toolcall.ProtocolOf(params))
			if err != nil {
				f.refuse(msg, mcpraw.CodeGone, err)
				return
			}
			if m == nil {
				f.refuse(msg, mcpraw.CodeInvalidParams, tga.Errorf(tga.NotFound, "several tool servers may have %q, and none lists it or a template of it", uri))
				return
			}
			f.lead(msg, m, pointer)
		})
	}
}

// refURI is where a request to complete an argument names the template of a resource.
const refURI = "/ref/uri"

// lead gives a request on as it is.
func (f *fan) lead(msg *frames.Frame, m *member, pointer string) {
	switch f.enter(msg, m) {
	case isIn:
		m.Conversation.FromClient(msg)
	case isMoved:
		f.resource(msg, pointer)
	}
}

// ownerOf finds whose a URI, or a template, is among those that may have it; nil is nobody. asks are the
// params of the lists. The error is a challenge.
func (f *fan) ownerOf(may []*member, uri string, asks []byte) (*member, error) {
	f.mu.Lock()
	known := f.owners[uri]
	f.mu.Unlock()
	if slices.Contains(may, known) {
		return known, nil
	}
	listed, err := f.each(func(ctx context.Context, m *view) ([]byte, error) {
		if !slices.Contains(may, m.member) {
			return nil, nil
		}
		all, err := m.pages(ctx, "resources/list", "resources", asks, m.offeredResource)
		templates, tErr := m.pages(ctx, "resources/templates/list", "resourceTemplates", asks, m.offeredTemplate)
		if no := (*faulted)(nil); errors.As(err, &no) && no.noMethod() {
			err = nil // it has only the others
		}
		if len(all) > 0 && len(templates) > 0 {
			all = append(all, ',')
		}
		return append(all, templates...), errors.Join(err, tErr)
	})
	var ch *frames.Challenge
	if errors.As(err, &ch) {
		return nil, err
	}
	if err != nil {
		f.g.log.Warn("the owner of a resource cannot be found", "error", err)
	}
	for _, p := range listed {
		var items []struct{ URI, URITemplate string }
		if json.Unmarshal(slices.Concat([]byte("["), p.said, []byte("]")), &items) != nil {
			continue // a member of another type: it lists nothing that is a resource
		}
		for _, item := range items {
			if item.URI == uri || item.URITemplate == uri || expands(item.URITemplate, uri) {
				return f.claim(uri, p.m.member), nil
			}
		}
	}
	return nil, nil
}

// expands reports whether a URI is one of a template's (RFC 6570).
func expands(template, uri string) bool {
	if template == "" {
		return false
	}
	t, err := uritemplate.New(template)
	return err == nil && t.Match(uri) != nil
}

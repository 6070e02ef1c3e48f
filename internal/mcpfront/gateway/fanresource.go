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

// A gateway does not rename resources, because a client reads the URIs that it finds in answers of tools.
// So a URI leads to the tool server whose configured patterns match it. If several match, it leads to the
// first that lists the URI or a template of it, and stays with that one for the rest of the conversation.

// resourcesChanged is the notification that the list of resources has changed.
const resourcesChanged = "notifications/resources/list_changed"

// has reports whether the client may have a URI from this tool server, by the configured patterns.
func (m *view) has(uri string) bool {
	return m.resources.Permit(uri) && (m.t.rules.resources == nil || m.t.rules.resources.Permit(uri))
}

// offeredResource is an item of resources/list, nil if the client may not have it.
func (m *view) offeredResource(item []byte) []byte {
	if !m.has(mcpraw.Text(mcpraw.At(item, "/uri"))) {
		return nil
	}
	return item
}

// offeredTemplate is an item of resources/templates/list, nil if the client may not have it. Two tool
// servers may list the same template.
func (m *view) offeredTemplate(item []byte) []byte {
	template := mcpraw.Text(mcpraw.At(item, "/uriTemplate"))
	if !m.resources.PermitTemplate(template) || m.t.rules.resources != nil && !m.t.rules.resources.PermitTemplate(template) {
		return nil
	}
	return item
}

// owned removes from each tool server's list the resources that belong to another tool server.
func (f *fan) owned(all []part) []part {
	for i := range all {
		p, m := &all[i], all[i].m
		var items []json.RawMessage
		if json.Unmarshal(slices.Concat([]byte("["), p.said, []byte("]")), &items) != nil {
			items = nil // cannot happen: pages has parsed each item
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

// claim returns the owner of a URI. If the URI has none, m becomes its owner.
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

// maxOwners bounds the URIs whose owner a conversation remembers.
const maxOwners = 1 << 16

// resource leads a request about a resource to its tool server. pointer says where in the params the URI is.
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
		f.work.Go(func() { // in a goroutine: it asks for their lists
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

// refURI is the place of the resource's template in a completion/complete request.
const refURI = "/ref/uri"

// lead passes a request unchanged.
func (f *fan) lead(msg *frames.Frame, m *member, pointer string) {
	switch f.enter(msg, m) {
	case isIn:
		m.Conversation.FromClient(msg)
	case isMoved:
		f.resource(msg, pointer)
	}
}

// ownerOf finds the owner of a URI or template among the members that may have it; nil is none. asks are
// the params of the list requests. The error is always a challenge.
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
			err = nil // the tool server has only templates
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
			continue // a uri of another JSON type: this part lists no resource
		}
		for _, item := range items {
			if item.URI == uri || item.URITemplate == uri || expands(item.URITemplate, uri) {
				return f.claim(uri, p.m.member), nil
			}
		}
	}
	return nil, nil
}

// expands reports whether a URI matches a template (RFC 6570).
func expands(template, uri string) bool {
	if template == "" {
		return false
	}
	t, err := uritemplate.New(template)
	return err == nil && t.Match(uri) != nil
}

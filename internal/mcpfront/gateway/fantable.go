//go:build unix

package gateway

import (
	"github.com/tgad/tgad/internal/mcpfront"
	"github.com/tgad/tgad/internal/mcpfront/names"
	"github.com/tgad/tgad/schemas/tga"
)

// rules are what one configuration says about a gate.
type rules struct {
	all   []Behind
	lists names.Lists
	// resources are the servers' resources that the clients may have; nil is all.
	resources names.Resources
	quotas    quotas
}

// permits reports whether the clients may have a tool of a server.
func (r *rules) permits(server, tool string) bool {
	for _, b := range r.all {
		if b.Shim.Server() == server {
			return b.Names.Permit(tool) && r.lists.Permit(b.Names.Seen(tool))
		}
	}
	return false
}

// table is all that a client has by one configuration. Code that looks at several parts must use one table for all.
type table struct {
	*rules
	g     *Gate
	views []*view
}

// view is a tool server in a table.
type view struct {
	*member
	names     names.Names
	resources names.Resources
	t         *table
}

func (f *fan) now() *table { return f.table.Load() }

// with returns the view of a shim, nil if the table does not have it.
func (t *table) with(s *mcpfront.Shim) *view {
	if t == nil {
		return nil
	}
	for _, v := range t.views {
		if v.shim == s {
			return v
		}
	}
	return nil
}

// of returns the view of a tool server by its id, nil if there is none.
func (t *table) of(server string) *view {
	for _, v := range t.views {
		if v.shim.Server() == server {
			return v
		}
	}
	return nil
}

// behind finds the tool that a client's name stands for. m is nil if the client has no such tool.
func (f *fan) behind(name string) (m *member, tool string, err error) {
	v, tool, err := f.now().behind(name)
	if err != nil {
		return nil, "", err
	}
	return v.member, tool, nil
}

func (t *table) behind(name string) (v *view, tool string, err error) {
	for _, v := range t.views {
		tool, ok := v.names.Behind(name)
		if !ok {
			continue
		}
		own := v.shim.Owns(tool)
		next := t.g.next.Load()
		if !own && !v.names.Permit(tool) || !t.lists.Permit(name) || !own && next != nil && !next.permits(v.shim.Server(), tool) {
			return nil, "", tga.Errorf(tga.PolicyViolation, "the gateway does not let this client have %q. Nothing was sent", name)
		}
		return v, tool, nil
	}
	if name == "" {
		return nil, "", tga.Errorf(tga.NotFound, "the request has no name, or none that can be read").At("/params/name")
	}
	return nil, "", tga.Errorf(tga.NotFound, "there is no %q at this gateway", name)
}

// Package names maps the tools, tasks and resources of a gateway's servers to the names that its clients see.
//
// # Invariants
//
//	one owner  a name leads to at most one server     [Check]         TestNoNameHasTwoOwners
//	closed     a denied name is neither listed nor reachable  [Names.Behind]  TestWhatIsDeniedIsNowhere
package names

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Names are the names of one server's tools and prompts.
type Names struct {
	Prefix string            // put before every name that is not in Rename
	Rename map[string]string // the server's name of a tool: the client's
	Lists
}

// Lists say which names a client may use. A pattern is a name, or a prefix and "*".
type Lists struct {
	Allow []string // nil allows all
	Deny  []string // overrides Allow
}

// Permit reports whether the client may use a name.
func (l Lists) Permit(name string) bool {
	return !matchAny(l.Deny, name) && (l.Allow == nil || matchAny(l.Allow, name))
}

func matchAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return Match(p, name) })
}

// Match reports whether a name matches a pattern.
func Match(pattern, name string) bool {
	if start, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(name, start)
	}
	return pattern == name
}

// Seen is the client's name of a tool.
func (n Names) Seen(tool string) string {
	if name, ok := n.Rename[tool]; ok {
		return name
	}
	return n.Prefix + tool
}

// Behind returns the tool that a client's name stands for. ok says that the name belongs to this
// server. Ask [Lists.Permit] whether the client may use the tool.
func (n Names) Behind(name string) (tool string, ok bool) {
	for tool, seen := range n.Rename {
		if seen == name {
			return tool, true
		}
	}
	tool, ok = strings.CutPrefix(name, n.Prefix)
	if _, renamed := n.Rename[tool]; renamed || tool == "" {
		return "", false // a renamed tool has only its new name
	}
	return tool, ok
}

// Default is the prefix of a server without a configured one: its id, in characters that every
// client accepts in a name, and "__".
func Default(server string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '-':
			return r
		}
		return '_'
	}, server) + "__"
}

// Check refuses servers whose names could collide. It returns the server that is wrong.
func Check(all map[string]Names) (server string, err error) {
	ids := slices.Sorted(maps.Keys(all))
	owner := map[string]string{}
	for _, id := range ids {
		for _, tool := range slices.Sorted(maps.Keys(all[id].Rename)) {
			name := all[id].Rename[tool]
			if name == "" {
				return id, fmt.Errorf("the new name of %q is empty", tool)
			}
			if of, taken := owner[name]; taken {
				return id, fmt.Errorf("server %q also has a tool with the name %q", of, name)
			}
			owner[name] = id
		}
	}
	for _, id := range ids {
		prefix := all[id].Prefix
		for _, other := range ids {
			if other != id && strings.HasPrefix(all[other].Prefix, prefix) {
				return id, fmt.Errorf("the prefix %q begins that of server %q, %q: their names could not be told apart", prefix, other, all[other].Prefix)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(owner)) {
			if tool, own := strings.CutPrefix(name, prefix); own {
				if of := owner[name]; of != id {
					return of, fmt.Errorf("the name %q begins as those of server %q", name, id)
				} else if _, moved := all[id].Rename[tool]; !moved {
					return id, fmt.Errorf("the name %q is that of the tool %q too", name, tool)
				}
			}
		}
	}
	return "", nil
}

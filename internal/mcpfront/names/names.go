// Package names says under which names the clients of a gateway see what its servers have.
//
// # Invariants
//
//	one owner  a name leads to at most one server     [Check]         TestNoNameHasTwoOwners
//	closed     what is denied is neither seen nor led to  [Names.Behind]  TestWhatIsDeniedIsNowhere
package names

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Names are the names of one server's tools and prompts.
type Names struct {
	Prefix string            // before every name that is not in Rename
	Rename map[string]string // the server's name of a tool: the client's
	Lists
}

// Lists say which names are for a client. A pattern is a name, or the beginning of one and "*".
type Lists struct {
	Allow []string // nil allows all
	Deny  []string // counts before Allow
}

// Permit reports whether a name is for the client.
func (l Lists) Permit(name string) bool {
	return !matchAny(l.Deny, name) && (l.Allow == nil || matchAny(l.Allow, name))
}

func matchAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return Match(p, name) })
}

// Match reports whether a name is one of a pattern's.
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

// Behind is the tool that a client's name stands for. ok says that the name is this server's;
// whether the tool is for the client [Lists.Permit] says.
func (n Names) Behind(name string) (tool string, ok bool) {
	for tool, seen := range n.Rename {
		if seen == name {
			return tool, true
		}
	}
	tool, ok = strings.CutPrefix(name, n.Prefix)
	if _, renamed := n.Rename[tool]; renamed || tool == "" {
		return "", false // it has another name, and only that
	}
	return tool, ok
}

// Default is the prefix of a server that was given none: its id in letters that every client
// takes in a name, and "__".
func Default(server string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '-':
			return r
		}
		return '_'
	}, server) + "__"
}

// Check refuses servers of which two could have the same name. It says which server is wrong.
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
				return id, fmt.Errorf("the name %q is a tool's of server %q too", name, of)
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

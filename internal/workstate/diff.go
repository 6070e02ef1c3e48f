package workstate

import (
	"maps"
	"slices"

	"github.com/tgad/tgad/schemas/tga"
)

// Change is a part in which two states differ.
type Change struct {
	Part               string     // "slice " or "resource " and the name of its type
	From, To           tga.Digest // zero where the one state does not have it
	FromItems, ToItems int        // of a slice
}

// Diff says in which parts two snapshots differ, sorted by part. It says nothing of
// slices whose policy either of them does not include.
func Diff(from, to *CompositeSnapshot) []Change {
	a, b := from.parts(to.Session), to.parts(from.Session)
	all := maps.Clone(a)
	maps.Copy(all, b)
	var out []Change
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if x, y := a[name], b[name]; x != y {
			out = append(out, Change{name, x.digest, y.digest, x.items, y.items})
		}
	}
	return out
}

type part struct {
	digest tga.Digest
	items  int
}

func (c *CompositeSnapshot) parts(other *SessionSnapshot) map[string]part {
	out := map[string]part{}
	for name, l := range c.Session.content {
		if p := c.Session.policies[name]; c.Session.includes[p] && other.includes[p] {
			out["slice "+name] = part{l.node().digest, l.count}
		}
	}
	for name, n := range c.Resources {
		out["resource "+name] = part{n.digest, 0}
	}
	return out
}

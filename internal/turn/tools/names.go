package tools

import (
	"github.com/tgad/tgad/schemas/tga"
)

// maxModelName is the longest name of a tool that models take.
const maxModelName = 64

// names gives tools the names by which a model calls them: ^[A-Za-z0-9_-]{1,64}$, each
// once. A name that is not of that form is mapped to one that is.
type names struct {
	given map[string]string // model's name → the tool's own
	own   map[string]place  // tool's own name → where it is called
}

// place is where a tool is called.
type place struct{ server, remote string }

func newNames() *names { return &names{given: map[string]string{}, own: map[string]place{}} }

// taken returns where the tool is called that has this name already.
func (n *names) taken(own string) (place, bool) {
	p, ok := n.own[own]
	return p, ok
}

// give names a tool. other is the tool that has the plain form of the name already, ""
// for none; "" for both means that no name is left.
func (n *names) give(own string, p place) (name, other string) {
	name = modelName(own)
	if was, ok := n.given[name]; ok {
		other = was
		name = hashedName(own)
		if _, ok := n.given[name]; ok {
			return "", ""
		}
	}
	n.given[name], n.own[own] = own, p
	return name, other
}

// modelName puts "_" in the place of every byte that models do not take, and a digest at
// the end of a name that is too long.
func modelName(own string) string {
	if len(own) > maxModelName {
		return hashedName(own)
	}
	return plain(own)
}

func plain(own string) string {
	b := []byte(own)
	for i, c := range b {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '-':
		default:
			b[i] = '_'
		}
	}
	return string(b)
}

// hashedName is the name's start and eight digits of its SHA-256: the same in every
// process, whatever else is resolved.
func hashedName(own string) string {
	const digits = 8
	sum := tga.Sum([]byte(own))
	start := plain(own)
	if most := maxModelName - digits - 1; len(start) > most {
		start = start[:most]
	}
	return start + "_" + sum.String()[:digits]
}

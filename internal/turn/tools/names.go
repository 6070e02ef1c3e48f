package tools

import (
	"github.com/tgad/tgad/schemas/tga"
)

// maxModelName is the longest name of a tool that models accept.
const maxModelName = 64

// names gives tools the names by which a model calls them: ^[A-Za-z0-9_-]{1,64}$, each used once.
// A name of another form is mapped to one of this form.
type names struct {
	given map[string]string // model's name → the tool's own
	own   map[string]place  // tool's own name → server and remote name
}

// place is the server and the remote name of a tool.
type place struct{ server, remote string }

func newNames() *names { return &names{given: map[string]string{}, own: map[string]place{}} }

// taken returns the place of the tool that already has this name.
func (n *names) taken(own string) (place, bool) {
	p, ok := n.own[own]
	return p, ok
}

// give names a tool. other is the tool that already has the plain form of the name, "" for none.
// If both results are "", no name is left.
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

// modelName replaces every byte that models do not accept by "_", and shortens a name that is too
// long to a start and a digest.
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

// hashedName returns the start of the name and eight digits of its SHA-256. It is the same in
// every process, whatever other tools are resolved.
func hashedName(own string) string {
	const digits = 8
	sum := tga.Sum([]byte(own))
	start := plain(own)
	if most := maxModelName - digits - 1; len(start) > most {
		start = start[:most]
	}
	return start + "_" + sum.String()[:digits]
}

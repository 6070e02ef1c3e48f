package model

import (
	"strconv"

	"github.com/tgad/tgad/internal/turn"
)

// names maps the tools' names to the alphabet of an API, which is smaller: names in MCP have dots
// and slashes. The same tools get the same names in every question.
type names struct {
	most   int
	theirs map[string]string // API's name by ours
	ours   map[string]string // our name by the API's
}

func newNames(most int, tools []turn.ToolDef) *names {
	n := &names{most, map[string]string{}, map[string]string{}}
	// A name that already fits is kept, even if another tool would be mapped to it.
	for _, t := range tools {
		if n.fit(t.Name) == t.Name {
			n.theirs[t.Name], n.ours[t.Name] = t.Name, t.Name
		}
	}
	for _, t := range tools {
		n.out(t.Name)
	}
	return n
}

// fit maps a name to the API's alphabet, [a-zA-Z0-9_-], and length.
func (n *names) fit(name string) string {
	out := []byte(name)
	for i, c := range out {
		if !('0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z' || c == '_' || c == '-') {
			out[i] = '_'
		}
	}
	if len(out) == 0 {
		return "_"
	}
	return string(out[:min(len(out), n.most)])
}

// out returns the API's name for one of ours.
func (n *names) out(name string) string {
	if theirs, ok := n.theirs[name]; ok {
		return theirs
	}
	theirs := n.fit(name)
	for i := 2; ; i++ {
		if _, taken := n.ours[theirs]; !taken {
			break
		}
		suffix := "_" + strconv.Itoa(i)
		theirs = n.fit(name)
		theirs = theirs[:min(len(theirs), n.most-len(suffix))] + suffix
	}
	n.theirs[name], n.ours[theirs] = theirs, name
	return theirs
}

// in returns our name for one of the API's. A model may also name a tool that does not exist.
func (n *names) in(name string) string {
	if ours, ok := n.ours[name]; ok {
		return ours
	}
	return name
}

package mcpraw

import (
	"slices"

	"github.com/tgad/tgad/schemas/tga"
)

// Revision is a protocol revision of MCP; "" is none. A revision is a date, so revisions sort by
// their text. An unknown revision counts as having the features of the revisions before it.
type Revision string

// Revisions, and the feature that each introduced.
const (
	Newest    = stateless
	Handshake = modal // the newest with a handshake

	stateless   Revision = "2026-07-28" // no handshake: each request names its revision
	modal       Revision = "2025-11-25" // an elicitation names its mode
	elicitation Revision = "2025-06-18" // elicitation/create
	oldest      Revision = "2025-03-26"
)

// Revisions lists the revisions that tgad speaks as a server, newest first.
var Revisions = []Revision{stateless, modal, elicitation, oldest}

// Stateless reports whether the revision has no handshake. Over HTTP its requests repeat parts of
// their body in headers, and its results name their type (resultType).
func (r Revision) Stateless() bool { return r >= stateless }

// Elicits reports whether a handshake of the revision may offer elicitation/create.
func (r Revision) Elicits() bool { return r >= elicitation && !r.Stateless() }

// AsksByForm reports whether a client with these capabilities can show its person a form. Revision 2025-11-25 has clients that only open
// URLs. A client that names no mode shows forms.
func AsksByForm(capabilities []byte) bool {
	modes := At(capabilities, "/elicitation")
	return modes != nil && string(modes) != "null" && (At(modes, "/form") != nil || At(modes, "/url") == nil)
}

// ModalQuestions reports whether an elicitation of the revision names its mode.
func (r Revision) ModalQuestions() bool { return r >= modal }

// Agree returns the revision with which to answer a handshake that asks for r.
func (r Revision) Agree() Revision {
	if slices.Contains(Revisions, r) && !r.Stateless() {
		return r
	}
	return Handshake
}

// MetaRevision is the member of `_meta` by which a request names its revision.
const MetaRevision = "io.modelcontextprotocol/protocolVersion"

// RevisionOf returns the revision that the params of a request name.
func RevisionOf(params []byte) Revision {
	return Revision(ScalarText(At(params, "/_meta/"+tga.EscapeToken(MetaRevision))))
}

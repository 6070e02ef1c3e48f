package runtime

import (
	"bytes"
	"maps"
	"slices"

	"github.com/tgad/tgad/schemas/tga"
)

// Code of the embedder gets copies, so it may change and keep what it gets. What the run and the store
// hold is in the log as it was, and must stay equal to it: a call is made of the request, a further
// attempt sends the call again, and a repeat is compared with both. For the same reason what a caller hands
// in is copied where the store keeps it in memory, and so is what code of the embedder returns: a tool's
// answer that changed between its digest and its write would leave a log that fails every check.

// own returns a copy of a call.
func (c Call) own() Call {
	c.Args = bytes.Clone(c.Args)
	return c
}

// own returns a copy of a reply, without copies of its attachments.
func (r Reply) own() Reply {
	r.Result, r.Changes = bytes.Clone(r.Result), slices.Clone(r.Changes)
	return r
}

// ownRequest returns a copy of a request. Its canonical bytes are the same: the type says that nobody may change them.
func ownRequest(a *tga.Artifact) *tga.Artifact {
	c, q := *a, *a.Request
	c.Meta, c.Request = maps.Clone(a.Meta), &q
	q.Resources, q.Proposal.Args = slices.Clone(q.Resources), bytes.Clone(q.Proposal.Args)
	return &c
}

// ownCall returns a copy of a settled call.
func ownCall(c *tga.ToolCall) *tga.ToolCall {
	own := *c
	own.Call.Args, own.ExpectedDocumentHashes = bytes.Clone(c.Call.Args), slices.Clone(c.ExpectedDocumentHashes)
	return &own
}

// ownEffect returns a copy of an effect.
func ownEffect(e *tga.ToolEffect) *tga.ToolEffect {
	own := *e
	own.DocumentHashes, own.Outcome.ExternalRefs = slices.Clone(e.DocumentHashes), slices.Clone(e.Outcome.ExternalRefs)
	if e.Outcome.Error != nil {
		failed := *e.Outcome.Error
		own.Outcome.Error = &failed
	}
	return &own
}

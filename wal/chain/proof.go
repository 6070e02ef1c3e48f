package chain

import (
	"slices"

	"github.com/tgad/tgad/schemas/tga"
)

// proof holds the values that [DecodeFrame] has verified: the entry has its digest, preimage
// is the entry's canonical form, and artifact and documents have their digests. Because it
// holds the values themselves, it does not vouch for an entry that was changed since.
type proof struct {
	entry     tga.LogEntry
	preimage  []byte
	artifact  *tga.Artifact
	canonical []byte // artifact's
	documents []Document
}

func proofOf(e *Entry) *proof {
	p := &proof{entry: e.LogEntry, preimage: e.Preimage, artifact: e.Artifact, documents: slices.Clone(e.Documents)}
	if e.Artifact != nil {
		p.canonical = e.Artifact.Canonical
	}
	return p
}

// proven reports whether e equals, member by member, the values of its proof. Nobody may modify
// the bytes behind its slices (see [DecodeFrame]). The digests of an entry that is not proven
// are recomputed.
func (e *Entry) proven() bool {
	p := e.proof
	if p == nil || p.entry != e.LogEntry || !same(p.preimage, e.Preimage) || p.artifact != e.Artifact {
		return false
	}
	if a := e.Artifact; a != nil && (a.Digest != e.ArtifactDigest || !same(p.canonical, a.Canonical)) {
		return false
	}
	return slices.EqualFunc(p.documents, e.Documents, func(a, b Document) bool {
		return a.Pointer == b.Pointer && a.Erased == b.Erased && same(a.Data, b.Data)
	})
}

// same reports whether a and b are the same memory.
func same(a, b []byte) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

package tga

import (
	"crypto/sha256"
	"hash"
	"sync"
)

// decodeArtifact reads d's text as an artifact. It does not check the digest.
func decodeArtifact(d *decoder) (*Artifact, *Error) {
	if d.doc.nodes[0].kind != kindObject {
		return nil, violation("want an object")
	}
	t, err := d.artifactType()
	if err != nil {
		return nil, err
	}
	a := newArtifact(t)
	if err := decodeObject(d, 0, artifactFields[t], a); err != nil {
		return nil, err
	}
	a.Canonical = d.doc.text
	return a, nil
}

// artifactType finds schema_id, which determines what the other members may be.
func (d *decoder) artifactType() (t ArtifactType, err *Error) {
	err = d.doc.children(0, func(n int32) *Error {
		if t != 0 || string(d.doc.name(n)) != "schema_id" {
			return nil
		}
		id, err := d.str(n)
		if err != nil {
			return err.under("schema_id")
		}
		for k := RequestType; k <= EffectType; k++ {
			if id == artifactSchemaIDs[k] {
				t = k
				return nil
			}
		}
		return violation("%q is no artifact's schema_id", clip(id)).under("schema_id")
	})
	if err == nil && t == 0 {
		err = violation("member schema_id is missing").under("schema_id")
	}
	return t, err
}

// newArtifact allocates an artifact together with its typed part.
func newArtifact(t ArtifactType) *Artifact {
	var a *Artifact
	switch t {
	case RequestType:
		x := new(struct {
			a Artifact
			p ActionRequest
		})
		a, x.a.Request = &x.a, &x.p
	case DecisionType:
		x := new(struct {
			a Artifact
			p SupervisorDecision
		})
		a, x.a.Decision = &x.a, &x.p
	case CallType:
		x := new(struct {
			a Artifact
			p ToolCall
		})
		x.p.BatchTotalBytes = -1
		a, x.a.Call = &x.a, &x.p
	case EffectType:
		x := new(struct {
			a Artifact
			p ToolEffect
		})
		x.p.BatchTotalBytes = -1
		a, x.a.Effect = &x.a, &x.p
	}
	a.Type = t
	return a
}

// digestMember is how every canonical artifact starts: '_' sorts before the letters
// and "_digest" before "_digest_alg".
const digestMember = `{"_digest":"`

// splitDigest cuts a canonical artifact into the text of its digest and what follows
// the member's comma. ok is false where it does not start with a digest.
func splitDigest(canonical []byte) (digest, rest []byte, ok bool) {
	const at = len(digestMember)
	const end = at + 2*sha256.Size
	if len(canonical) < end+2 || string(canonical[:at]) != digestMember || string(canonical[end:end+2]) != `",` {
		return nil, nil, false
	}
	return canonical[at:end], canonical[end+2:], true
}

// artifactDigest returns the digest of a canonical artifact without its digest member. rest
// is the bytes that follow that member.
func artifactDigest(rest []byte) (sum Digest) {
	h := hashers.Get().(*hasher)
	h.Reset()
	h.Write(openBrace)
	h.Write(rest)
	h.Sum(h.sum[:0])
	sum = h.sum
	hashers.Put(h)
	return sum
}

type hasher struct {
	hash.Hash
	sum Digest
}

var (
	openBrace = []byte("{")
	hashers   = sync.Pool{New: func() any { return &hasher{Hash: sha256.New()} }}
)

// DecodeArtifact reads an artifact that a caller hands in. Its errors are those of [Gate];
// SCHEMA_VIOLATION for a member that is unknown, missing or breaks the contract;
// MISSING_TOOL_CALL_ID and IDEMPOTENCY_KEY_REQUIRED if those members are missing; and
// STATE_CHECKSUM_MISMATCH, Where "given", for a _digest that is not the artifact's. The
// pointer of a missing member names the place where it should be. The result does not share
// memory with raw.
func DecodeArtifact(raw []byte, lim Limits) (*Artifact, error) {
	_, d, err := open(raw, lim)
	if err != nil {
		return nil, err
	}
	defer d.doc.free()
	a, err := decodeArtifact(d)
	if err != nil {
		return nil, err
	}
	_, rest, ok := splitDigest(a.Canonical)
	if !ok {
		return nil, violation("the artifact does not start with its digest").under("_digest")
	}
	if computed := artifactDigest(rest); computed != a.Digest {
		return nil, mismatch("artifact digest", computed, a.Digest, "given").In(a.TraceID).under("_digest")
	}
	return a, nil
}

// DecodeStoredArtifact reads an artifact from the canonical bytes that a store kept. The
// artifact keeps the bytes, so they must not change. The digest is recomputed from exactly
// these bytes before anything else in them is used. Every error has Where "stored".
func DecodeStoredArtifact(canonical []byte) (*Artifact, error) {
	text, rest, ok := splitDigest(canonical)
	if !ok {
		return nil, stored(Errorf(StateChecksumMismatch, "stored artifact of %d bytes does not start with its digest", len(canonical)))
	}
	found, perr := ParseDigest(string(text))
	if perr != nil {
		return nil, stored(Errorf(StateChecksumMismatch, "stored artifact: %s", messageOf(perr)))
	}
	if computed := artifactDigest(rest); computed != found {
		return nil, mismatch("stored artifact", computed, found, "stored").under("_digest")
	}
	a, err := decodeCanonicalArtifact(canonical)
	if err != nil {
		return nil, stored(err)
	}
	return a, nil
}

// decodeCanonicalArtifact reads canonical bytes whose digest the caller knows to be right.
func decodeCanonicalArtifact(canonical []byte) (*Artifact, *Error) {
	doc, err := openCanonical(canonical)
	if err != nil {
		return nil, err
	}
	defer doc.free()
	return decodeArtifact(newDecoder(doc))
}

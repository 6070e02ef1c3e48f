package chain

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"sync"

	"github.com/tgad/tgad/schemas/tga"
)

// stored lists the pointers whose documents are in the log. A document_hashes member under
// another pointer may describe a document that is kept elsewhere.
var stored = [...]string{tga.PointerResult, tga.PointerStateChanges, tga.PointerEvidence}

// checkDocuments checks that the documents are those that the effect's document_hashes bind.
// Each document must be bound, in the order of the members. Each member under a stored
// pointer must have its document. A document whose bytes the store does not have (erased, or
// over the answer limit when it came) must be in the list as Erased.
func checkDocuments(e *Entry) error {
	fault := func(pointer, why string) error {
		err := tga.Errorf(tga.StateChecksumMismatch, "append seq %d: document %s %s", e.Seq, pointer, why).In(e.TraceID).At(pointer)
		err.Seq, err.Where = e.Seq, "given"
		return err
	}
	if over := frameLimits(e); over != "" {
		err := tga.Errorf(tga.LimitExceeded, "append seq %d: %s", e.Seq, over).In(e.TraceID)
		err.Seq, err.Where = e.Seq, "given"
		return err
	}
	if e.Artifact == nil {
		// Nothing says what the documents should be: they are erased with the artifact
		// that binds them.
		if len(e.Documents) > 0 {
			return fault(e.Documents[0].Pointer, "of an erased artifact")
		}
		return nil
	}
	var bound []tga.DocumentHash
	if e.Artifact.Effect != nil {
		bound = e.Artifact.Effect.DocumentHashes
	}
	rest := e.Documents
	for i, b := range bound {
		if repeated(bound[:i], b.Pointer) {
			return fault(b.Pointer, "is bound twice")
		}
		if len(rest) == 0 || rest[0].Pointer != b.Pointer {
			if isStored(b.Pointer) {
				return fault(b.Pointer, "is bound by document_hashes but not there")
			}
			continue
		}
		d := rest[0]
		rest = rest[1:]
		if d.Erased {
			if len(d.Data) != 0 {
				return fault(d.Pointer, "is erased and has bytes")
			}
			continue
		}
		if b.SizeBytes >= 0 && b.SizeBytes != int64(len(d.Data)) {
			return fault(d.Pointer, "has a size that differs from the one in document_hashes")
		}
		if sum := tga.Sum(d.Data); sum != b.Hash {
			err := tga.Errorf(tga.StateChecksumMismatch, "append seq %d: document %s has digest %s, document_hashes says %s",
				e.Seq, d.Pointer, sum, b.Hash).In(e.TraceID).At(d.Pointer)
			err.Seq, err.Where, err.WantDigest, err.GotDigest = e.Seq, "given", b.Hash, sum
			return err
		}
	}
	if len(rest) != 0 {
		return fault(rest[0].Pointer, "is not bound by document_hashes at its place")
	}
	return nil
}

func isStored(pointer string) bool {
	for _, p := range stored {
		if p == pointer {
			return true
		}
	}
	return false
}

func repeated(before []tga.DocumentHash, pointer string) bool {
	for _, b := range before {
		if b.Pointer == pointer {
			return true
		}
	}
	return false
}

// digestMember opens every canonical artifact: '_' sorts before the lowercase
// letters that the other members start with, and "_digest" before "_digest_alg".
const digestMember = `{"_digest":"`

// artifactDigest recomputes the digest of an artifact from its canonical bytes, without the
// member that holds the digest. ok is false if the bytes do not start with that member, or if
// it holds another digest.
func artifactDigest(canonical []byte) (sum tga.Digest, ok bool) {
	const skip = len(digestMember) + 2*len(tga.Digest{}) + len(`",`)
	if len(canonical) < skip || !bytes.HasPrefix(canonical, []byte(digestMember)) ||
		string(canonical[skip-2:skip]) != `",` {
		return tga.Digest{}, false
	}
	h := hashers.Get().(*hasher)
	h.Reset()
	h.Write(openBrace)
	h.Write(canonical[skip:])
	h.Sum(h.sum[:0])
	sum = h.sum
	hashers.Put(h)
	var text [2 * len(sum)]byte
	hex.Encode(text[:], sum[:])
	return sum, bytes.Equal(text[:], canonical[len(digestMember):skip-2])
}

// hasher is a reusable SHA-256 with room for its result. Without it, each artifact would cost
// an allocation.
type hasher struct {
	hash.Hash
	sum tga.Digest
}

var (
	openBrace = []byte("{")
	hashers   = sync.Pool{New: func() any { return &hasher{Hash: sha256.New()} }}
)

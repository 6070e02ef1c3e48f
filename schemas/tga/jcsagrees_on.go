//go:build jcsagrees

package tga

import (
	"bytes"
	"fmt"

	"github.com/gowebpki/jcs"
)

// assertCanonical compares our canonical form with that of the normative
// implementation. In other builds only the fuzz tests do.
func assertCanonical(raw, canonical []byte) {
	want, err := jcs.Transform(raw)
	if err != nil || !bytes.Equal(want, canonical) {
		panic(fmt.Sprintf("canonical form of %q: ours %q, jcs %q (%v)", raw, canonical, want, err))
	}
}

// assertReadable reads an artifact that was just made, as a store will.
func assertReadable(artifact []byte) {
	if _, err := DecodeStoredArtifact(artifact); err != nil {
		panic(fmt.Sprintf("sealed %s, which nobody can read: %v", artifact, err))
	}
}

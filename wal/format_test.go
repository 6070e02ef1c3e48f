package wal

import (
	"testing"

	"github.com/tgad/tgad/schemas/tga"
)

// TestSegmentHasASizeWithinItsLimits: whole blocks, from MinSegment to MaxSegment.
func TestSegmentHasASizeWithinItsLimits(t *testing.T) {
	for size, good := range map[uint32]bool{
		MinSegment - identityLen: false, MinSegment: true, MinSegment + identityLen: true, MinSegment + 1: false,
		MaxSegment - identityLen: true, MaxSegment: true, MaxSegment + identityLen: false, 0: false,
	} {
		id := Identity{Store: tga.ID{1}, Timeline: tga.ID{2}, Number: 3, Salt: 4, Size: size}
		got, err := decodeIdentity(appendIdentity(nil, id), 3)
		if good && (err != nil || got != id) || !good && tga.CodeOf(err) != tga.StateChecksumMismatch {
			t.Errorf("%d bytes: %+v %v", size, got, err)
		}
	}
}

package segment_test

import (
	"testing"

	"github.com/tgad/tgad/schemas/tga"
	vectors "github.com/tgad/tgad/test_vectors"
)

// A reader takes these bytes: see TestSealedSegmentIsAsItsVectors.
func TestFormatHasItsNumber(t *testing.T) {
	good, _, _ := sealedCases(t)
	vectors.HoldFormat(t, "SealedSegmentVersion", tga.SealedSegmentVersion, good)
}

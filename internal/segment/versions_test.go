package segment_test

import (
	"testing"

	"github.com/tgad/tgad/internal/golden"
	"github.com/tgad/tgad/schemas/tga"
)

// A reader takes these bytes: see TestSealedSegmentIsAsItsVectors.
func TestFormatHasItsNumber(t *testing.T) {
	good, _, _ := sealedCases(t)
	golden.HoldFormat(t, "SealedSegmentVersion", tga.SealedSegmentVersion, good)
}

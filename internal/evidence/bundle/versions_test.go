package bundle

import (
	"testing"

	"github.com/tgad/tgad/internal/golden"
	"github.com/tgad/tgad/schemas/tga"
)

func TestFormatIsNumbered(t *testing.T) {
	golden.HoldFormat(t, "EvidenceBundleVersion", tga.EvidenceBundleVersion,
		golden.Shape(header{}), golden.Shape(noteLine{}), golden.Shape(prefixLine{}), golden.Shape(leafLine{}))
}

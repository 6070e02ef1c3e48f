package bundle

import (
	"testing"

	"github.com/tgad/tgad/schemas/tga"
	vectors "github.com/tgad/tgad/test_vectors"
)

func TestFormatIsNumbered(t *testing.T) {
	vectors.HoldFormat(t, "EvidenceBundleVersion", tga.EvidenceBundleVersion,
		vectors.Shape(header{}), vectors.Shape(noteLine{}), vectors.Shape(prefixLine{}), vectors.Shape(leafLine{}))
}

package bucket

import (
	"testing"

	"github.com/tgad/tgad/internal/golden"
	"github.com/tgad/tgad/schemas/tga"
)

func TestFormatHasItsNumber(t *testing.T) {
	golden.HoldFormat(t, "BucketVersion", tga.BucketVersion, []byte(Format), golden.Shape(head{}), golden.Shape(part{}))
}

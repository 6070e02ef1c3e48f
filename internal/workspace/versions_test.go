package workspace

import (
	"testing"

	"github.com/tgad/tgad/schemas/tga"
	vectors "github.com/tgad/tgad/test_vectors"
)

func TestFormatHasItsNumber(t *testing.T) {
	vectors.HoldFormat(t, "WorkspaceVersion", tga.WorkspaceVersion, vectors.Shape(Record{}))
}

package workspace

import (
	"testing"

	"github.com/tgad/tgad/internal/golden"
	"github.com/tgad/tgad/schemas/tga"
)

func TestFormatHasItsNumber(t *testing.T) {
	golden.HoldFormat(t, "WorkspaceVersion", tga.WorkspaceVersion, golden.Shape(Record{}))
}

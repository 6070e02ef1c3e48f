package turn

import (
	"testing"

	"github.com/tgad/tgad/internal/golden"
	"github.com/tgad/tgad/schemas/tga"
)

func TestFormatsHaveTheirNumbers(t *testing.T) {
	golden.HoldFormat(t, "TurnRecordVersion", tga.TurnRecordVersion, []byte(RecordSchema), golden.Shape(Record{}))
	golden.HoldFormat(t, "SessionVersion", tga.SessionVersion, golden.Shape(sessionItem{}))
	golden.HoldFormat(t, "TurnOpsVersion", tga.TurnOpsVersion, golden.Shape(storedOps{}))
}

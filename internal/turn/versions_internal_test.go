package turn

import (
	"testing"

	"github.com/tgad/tgad/schemas/tga"
	vectors "github.com/tgad/tgad/test_vectors"
)

func TestFormatsHaveTheirNumbers(t *testing.T) {
	vectors.HoldFormat(t, "TurnRecordVersion", tga.TurnRecordVersion, []byte(RecordSchema), vectors.Shape(Record{}))
	vectors.HoldFormat(t, "SessionVersion", tga.SessionVersion, vectors.Shape(sessionItem{}))
	vectors.HoldFormat(t, "TurnOpsVersion", tga.TurnOpsVersion, vectors.Shape(storedOps{}))
}

package workstate

import (
	"testing"

	"github.com/tgad/tgad/internal/golden"
	"github.com/tgad/tgad/schemas/tga"
)

func TestFormatsHaveTheirNumbers(t *testing.T) {
	golden.HoldFormat(t, "WorkingStateVersion", tga.WorkingStateVersion, golden.Shape(headRecord{}), golden.Shape(boundaryRecord{}))
	node := NewNode([]byte("data"), NewNode([]byte("leaf")), NewNode(nil, NewNode(nil)))
	golden.HoldFormat(t, "StateNodeVersion", tga.StateNodeVersion, node.encode())
	golden.HoldFormat(t, "StateRootVersion", tga.StateRootVersion, golden.Shape(rootData{}))
	golden.HoldFormat(t, "SnapshotVersion", tga.SnapshotVersion, golden.Shape(sessionJSON{}), golden.Shape(compositeJSON{}))
}

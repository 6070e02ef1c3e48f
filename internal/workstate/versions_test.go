package workstate

import (
	"testing"

	"github.com/tgad/tgad/schemas/tga"
	vectors "github.com/tgad/tgad/test_vectors"
)

func TestFormatsHaveTheirNumbers(t *testing.T) {
	vectors.HoldFormat(t, "WorkingStateVersion", tga.WorkingStateVersion, vectors.Shape(headRecord{}), vectors.Shape(boundaryRecord{}))
	node := NewNode([]byte("data"), NewNode([]byte("leaf")), NewNode(nil, NewNode(nil)))
	vectors.HoldFormat(t, "StateNodeVersion", tga.StateNodeVersion, node.encode())
	vectors.HoldFormat(t, "StateRootVersion", tga.StateRootVersion, vectors.Shape(rootData{}))
	vectors.HoldFormat(t, "SnapshotVersion", tga.SnapshotVersion, vectors.Shape(sessionJSON{}), vectors.Shape(compositeJSON{}))
}

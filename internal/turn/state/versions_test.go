package state

import (
	"testing"

	"github.com/tgad/tgad/schemas/tga"
	vectors "github.com/tgad/tgad/test_vectors"
)

func TestFormatHasItsNumber(t *testing.T) {
	c := scope{id: tga.ID{1}}
	vectors.HoldFormat(t, "AgentStateVersion", tga.AgentStateVersion, vectors.Shape(head{}),
		c.put("key", cell{version: 1, expires: 2, value: []byte("3")}).Value, c.put("key", cell{version: 1}).Value)
}

package state

import (
	"testing"

	"github.com/tgad/tgad/internal/golden"
	"github.com/tgad/tgad/schemas/tga"
)

func TestFormatHasItsNumber(t *testing.T) {
	c := scope{id: tga.ID{1}}
	golden.HoldFormat(t, "AgentStateVersion", tga.AgentStateVersion, golden.Shape(head{}),
		c.put("key", cell{version: 1, expires: 2, value: []byte("3")}).Value, c.put("key", cell{version: 1}).Value)
}

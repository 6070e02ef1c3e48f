package guard

import (
	"testing"

	"github.com/tgad/tgad/internal/golden"
	"github.com/tgad/tgad/schemas/tga"
)

func TestFormatHasItsNumber(t *testing.T) {
	var slot [slotSize]byte
	m := Mark{Generation: 1, Group: 2, Sum: 3, StoreID: tga.ID{4}, Timeline: tga.ID{5}}
	m.encode(&slot)
	golden.HoldFormat(t, "WatermarkVersion", tga.WatermarkVersion, slot[:])
}

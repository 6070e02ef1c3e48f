package monitor

import (
	"testing"

	"github.com/tgad/tgad/internal/golden"
	"github.com/tgad/tgad/schemas/tga"
)

func TestFormatIsNumbered(t *testing.T) {
	golden.HoldFormat(t, "MonitorStateVersion", tga.MonitorStateVersion, golden.Shape(state{}), golden.Shape(written{}))
}

package ndjson

import (
	"testing"

	"github.com/tgad/tgad/schemas/tga"
)

// TestSizesAtTheirLimits: a line and a trace, each at its limit and one byte over it. The writer and the
// verifier use the same check.
func TestSizesAtTheirLimits(t *testing.T) {
	for _, c := range []struct {
		line  int
		trace int64
		want  tga.Code
	}{
		{0, 0, ""}, {MaxLine, MaxTrace, ""}, {MaxLine + 1, MaxTrace, tga.LimitExceeded}, {MaxLine, MaxTrace + 1, tga.LimitExceeded},
	} {
		if err := checkSize(c.line, c.trace); tga.CodeOf(err) != c.want {
			t.Errorf("a line of %d in a trace of %d: %v", c.line, c.trace, err)
		}
	}
}

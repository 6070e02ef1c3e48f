package ledger_test

import (
	"testing"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
)

// TestClockAheadStretchesNoWindow: if the ts of a call is later than its commit, the window begins
// at the commit.
func TestClockAheadStretchesNoWindow(t *testing.T) {
	for _, at := range []struct{ ts, committed, want tga.Millis }{{5, 9, 5}, {9, 5, 5}, {7, 7, 7}} {
		var c ledger.Change
		c.Appends(tga.RequestType, 1, at.ts, at.committed)
		c.Appends(tga.CallType, 3, at.ts, at.committed)
		if c.Began != 3 || c.BeganTS != at.want || c.Ended != 0 {
			t.Errorf("ts %d, committed %d: %+v", at.ts, at.committed, c)
		}
		if c.Appends(tga.EffectType, 4, at.ts, at.committed); c.Ended != 4 || c.Began != 3 {
			t.Errorf("with its effect: %+v", c)
		}
	}
}

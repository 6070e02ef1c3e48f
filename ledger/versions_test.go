package ledger

import (
	"testing"

	"github.com/tgad/tgad/internal/golden"
	"github.com/tgad/tgad/schemas/tga"
)

func TestFormatHasItsNumber(t *testing.T) {
	r := settled(t, ClassSuccess)
	whole, err := r.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	golden.HoldFormat(t, "LedgerRecordVersion", tga.LedgerRecordVersion, whole)
}

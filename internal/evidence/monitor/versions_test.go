package monitor

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tgad/tgad/internal/evidence/sends"
	"github.com/tgad/tgad/internal/golden"
	"github.com/tgad/tgad/schemas/tga"
)

func TestFormatIsNumbered(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	if _, err := addKeys(path, 0, 7, sends.New(sends.Attested{})); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(keysName(path))
	if err != nil {
		t.Fatal(err)
	}
	golden.HoldFormat(t, "MonitorKeysVersion", tga.MonitorKeysVersion, raw) // its records have the format of the ledger
	golden.HoldFormat(t, "MonitorStateVersion", tga.MonitorStateVersion, golden.Shape(state{}), golden.Shape(written{}))
}

package tree

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/tgad/tgad/internal/golden"
	"github.com/tgad/tgad/schemas/tga"
)

func TestFormatsAreNumbered(t *testing.T) {
	golden.HoldFormat(t, "EvidenceLeafVersion", tga.EvidenceLeafVersion, leaf(1, 2).Append(nil))
	fs := vfs.NewMem()
	if err := writeMark(fs, "/", store, 3, tlog.Hash{4}); err != nil {
		t.Fatal(err)
	}
	header := (&Tree{store: store}).header()
	golden.HoldFormat(t, "EvidenceTreeVersion", tga.EvidenceTreeVersion, header[:], read(t, fs, "/mark"))
}

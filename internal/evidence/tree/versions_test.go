package tree

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/tgad/tgad/schemas/tga"
	vectors "github.com/tgad/tgad/test_vectors"
)

func TestFormatsAreNumbered(t *testing.T) {
	vectors.HoldFormat(t, "EvidenceLeafVersion", tga.EvidenceLeafVersion, leaf(1, 2).Append(nil))
	fs := vfs.NewMem()
	if err := writeMark(fs, "/", store, 3, tlog.Hash{4}); err != nil {
		t.Fatal(err)
	}
	header := (&Tree{store: store}).header()
	vectors.HoldFormat(t, "EvidenceTreeVersion", tga.EvidenceTreeVersion, header[:], read(t, fs, "/mark"))
}

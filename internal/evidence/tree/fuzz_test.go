package tree

import (
	"bytes"
	"testing"

	"github.com/tgad/tgad/schemas/tga"
)

// FuzzLeaf: a leaf has only one encoding.
func FuzzLeaf(f *testing.F) {
	l := leaf(1, 2)
	f.Add(l.Append(nil))
	f.Add(make([]byte, LeafSize))
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := ParseLeaf(b)
		if err != nil {
			if tga.CodeOf(err) != tga.SchemaViolation {
				t.Error(err)
			}
			return
		}
		if !bytes.Equal(l.Append(nil), b) {
			t.Errorf("%x is read as %+v", b, l)
		}
	})
}

package engine

import (
	"slices"
	"testing"

	"github.com/tgad/tgad/schemas/tga"
)

// TestRowsHaveTheLengthOfTheirKind: one byte less or more is no row, nor is an empty one or one of another kind.
func TestRowsHaveTheLengthOfTheirKind(t *testing.T) {
	for kind := range byte(5) {
		for length := range 70 {
			row := make([]byte, length)
			if length > 0 {
				row[0] = kind
			}
			want := length > 0 && (kind == rowValue || kind == rowBody && length == rowBodyLen || kind == rowFile && length == rowFileLen)
			p, err := decodeRow(row)
			if (err == nil) != want || err != nil && tga.CodeOf(err) != tga.StateChecksumMismatch {
				t.Errorf("%d bytes of kind %d: %v", length, kind, err)
			}
			if want && (p.kind != kind || kind == rowValue && len(p.value) != length-1) {
				t.Errorf("%d bytes of kind %d: %+v", length, kind, p)
			}
		}
	}
}

// TestValuesHaveTheirVersionAndSize: a closed one exactly its size, an open one at least that. A later version
// is told from damage whatever its size.
func TestValuesHaveTheirVersionAndSize(t *testing.T) {
	const size = 3
	for _, open := range []bool{false, true} {
		for version := range byte(4) {
			for length := range size + 4 {
				b := append([]byte{version}, make([]byte, size+4)...)[:length]
				want := tga.Code("")
				switch {
				case length > 0 && version > tga.StoreValueVersion:
					want = tga.FormatTooNew
				case length < 1+size, version != tga.StoreValueVersion, !open && length != 1+size:
					want = tga.StateChecksumMismatch
				}
				got, err := value("it", b, size, open)
				if tga.CodeOf(err) != want || err == nil && !slices.Equal(got, b[1:]) {
					t.Errorf("%d bytes of version %d, open %v: %v, %v", length, version, open, got, err)
				}
			}
		}
	}
	for length := range 17 {
		if _, err := number("it", make([]byte, length)); (err == nil) != (length == 8) {
			t.Errorf("a number of %d bytes: %v", length, err)
		}
	}
}

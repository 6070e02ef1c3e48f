package engine

import (
	"slices"
	"strings"
	"testing"

	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
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

// TestNoteIsUnderItsOwnKey: a whole one under the key of another is damage, as one that is not whole is.
func TestNoteIsUnderItsOwnKey(t *testing.T) {
	db, id := inMemory(t), numbered(1, 1)
	id[6], id[8] = 0x70, 0x80 // version 7
	lease, err := db.Acquire(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	b := chain.Batch{
		Artifacts: []chain.NewArtifact{{Artifact: requestOf(t, id)}},
		Notes:     []chain.NewNote{{Kind: "remark", Who: "tester", Body: []byte(`{}`)}},
	}
	if _, err := db.Append(t.Context(), lease, b); err != nil {
		t.Fatal(err)
	}
	rows, err := db.index.rows(id)
	if err != nil || len(rows.notes) != 1 {
		t.Fatal(len(rows.notes), err)
	}
	own := rows.notes[0]
	if n, err := decodeNote(own); err != nil || n.TraceID != id || n.Number != 1 {
		t.Errorf("%+v, %v", n, err)
	}
	const says = "lies under the key of"
	other := id
	other[15]++
	for _, key := range [][]byte{keyspace.AppendNote(nil, id, 2), keyspace.AppendNote(nil, other, 1)} {
		if _, err := decodeNote(kv{key, own.value}); tga.CodeOf(err) != tga.StateChecksumMismatch || !strings.Contains(err.Error(), says) {
			t.Errorf("under the key %x: %v", key, err)
		}
	}
	if _, err := decodeNote(kv{own.key, own.value[:len(own.value)-1]}); err == nil || strings.Contains(err.Error(), says) {
		t.Errorf("of one that is cut short: %v", err)
	}
}

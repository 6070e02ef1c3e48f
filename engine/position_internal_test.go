package engine

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/tgad/tgad/internal/golden"
)

// TestPositionRowOfTheVectors: the position row is the one that the vectors have, both ways.
func TestPositionRowOfTheVectors(t *testing.T) {
	raw, err := golden.Vectors.ReadFile("tga/log_bytes.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Position struct {
			Row, Checksum, Timeline string
			Segment, Group          uint64
			Start, End              uint32
			Keys                    uint64 `json:"ledger_keys"`
			Sum                     string `json:"ledger_sum"`
		}
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	want := file.Position
	row, err := hex.DecodeString(want.Row)
	if err != nil {
		t.Fatal(err)
	}
	p, err := decodePosition(row)
	if err != nil {
		t.Fatal(err)
	}
	if p.at.Segment != want.Segment || p.at.Start != want.Start || p.at.End != want.End || p.at.Group != want.Group || p.keys != want.Keys ||
		fmt.Sprintf("%08x", p.at.Sum) != want.Checksum || fmt.Sprintf("%016x", p.sum) != want.Sum || hex.EncodeToString(p.line[:]) != want.Timeline {
		t.Errorf("%+v, want %+v", p, want)
	}
	if again := p.appendValue([]byte{rowValue}); string(again) != string(row) {
		t.Errorf("written again: %x, was %x", again, row)
	}
}

package guard

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/internal/golden"
	"github.com/tgad/tgad/schemas/tga"
)

type markVector struct {
	Generation, Group         uint64
	Checksum, Store, Timeline string
}

type watermarkVector struct {
	Name  string
	Size  int
	Slots []struct {
		Offset int
		Hex    string
	}
	Mark *markVector
}

func (v *watermarkVector) bytes(t *testing.T) []byte {
	t.Helper()
	raw := make([]byte, v.Size)
	for _, s := range v.Slots {
		b, err := hex.DecodeString(s.Hex)
		if err != nil || s.Offset+len(b) > len(raw) {
			t.Fatalf("%s: slot at %d: %v", v.Name, s.Offset, err)
		}
		copy(raw[s.Offset:], b)
	}
	return raw
}

func watermarkVectors(t *testing.T) []watermarkVector {
	t.Helper()
	raw, err := golden.Vectors.ReadFile("tga/watermark.json")
	var all struct{ Cases []watermarkVector }
	if err == nil {
		err = json.Unmarshal(raw, &all)
	}
	if err != nil || len(all.Cases) == 0 {
		t.Fatalf("%d vectors, %v", len(all.Cases), err)
	}
	return all.Cases
}

// TestWatermarkIsReadAsItsVectors: whole, damaged and cut.
func TestWatermarkIsReadAsItsVectors(t *testing.T) {
	for _, v := range watermarkVectors(t) {
		fs := vfs.NewMem()
		f, err := fs.Create(WatermarkName, vfs.WriteCategoryUnspecified)
		if err == nil {
			_, err = f.Write(v.bytes(t))
		}
		if err != nil || f.Close() != nil {
			t.Fatal(err)
		}
		m, err := ReadWatermark(fs, "")
		if v.Mark == nil {
			if tga.CodeOf(err) != tga.StateChecksumMismatch {
				t.Errorf("%s: %+v, %v; want it refused", v.Name, m, err)
			}
			continue
		}
		got := markVector{m.Generation, m.Group, fmt.Sprintf("%08x", m.Sum), hex.EncodeToString(m.StoreID[:]), hex.EncodeToString(m.Timeline[:])}
		if err != nil || got != *v.Mark {
			t.Errorf("%s: %+v, %v; want %+v", v.Name, got, err, *v.Mark)
		}
	}
}

// TestWatermarkIsWrittenAsItsVector: the first vector is what a store leaves that was made at group 7
// and went on to group 8.
func TestWatermarkIsWrittenAsItsVector(t *testing.T) {
	want := watermarkVectors(t)[0].bytes(t)
	fs := vfs.NewMem()
	mark := Mark{Group: 7, Sum: 0xa1b2c3d4}
	for i := range mark.StoreID {
		mark.StoreID[i], mark.Timeline[i] = byte(0x10+i), byte(0x20+i)
	}
	w, err := CreateWatermark(fs, "", mark)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Advance(8, 0x01020304); err != nil {
		t.Fatal(err)
	}
	f, err := fs.Open(WatermarkName)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(f)
	if err != nil || string(got) != string(want) {
		t.Errorf("%v; slots %x and %x, want %x and %x", err, got[:slotSize], got[slotStride:slotStride+slotSize], want[:slotSize], want[slotStride:slotStride+slotSize])
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

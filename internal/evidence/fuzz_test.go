package evidence_test

import (
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/evidence"
)

// FuzzSeen: the statement of a client about what it has seen has only one form.
func FuzzSeen(f *testing.F) {
	f.Add(evidence.Seen{Size: 12}.String())
	f.Add("1 x")
	f.Fuzz(func(t *testing.T, text string) {
		if s, err := evidence.ParseSeen(text); err == nil && (s.String() != text || s.Size < 0) {
			t.Errorf("%q is read as %v", text, s)
		}
	})
}

// FuzzTilePath: a tile has only one path, the one of C2SP tlog-tiles.
func FuzzTilePath(f *testing.F) {
	for _, path := range []string{"0/000", "0/x001/x234/067", "1/000.p/5", "entries/000.p/255", "data/000", "6/000", "63/000", "0/000.p/256"} {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, path string) {
		tile, err := evidence.ParseTile(path)
		if err != nil {
			return
		}
		back := strings.TrimPrefix(tile.Path(), "tile/8/")
		if tile.L == evidence.EntriesLevel {
			back = "entries" + strings.TrimPrefix(back, "data")
		}
		if back != path || tile.L > 6 || tile.L < evidence.EntriesLevel || tile.W < 1 || tile.W > 256 || tile.N < 0 {
			t.Errorf("%q is read as %+v", path, tile)
		}
	})
}

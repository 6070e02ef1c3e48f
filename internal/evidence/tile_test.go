package evidence_test

import (
	"testing"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/tgad/tgad/internal/evidence"
	"github.com/tgad/tgad/schemas/tga"
)

// TestTilesAreCovered: leaves that no checkpoint covers are not shown, since they could still be taken back.
func TestTilesAreCovered(t *testing.T) {
	s := newStand(t)
	s.options.Every = time.Hour
	s.open()
	s.append(1)
	want := []tlog.Tile{{H: 8, L: 0, N: 0, W: 1}, {H: 8, L: evidence.EntriesLevel, N: 0, W: 1}}
	for _, tile := range want {
		if _, err := s.k.Tile(t.Context(), tile); tga.CodeOf(err) != tga.NotFound {
			t.Errorf("%+v before a checkpoint: %v", tile, err)
		}
	}
	s.close()
	s.open()
	for _, tile := range want {
		if raw, err := s.k.Tile(t.Context(), tile); err != nil || len(raw) == 0 {
			t.Errorf("%+v: %d bytes, %v", tile, len(raw), err)
		}
	}
	s.append(2)
	// The follower adds the append to the tree a moment later. It must not be shown before the close.
	for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if _, err := s.k.Tile(t.Context(), tlog.Tile{H: 8, L: 0, N: 0, W: int(s.db.Cursor())}); tga.CodeOf(err) != tga.NotFound {
			t.Fatalf("%d appends, %d signed: %v", s.db.Cursor(), s.k.Signed(), err)
		}
	}
	s.close()
}

package monitor

import (
	"context"
	"strings"

	"golang.org/x/mod/sumdb/tlog"
)

// headOf computes the head that the remembered tree had with size leaves. It reads tiles from the
// store and checks each against the remembered head, so the store cannot invent them.
func (m *Monitor) headOf(ctx context.Context, size int64) (tlog.Hash, error) {
	r := &tiles{ctx: ctx, from: m.from}
	head, err := tlog.TreeHash(size, tlog.TileHashReader(tlog.Tree{N: m.state.size, Hash: m.state.head}, r))
	switch {
	case r.err != nil:
		return head, m.answer(r.err)
	case err != nil:
		return head, m.contradicted(Evidence, nil, "the tiles of the store are not those of its tree of %d appends: %v", m.state.size, err)
	}
	return head, nil
}

// tiles reads tiles of a source for package tlog.
type tiles struct {
	ctx  context.Context
	from Source
	err  error // of the source; package tlog would not distinguish it from a wrong tile
}

func (t *tiles) Height() int                     { return tileHeight }
func (t *tiles) SaveTiles([]tlog.Tile, [][]byte) {} // no cache: they are few, and read once

func (t *tiles) ReadTiles(want []tlog.Tile) ([][]byte, error) {
	var out [][]byte
	for _, tile := range want {
		// Paths of tlog-tiles do not have the height, which is always 8.
		raw, err := t.from.Tile(t.ctx, strings.Replace(tile.Path(), "tile/8/", "tile/", 1))
		if err != nil {
			t.err = err
			return nil, err
		}
		out = append(out, raw)
	}
	return out, nil
}

// tileHeight is that of C2SP tlog-tiles: a tile has 256 hashes.
const tileHeight = 8

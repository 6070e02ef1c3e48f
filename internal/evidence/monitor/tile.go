package monitor

import (
	"context"
	"strings"

	"golang.org/x/mod/sumdb/tlog"
)

// headOf computes which head the remembered tree had when it had size leaves. Tiles of the store
// say so; each is checked against the remembered head, so a store cannot choose them.
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
	err  error // of the source, which tlog does not tell from a tile that is wrong
}

func (t *tiles) Height() int                     { return tileHeight }
func (t *tiles) SaveTiles([]tlog.Tile, [][]byte) {} // they are few, and asked for once

func (t *tiles) ReadTiles(want []tlog.Tile) ([][]byte, error) {
	var out [][]byte
	for _, tile := range want {
		// tlog-tiles has one height, and so no height in its paths.
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

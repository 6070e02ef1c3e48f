package evidence

import (
	"context"
	"encoding/binary"
	"strings"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/tgad/tgad/internal/evidence/tree"
	"github.com/tgad/tgad/schemas/tga"
)

// EntriesLevel is the level of a tile that has leaves in place of hashes.
const EntriesLevel = -1

// ParseTile reads the part of a tile's path after "tile/", as in C2SP tlog-tiles: a level, or
// "entries", and a number in groups of three digits, such as x001/234. With ".p/5" at its end the
// path is that of the first five alone. Each tile has one path.
func ParseTile(path string) (tlog.Tile, error) {
	level, rest, _ := strings.Cut(path, "/")
	if level == "entries" {
		level = "data"
	} else if level == "data" {
		level = "" // refuse tlog's own name for entries, which tlog-tiles does not have
	}
	// A path of package tlog has the height of tiles; in tlog-tiles that is always 8.
	tile, err := tlog.ParseTilePath("tile/8/" + level + "/" + rest)
	if err != nil || tile.L > 6 {
		return tile, tga.Errorf(tga.NotFound, "there is no tile %.100q", path)
	}
	return tile, nil
}

// Tile returns a tile that the newest checkpoint covers: up to 256 hashes, one after the other, or
// for [EntriesLevel] the leaves, each after its length in two bytes. NOT_FOUND: the checkpoint does
// not cover the whole tile.
func (k *Keeper) Tile(ctx context.Context, tile tlog.Tile) ([]byte, error) {
	level := max(tile.L, 0)
	if tile.N < 0 || tile.N > 1<<40 || tile.W < 1 || tile.N<<tree.TileHeight+int64(tile.W) > k.kept()>>(tree.TileHeight*level) {
		return nil, tga.Errorf(tga.NotFound, "no checkpoint covers tile %d of level %d with %d hashes", tile.N, tile.L, tile.W)
	}
	if tile.L != EntriesLevel {
		return k.tree.Tile(tile)
	}
	first := uint64(tile.N) << tree.TileHeight // leaves before it
	leaves, err := k.behind(ctx, first, first+uint64(tile.W))
	var b []byte
	for i := range leaves {
		b = leaves[i].Append(binary.BigEndian.AppendUint16(b, tree.LeafSize))
	}
	return b, err
}

package tree

import (
	"golang.org/x/mod/sumdb/tlog"

	"github.com/tgad/tgad/schemas/tga"
)

// proving computes heads and proofs from the hashes of a tree, wherever those are stored.
type proving struct {
	from interface {
		tlog.HashReader
		Size() int64
	}
}

// Head returns the head that the tree had with size leaves. The head of an empty tree is SHA-256
// of nothing (RFC 6962).
func (t proving) Head(size int64) (tlog.Hash, error) {
	if err := t.within(0, size); err != nil {
		return tlog.Hash{}, err
	}
	return tlog.TreeHash(size, t.from)
}

// Prove returns the proof that the leaf of an index, from 1, is in the tree of size leaves.
func (t proving) Prove(index uint64, size int64) (tlog.RecordProof, error) {
	if err := t.within(1, size); err != nil {
		return nil, err
	}
	if index == 0 || index > uint64(size) {
		return nil, tga.Errorf(tga.NotFound, "tree of %d leaves: no leaf %d", size, index)
	}
	return tlog.ProveRecord(size, int64(index)-1, t.from)
}

// ProvePrefix returns the proof that the tree of size leaves grew from that of old leaves.
func (t proving) ProvePrefix(old, size int64) (tlog.TreeProof, error) {
	if err := t.within(1, size); err != nil {
		return nil, err
	}
	if old < 1 || old > size {
		return nil, tga.Errorf(tga.ValidationError, "tree of %d leaves: no older one of %d", size, old)
	}
	return tlog.ProveTree(size, old, t.from)
}

func (t proving) within(least, size int64) error {
	if have := t.from.Size(); size < least || size > have {
		return tga.Errorf(tga.NotFound, "tree of %d leaves: none of %d", have, size)
	}
	return nil
}

// TileHeight is the height of the tiles of C2SP tlog-tiles: 256 hashes each.
const TileHeight = 8

const (
	tileWidth  = 1 << TileHeight // hashes
	tileLevels = 7               // levels of tiles that a tree can have
)

// Tile returns the hashes of a tile.
func (t *Tree) Tile(tile tlog.Tile) ([]byte, error) {
	if err := t.holds(tile); err != nil {
		return nil, err
	}
	return tlog.ReadTileData(tile, t)
}

// holds refuses a tile that the tree does not have.
func (t proving) holds(tile tlog.Tile) error {
	if tile.H != TileHeight || tile.L < 0 || tile.L >= tileLevels || tile.N < 0 || tile.N > 1<<40 || tile.W < 1 || tile.W > tileWidth {
		return tga.Errorf(tga.NotFound, "there is no tile %+v", tile)
	}
	if have := t.from.Size() >> (TileHeight * tile.L); tile.N<<TileHeight+int64(tile.W) > have {
		return tga.Errorf(tga.NotFound, "the tree has not grown to tile %+v", tile)
	}
	return nil
}

package tree

import (
	"container/list"
	"sync"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/tgad/tgad/schemas/tga"
)

// Tiles is where a [Tiled] tree reads what it does not have in memory. Several goroutines call its methods
// concurrently.
type Tiles interface {
	// Whole returns how many tiles of each level are kept, from the first on and without a gap.
	Whole() (levels []int64, err error)
	// Tiles returns at most most tiles of a level, from a number on, up to the first one that is not kept.
	Tiles(level int, first int64, most int) ([][]byte, error)
	// Leaf returns the hash of a leaf as the log has it now, by its number in the tree, from 0.
	Leaf(number int64) (tlog.Hash, error)
	// Leaves returns the hashes of some leaves as the log has them now.
	Leaves(first int64, most int) ([]tlog.Hash, error)
}

// FullTile is a tile with all its 256 hashes.
type FullTile struct {
	Level  int
	Number int64
	Hashes []byte
}

type tileAt struct {
	level  int
	number int64
}

// Tiled is a tree whose full tiles are kept elsewhere, and never change there. The last tile of each level, which
// still grows, is only in memory: it is computed from the tiles below it, and that of the lowest level from the log.
// A full tile that is not kept, because it is new or because somebody removed it, is computed from the log too.
type Tiled struct {
	proving
	tiles Tiles

	mu    sync.RWMutex
	size  int64                   // leaves
	last  Leaf                    // the leaf that was appended last; zero if none was since the tree was opened
	tails [tileLevels][]tlog.Hash // the last tile of each level
	fresh map[tileAt][]byte       // full tiles that are not known to be kept
	order []FullTile              // the same, in the order in which they became full
	known cache
}

// OpenTiled opens a tree with the leaves of the kept tiles, and with at most end leaves. The caller appends the leaves
// after that. If the newest leaf in the tiles is not the one in the log, the tiles are not trusted: OpenTiled returns an
// empty tree, which the caller makes again from the log.
func OpenTiled(from Tiles, end int64) (*Tiled, error) {
	t := NewTiled(from)
	whole, err := from.Whole()
	if err != nil || len(whole) == 0 {
		return t, err
	}
	below := min(whole[0], end>>TileHeight) // tiles of the level below
	for level := 1; level < tileLevels; level++ {
		kept := int64(0)
		if level < len(whole) {
			kept = whole[level]
		}
		if shift := TileHeight * level; below>>shift > kept { // a tile is missing: the tree ends before it
			below = (kept+1)<<shift - 1
		}
	}
	if below == 0 {
		return t, nil
	}
	t.size = below << TileHeight
	for level := 1; level < tileLevels && below > 0; level++ {
		first := below &^ (tileWidth - 1)
		got, err := from.Tiles(level-1, first, int(below-first))
		if err != nil {
			return nil, err
		}
		if int64(len(got)) != below-first {
			return nil, tga.Errorf(tga.StateChecksumMismatch, "tree: tile %d of level %d is not there any more", first+int64(len(got)), level-1)
		}
		for _, hashes := range got {
			t.tails[level] = append(t.tails[level], rootOf(hashes))
		}
		below >>= TileHeight
	}
	want, err := from.Leaf(t.size - 1)
	if err != nil {
		return nil, err
	}
	if got, err := t.ReadHashes([]int64{tlog.StoredHashIndex(0, t.size-1)}); err != nil || got[0] != want {
		return NewTiled(from), err
	}
	return t, nil
}

// NewTiled returns an empty tree. It reads a kept tile only after it has grown past that tile.
func NewTiled(from Tiles) *Tiled {
	t := &Tiled{tiles: from, fresh: map[tileAt][]byte{}}
	t.known.init()
	t.from = t
	return t
}

// rootOf is the hash above a full tile.
func rootOf(hashes []byte) tlog.Hash {
	var nodes [tileWidth]tlog.Hash
	for i := range nodes {
		copy(nodes[i][:], hashes[i*tlog.HashSize:])
	}
	for n := tileWidth; n > 1; n /= 2 {
		for i := range n / 2 {
			nodes[i] = tlog.NodeHash(nodes[2*i], nodes[2*i+1])
		}
	}
	return nodes[0]
}

func joined(hashes []tlog.Hash) []byte {
	b := make([]byte, 0, len(hashes)*tlog.HashSize)
	for i := range hashes {
		b = append(b, hashes[i][:]...)
	}
	return b
}

// Size returns how many leaves the tree has.
func (t *Tiled) Size() int64 {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.size
}

// Last returns the leaf that was appended last; ok is false if none was since the tree was opened.
func (t *Tiled) Last() (l Leaf, ok bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.last, t.last.Index > 0
}

// Append adds the next leaf.
func (t *Tiled) Append(l *Leaf) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l.Index != uint64(t.size)+1 {
		return tga.Errorf(tga.ValidationError, "tree: leaf %d follows %d", l.Index, t.size)
	}
	h := l.Hash()
	for level := range t.tails {
		t.tails[level] = append(t.tails[level], h)
		if len(t.tails[level]) < tileWidth {
			break
		}
		f := FullTile{level, t.size >> (TileHeight * (level + 1)), joined(t.tails[level])}
		t.fresh[tileAt{level, f.Number}] = f.Hashes
		t.order = append(t.order, f)
		t.tails[level] = t.tails[level][:0]
		h = rootOf(f.Hashes)
	}
	t.size, t.last = t.size+1, *l
	return nil
}

// Fresh returns the tiles that became full and are not known to be kept, oldest first.
func (t *Tiled) Fresh() []FullTile {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.order[:len(t.order):len(t.order)]
}

// Kept drops the first n of the fresh tiles from memory, because they are kept or can be computed from the log. They
// are read again when they are needed.
func (t *Tiled) Kept(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range t.order[:n] {
		delete(t.fresh, tileAt{f.Level, f.Number})
	}
	t.order = append([]FullTile(nil), t.order[n:]...)
}

// Mark does nothing: the tree is durable because its tiles are kept.
func (t *Tiled) Mark() error { return nil }

// Close does nothing.
func (t *Tiled) Close() error { return nil }

// Tile returns the hashes of a tile.
func (t *Tiled) Tile(tile tlog.Tile) ([]byte, error) {
	if err := t.holds(tile); err != nil {
		return nil, err
	}
	return t.data(tile)
}

// ReadHashes returns stored hashes by their index, for package tlog.
func (t *Tiled) ReadHashes(at []int64) ([]tlog.Hash, error) {
	out := make([]tlog.Hash, len(at))
	for i, index := range at {
		tile := tlog.TileForIndex(TileHeight, index)
		data, err := t.data(tile)
		if err == nil {
			out[i], err = tlog.HashFromTile(tile, data, index)
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// data returns the hashes of a tile that the tree has.
func (t *Tiled) data(tile tlog.Tile) ([]byte, error) {
	n := tile.W * tlog.HashSize
	t.mu.RLock()
	full := tile.N < t.size>>(TileHeight*(tile.L+1))
	if !full {
		defer t.mu.RUnlock()
		if tail := t.tails[tile.L]; tile.N == t.size>>(TileHeight*(tile.L+1)) && tile.W <= len(tail) {
			return joined(tail[:tile.W]), nil
		}
		return nil, tga.Errorf(tga.NotFound, "tree of %d leaves: no tile %+v", t.size, tile)
	}
	fresh := t.fresh[tileAt{tile.L, tile.N}]
	t.mu.RUnlock()
	if fresh != nil {
		return fresh[:n:n], nil
	}
	hashes, err := t.full(tileAt{tile.L, tile.N})
	if err != nil {
		return nil, err
	}
	return hashes[:n:n], nil
}

// full returns a full tile that is not fresh: the kept one, or if none is kept, one computed from the log.
func (t *Tiled) full(at tileAt) ([]byte, error) {
	if hashes := t.known.get(at); hashes != nil {
		return hashes, nil
	}
	got, err := t.tiles.Tiles(at.level, at.number, 1)
	if err != nil {
		return nil, err
	}
	var hashes []byte
	switch {
	case len(got) == 1 && len(got[0]) == tileWidth*tlog.HashSize:
		hashes = got[0]
	case len(got) > 0:
		return nil, tga.Errorf(tga.StateChecksumMismatch, "tree: tile %d of level %d has %d bytes", at.number, at.level, len(got[0]))
	case at.level == 0:
		leaves, err := t.tiles.Leaves(at.number<<TileHeight, tileWidth)
		if err == nil && len(leaves) != tileWidth {
			err = tga.Errorf(tga.StateChecksumMismatch, "tree: the log lacks leaves behind %d", at.number<<TileHeight+int64(len(leaves)))
		}
		if err != nil {
			return nil, err
		}
		hashes = joined(leaves)
	default:
		for i := range int64(tileWidth) {
			below, err := t.full(tileAt{at.level - 1, at.number<<TileHeight + i})
			if err != nil {
				return nil, err
			}
			root := rootOf(below)
			hashes = append(hashes, root[:]...)
		}
	}
	t.known.put(at, hashes)
	return hashes, nil
}

// cache has the most recently used tiles.
type cache struct {
	mu   sync.Mutex
	used *list.List // of *cached, the last used in front
	at   map[tileAt]*list.Element
}

type cached struct {
	at     tileAt
	hashes []byte
}

// cacheTiles is how many tiles of 8 KiB are kept in memory: those of a few proofs.
const cacheTiles = 64

func (c *cache) init() { c.used, c.at = list.New(), map[tileAt]*list.Element{} }

func (c *cache) get(at tileAt) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.at[at]
	if e == nil {
		return nil
	}
	c.used.MoveToFront(e)
	return e.Value.(*cached).hashes
}

func (c *cache) put(at tileAt, hashes []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at[at] != nil {
		return
	}
	c.at[at] = c.used.PushFront(&cached{at, hashes})
	if c.used.Len() > cacheTiles {
		last := c.used.Remove(c.used.Back()).(*cached)
		delete(c.at, last.at)
	}
}

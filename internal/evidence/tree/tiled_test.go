package tree

import (
	"bytes"
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/mod/sumdb/tlog"
)

// shelf keeps tiles in memory, beside a log with the given number of leaves.
type shelf struct {
	log    byte
	leaves int64
	tiles  map[tileAt][]byte
	asked  int // for tiles
	away   error
}

func (s *shelf) Whole() ([]int64, error) {
	var levels []int64
	for level := range tileLevels {
		n := int64(0)
		for s.tiles[tileAt{level, n}] != nil {
			n++
		}
		levels = append(levels, n)
	}
	return levels, s.away
}

func (s *shelf) Tiles(level int, first int64, most int) (list [][]byte, err error) {
	s.asked++
	for i := range int64(most) {
		tile := s.tiles[tileAt{level, first + i}]
		if tile == nil {
			break
		}
		list = append(list, tile)
	}
	return list, s.away
}

func (s *shelf) Leaf(n int64) (tlog.Hash, error) {
	got, err := s.Leaves(n, 1)
	if err != nil || len(got) == 0 {
		return tlog.Hash{}, err
	}
	return got[0], nil
}

func (s *shelf) Leaves(first int64, most int) (list []tlog.Hash, err error) {
	for i := first; i < min(s.leaves, first+int64(most)); i++ {
		list = append(list, leaf(s.log, uint64(i)+1).Hash())
	}
	return list, s.away
}

func (s *shelf) keep(t *Tiled) {
	fresh := t.Fresh()
	for _, f := range fresh {
		s.tiles[tileAt{f.Level, f.Number}] = f.Hashes
	}
	t.Kept(len(fresh))
}

func (s *shelf) grow(t *testing.T, tr *Tiled, to int64) {
	t.Helper()
	for tr.Size() < to {
		if err := tr.Append(leaf(s.log, uint64(tr.Size())+1)); err != nil {
			t.Fatal(err)
		}
	}
	s.leaves = max(s.leaves, to)
}

// TestTiledIsTheSameTree: heads, proofs and tiles equal those of the tree in files, wherever the tiles are:
// still in memory, kept, or removed; also when the tree is opened anew.
func TestTiledIsTheSameTree(t *testing.T) {
	const most = 66_000 // more than 256 tiles
	want := open(t, vfs.NewMem())
	grow(t, want, most)
	s := &shelf{tiles: map[tileAt][]byte{}}
	tr := NewTiled(s)
	s.grow(t, tr, most)
	same := func(what string, tr *Tiled) {
		t.Helper()
		if tr.Size() != most {
			t.Fatalf("%s: %d leaves", what, tr.Size())
		}
		for _, size := range []int64{0, 1, 255, 256, 257, 511, 4096, 65_535, 65_536, 65_537, most} {
			h, err := tr.Head(size)
			if w, werr := want.Head(size); err != nil || werr != nil || h != w {
				t.Errorf("%s: head of %d leaves %v, want %v: %v, %v", what, size, h, w, err, werr)
			}
			if size == 0 {
				continue
			}
			p, err := tr.Prove(uint64(size), most)
			if err == nil {
				err = tlog.CheckRecord(p, most, second2(want.Head(most)), size-1, leaf(0, uint64(size)).Hash())
			}
			if err != nil {
				t.Errorf("%s: leaf %d: %v", what, size, err)
			}
			g, err := tr.ProvePrefix(size, most)
			if w, werr := want.ProvePrefix(size, most); err != nil || werr != nil || len(g) != len(w) {
				t.Errorf("%s: prefix %d: %v, %v", what, size, err, werr)
			}
		}
		for _, tile := range []tlog.Tile{{L: 0, N: 0, W: 256}, {L: 0, N: 100, W: 3}, {L: 0, N: 257, W: 208}, {L: 1, N: 0, W: 256}, {L: 1, N: 1, W: 1}, {L: 2, N: 0, W: 1}, {L: 0, N: 257, W: 209}, {L: 3, N: 0, W: 1}} {
			tile.H = TileHeight
			got, err := tr.Tile(tile)
			if w, werr := want.Tile(tile); !bytes.Equal(got, w) || (err == nil) != (werr == nil) {
				t.Errorf("%s: tile %+v: %v, want %v", what, tile, err, werr)
			}
		}
	}
	same("in memory", tr)
	s.keep(tr)
	same("kept", tr)
	opened := func(what string) *Tiled {
		t.Helper()
		tr, err := OpenTiled(s, s.leaves)
		if err != nil {
			t.Fatal(err)
		}
		from := tr.Size()
		s.grow(t, tr, most)
		same(what, tr)
		t.Logf("%s: opened with %d leaves", what, from)
		return tr
	}
	if tr := opened("opened"); tr.Size() < 257*256 {
		t.Errorf("it had %d leaves", tr.Size())
	}
	tile := s.tiles[tileAt{0, 9}]
	delete(s.tiles, tileAt{0, 9})
	opened("a tile of the lowest level is gone")
	s.tiles[tileAt{0, 9}] = tile
	delete(s.tiles, tileAt{1, 0})
	opened("one above is gone")
	again := NewTiled(s)
	s.grow(t, again, most)
	again.Kept(len(again.Fresh()))
	same("the tree let go of its tiles, of which one is gone", again)
}

func second2(h tlog.Hash, _ error) tlog.Hash { return h }

// TestForeignTilesAreNotBelieved: tiles of another log are not accepted, and a log with fewer leaves than
// its tiles does not get more of them.
func TestForeignTilesAreNotBelieved(t *testing.T) {
	s := &shelf{tiles: map[tileAt][]byte{}}
	tr := NewTiled(s)
	s.grow(t, tr, 1000)
	s.keep(tr)
	if tr, err := OpenTiled(s, 700); err != nil || tr.Size() != 512 {
		t.Errorf("a log of 700 leaves: %d, %v", tr.Size(), err)
	}
	other := &shelf{log: 1, leaves: 1000, tiles: s.tiles}
	if tr, err := OpenTiled(other, 1000); err != nil || tr.Size() != 0 {
		t.Errorf("another log: %d leaves, %v", tr.Size(), err)
	}
	s.tiles[tileAt{0, 1}] = []byte("short")
	tr = NewTiled(s)
	s.grow(t, tr, 1000)
	tr.Kept(len(tr.Fresh()))
	if _, err := tr.Prove(300, 1000); err == nil {
		t.Error("a proof out of a tile that is cut")
	}
	s.away = errors.New("away")
	if _, err := OpenTiled(s, 1000); !errors.Is(err, s.away) {
		t.Errorf("nobody answers: %v", err)
	}
}

// TestTilesAreAskedForOnce: proofs of neighbouring leaves read a tile once.
func TestTilesAreAskedForOnce(t *testing.T) {
	s := &shelf{tiles: map[tileAt][]byte{}}
	tr := NewTiled(s)
	s.grow(t, tr, 1<<12)
	s.keep(tr)
	for i := range uint64(1 << 12) {
		if _, err := tr.Prove(i+1, 1<<12); err != nil {
			t.Fatal(err)
		}
	}
	if s.asked != 16 {
		t.Errorf("16 tiles were read %d times", s.asked)
	}
}

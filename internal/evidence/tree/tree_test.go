package tree

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/tgad/tgad/internal/crashtest/crashmem"
	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/schemas/tga"
)

// leaf makes the leaf of an index. Other logs have other leaves.
func leaf(log byte, index uint64) *Leaf {
	l := &Leaf{Index: index, TraceID: tga.ID{log, byte(index)}, FirstSeq: index, Entries: 1, Committed: tga.Millis(1000 + index)}
	binary.BigEndian.PutUint64(l.HeadDigest[:], index)
	return l
}

func ofLog(log byte) func(int64) (tlog.Hash, error) {
	return func(n int64) (tlog.Hash, error) { return leaf(log, uint64(n)+1).Hash(), nil }
}

var store = tga.ID{1, 2, 3}

func open(t *testing.T, fs vfs.FS) *Tree {
	t.Helper()
	tr, err := Open(fs, "/store", store, ofLog(0))
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func grow(t *testing.T, tr *Tree, to int64) {
	t.Helper()
	for tr.Size() < to {
		if err := tr.Append(leaf(0, uint64(tr.Size())+1)); err != nil {
			t.Fatal(err)
		}
	}
}

// head is the head of RFC 6962 §2.1 over n leaves, computed by the definition.
func head(from, n uint64) tlog.Hash {
	switch n {
	case 0:
		return sha256.Sum256(nil)
	case 1:
		return sha256.Sum256(leaf(0, from+1).Append([]byte{0}))
	}
	k := uint64(1)
	for k*2 < n {
		k *= 2
	}
	l, r := head(from, k), head(from+k, n-k)
	return sha256.Sum256(bytes.Join([][]byte{{1}, l[:], r[:]}, nil))
}

func TestHeadsAreThoseOfRFC6962(t *testing.T) {
	serial.Test(t)
	tr := open(t, vfs.NewMem())
	for n := range int64(600) {
		got, err := tr.Head(n)
		if want := head(0, uint64(n)); err != nil || got != want {
			t.Fatalf("head of %d leaves: %v, %v, want %v", n, got, err, want)
		}
		grow(t, tr, n+1)
	}
}

func TestEveryProofHolds(t *testing.T) {
	const most = 40
	tr := open(t, vfs.NewMem())
	grow(t, tr, most)
	for size := int64(1); size <= most; size++ {
		h := head(0, uint64(size))
		for i := uint64(1); i <= uint64(size); i++ {
			p, err := tr.Prove(i, size)
			if err == nil {
				err = tlog.CheckRecord(p, size, h, int64(i)-1, leaf(0, i).Hash())
			}
			if err != nil {
				t.Fatalf("leaf %d of %d: %v", i, size, err)
			}
			if tlog.CheckRecord(p, size, h, int64(i)-1, leaf(1, i).Hash()) == nil {
				t.Fatalf("leaf %d of %d: another leaf has its proof", i, size)
			}
			q, err := tr.ProvePrefix(int64(i), size)
			if err == nil {
				err = tlog.CheckTree(q, size, h, int64(i), head(0, i))
			}
			if err != nil {
				t.Fatalf("%d leaves of %d: %v", i, size, err)
			}
		}
	}
	for _, err := range []error{
		second(tr.Prove(0, most)), second(tr.Prove(most+1, most)), second(tr.Prove(1, most+1)), second(tr.Prove(1, 0)),
		second(tr.ProvePrefix(0, most)), second(tr.ProvePrefix(most, most-1)), second(tr.ProvePrefix(1, most+1)),
		second(tr.Head(most + 1)), second(tr.Head(-1)),
	} {
		if err == nil {
			t.Error("a proof of what is not there")
		}
	}
}

func second[T any](_ T, err error) error { return err }

// TestTiles: the tiles are those that package tlog makes from the same hashes, and no tile is larger than
// the tree.
func TestTiles(t *testing.T) {
	tr := open(t, vfs.NewMem())
	const size = 256*3 + 5
	grow(t, tr, size)
	for _, tile := range tlog.NewTiles(TileHeight, 0, size) {
		data, err := tr.Tile(tile)
		if err != nil || len(data) != tile.W*tlog.HashSize {
			t.Fatalf("tile %+v: %d bytes, %v", tile, len(data), err)
		}
		want := leaf(0, uint64(tile.N)<<TileHeight+1).Hash()
		if tile.L == 1 {
			want = head(0, 256)
		}
		if tlog.Hash(data[:32]) != want {
			t.Errorf("tile %+v begins with another hash", tile)
		}
	}
	for _, tile := range []tlog.Tile{{H: 8, N: 3, W: 6}, {H: 8, N: 4, W: 1}, {H: 8, L: 1, W: 4}, {H: 8, L: 7, W: 1}, {H: 8, L: -1, W: 1}, {H: 8, W: 257}, {H: 8}, {H: 7, W: 1}, {H: 8, N: -1, W: 1}, {H: 8, N: 1 << 62, W: 1}} {
		if _, err := tr.Tile(tile); tga.CodeOf(err) != tga.NotFound {
			t.Errorf("tile %+v: %v", tile, err)
		}
	}
}

func TestTreeGoesOnWhereItWasMarked(t *testing.T) {
	fs := vfs.NewMem()
	for n := int64(0); n < 3000; n += 1 + n/3 {
		tr := open(t, fs)
		if tr.Size() != n {
			t.Fatalf("opened with %d leaves, want %d", tr.Size(), n)
		}
		grow(t, tr, n+1+n/3)
		if err := tr.Mark(); err != nil {
			t.Fatal(err)
		}
		if got, err := tr.Head(tr.Size()); err != nil || got != head(0, uint64(tr.Size())) {
			t.Fatalf("%d leaves: %v", tr.Size(), err)
		}
		if err := tr.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestForeignTreeIsMadeAgain(t *testing.T) {
	serial.Test(t)
	made := func() vfs.FS {
		fs := vfs.NewMem()
		tr := open(t, fs)
		grow(t, tr, 100)
		if err := tr.Mark(); err != nil {
			t.Fatal(err)
		}
		if err := tr.Close(); err != nil {
			t.Fatal(err)
		}
		return fs
	}
	size := func(fs vfs.FS, id tga.ID, log byte) int64 {
		tr, err := Open(fs, "/store", id, ofLog(log))
		if err != nil {
			t.Fatal(err)
		}
		defer tr.Close()
		return tr.Size()
	}
	if n := size(made(), store, 0); n != 100 {
		t.Errorf("the tree as it was has %d leaves", n)
	}
	if n := size(made(), tga.ID{9}, 0); n != 0 {
		t.Errorf("another store takes %d leaves", n)
	}
	if n := size(made(), store, 1); n != 0 {
		t.Errorf("another log takes %d leaves", n)
	}
	for _, name := range []string{"hashes", "mark"} {
		path := "/store/evidence/" + name
		whole := read(t, made(), path)
		for i := range whole {
			if name == "hashes" && i >= headerSize && !onEdge(int64(i-headerSize)/32, 100) {
				continue // a request for a proof finds it
			}
			fs := made()
			write(t, fs, path, flipped(whole, i))
			if n := size(fs, store, 0); n != 0 {
				t.Errorf("%s with byte %d changed: %d leaves", name, i, n)
			}
		}
		for n := range whole {
			fs := made()
			write(t, fs, path, whole[:n])
			if got := size(fs, store, 0); got != 0 {
				t.Errorf("%s cut to %d bytes: %d leaves", name, n, got)
			}
		}
		fs := made()
		if err := fs.Remove(path); err != nil {
			t.Fatal(err)
		}
		if n := size(fs, store, 0); n != 0 {
			t.Errorf("without %s: %d leaves", name, n)
		}
	}
}

// onEdge reports whether the head of size leaves is made from a stored hash, or the newest leaf is that
// hash.
func onEdge(at, size int64) bool {
	if at == tlog.StoredHashIndex(0, size-1) {
		return true
	}
	level, n := tlog.SplitStoredHashIndex(at)
	return size>>level&1 == 1 && n == size>>level-1
}

func flipped(b []byte, i int) []byte {
	b = bytes.Clone(b)
	b[i] ^= 0x40
	return b
}

func read(t *testing.T, fs vfs.FS, name string) []byte {
	t.Helper()
	f, err := fs.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, info.Size())
	if _, err := f.ReadAt(b, 0); err != nil {
		t.Fatal(err)
	}
	return b
}

func write(t *testing.T, fs vfs.FS, name string, b []byte) {
	t.Helper()
	f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(b); err != nil {
		t.Fatal(err)
	}
}

// TestCrashAnywhere cuts the power at random, and any part of the unsynced data remains. The tree then has
// the leaves of a mark, or none, and its heads are right.
func TestCrashAnywhere(t *testing.T) {
	serial.Test(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	kept := 0
	for range 150 {
		fs := crashmem.New()
		if err := fs.MkdirAll("/store", os.ModePerm); err != nil {
			t.Fatal(err)
		}
		if err := syncDir(fs, "/"); err != nil {
			t.Fatal(err)
		}
		var disk vfs.FS = fs
		marked := map[int64]bool{0: true}
		newest := int64(0)
		for range 3 {
			tr := open(t, disk)
			if !marked[tr.Size()] || tr.Size() < newest {
				t.Fatalf("opened with %d leaves, marked were %v", tr.Size(), marked)
			}
			kept += int(min(tr.Size(), 1))
			for range r.IntN(4) {
				grow(t, tr, tr.Size()+r.Int64N(3000))
				if r.IntN(2) == 0 {
					if err := tr.Mark(); err != nil {
						t.Fatal(err)
					}
					newest = tr.Size()
					marked[newest] = true
				}
			}
			n := tr.Size()
			if got, err := tr.Head(n); err != nil || got != full(n) {
				t.Fatalf("head of %d leaves: %v, %v", n, got, err)
			}
			next := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: r.IntN(101), RNG: r})
			if err := tr.Close(); err != nil {
				t.Fatal(err)
			}
			fs, disk = next, next
		}
	}
	if kept == 0 {
		t.Error("no tree was kept over a crash")
	}
}

var fulls = map[int64]tlog.Hash{}

// full is head(0, n), computed once for each n.
func full(n int64) tlog.Hash {
	if _, ok := fulls[n]; !ok {
		fulls[n] = head(0, uint64(n))
	}
	return fulls[n]
}

// TestReadersBesideTheAppender: a reader gets valid proofs while the tree grows.
func TestReadersBesideTheAppender(t *testing.T) {
	tr := open(t, vfs.NewMem())
	grow(t, tr, 1)
	var ended atomic.Bool
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for n := int64(1); !ended.Load(); n = tr.Size() {
				h, err := tr.Head(n)
				if err != nil {
					t.Error(err)
					return
				}
				for _, i := range []uint64{1, uint64(n+1) / 2, uint64(n)} {
					p, err := tr.Prove(i, n)
					if err == nil {
						err = tlog.CheckRecord(p, n, h, int64(i)-1, leaf(0, i).Hash())
					}
					if err != nil {
						t.Errorf("leaf %d of %d: %v", i, n, err)
						return
					}
				}
			}
		})
	}
	for range 4 {
		grow(t, tr, tr.Size()+1500) // larger than what is kept in memory
		if err := tr.Mark(); err != nil {
			t.Error(err)
		}
	}
	ended.Store(true)
	wg.Wait()
}

func TestLeafOutOfTurnIsRefused(t *testing.T) {
	tr := open(t, vfs.NewMem())
	grow(t, tr, 5)
	for _, index := range []uint64{0, 4, 5, 7} {
		if err := tr.Append(leaf(0, index)); tga.CodeOf(err) != tga.ValidationError {
			t.Errorf("leaf %d after 5: %v", index, err)
		}
	}
	grow(t, tr, 6)
}

func TestLeafBytes(t *testing.T) {
	l := Leaf{Index: 1<<63 + 2, TraceID: tga.ID{3}, FirstSeq: 4, Entries: 5, FirstNote: 6, Notes: 7, Committed: 8, NewestTS: 9}
	l.HeadDigest[31], l.NoteDigest[0] = 10, 11
	b := l.Append(nil)
	got, err := ParseLeaf(b)
	if err != nil || got != l {
		t.Fatalf("%+v, %v, want %+v", got, err, l)
	}
	for i := range b {
		if got, err := ParseLeaf(flipped(b, i)); err == nil && got == l {
			t.Errorf("byte %d says nothing", i)
		}
	}
	for n := range len(b) {
		if _, err := ParseLeaf(b[:n]); tga.CodeOf(err) != tga.SchemaViolation {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	if _, err := ParseLeaf(append(b, 0)); err == nil {
		t.Error("a byte too many is taken")
	}
	if fmt.Sprintf("%x", (&Leaf{Index: 1, Entries: 1}).Append(nil)) != "0000000000000001"+"01"+fmt.Sprintf("%032x", 0)+"0000000000000000"+"0001"+"00000000"+"0000"+fmt.Sprintf("%0128x", 0)+fmt.Sprintf("%032x", 0) {
		t.Error("the bytes of a leaf have changed")
	}
}

// TestAppendAllocatesNothing: each append of a store pays for the tree. The hashes are those that package
// tlog would store.
func TestAppendAllocatesNothing(t *testing.T) {
	tr := open(t, vfs.NewMem())
	grow(t, tr, 1<<14)
	for n := range int64(100) {
		want, err := tlog.StoredHashes(n, leaf(0, uint64(n)+1).Append(nil), tr)
		if err != nil {
			t.Fatal(err)
		}
		for level, h := range want {
			if got, err := tr.read(tlog.StoredHashIndex(0, n) + int64(level)); err != nil || got != h {
				t.Fatalf("leaf %d level %d: %v, %v, want %v", n, level, got, err, h)
			}
		}
	}
	l := leaf(0, 0)
	if allocs := testing.AllocsPerRun(2000, func() {
		l.Index = uint64(tr.Size()) + 1
		if err := tr.Append(l); err != nil {
			t.Fatal(err)
		}
	}); allocs > 0.1 {
		t.Errorf("%v allocations an append", allocs)
	}
}

func BenchmarkAppend(b *testing.B) {
	tr, err := Open(vfs.Default, b.TempDir(), store, ofLog(0))
	if err != nil {
		b.Fatal(err)
	}
	defer tr.Close()
	b.ReportAllocs()
	for i := range b.N {
		if err := tr.Append(leaf(0, uint64(i)+1)); err != nil {
			b.Fatal(err)
		}
	}
}

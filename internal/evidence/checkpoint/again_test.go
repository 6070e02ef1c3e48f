package checkpoint

import (
	"bytes"
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/internal/crashtest/crashmem"
)

// shaky is a disk of which any operation may fail.
type shaky struct {
	*crashmem.FS
	fails func() bool
}

func (s *shaky) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if s.fails() {
		return nil, syscall.ENOSPC
	}
	f, err := s.FS.Create(name, c)
	return shakyFile{f, s}, err
}

func (s *shaky) OpenReadWrite(name string, c vfs.DiskWriteCategory, o ...vfs.OpenOption) (vfs.File, error) {
	f, err := s.FS.OpenReadWrite(name, c, o...)
	return shakyFile{f, s}, err
}

func (s *shaky) OpenDir(name string) (vfs.File, error) {
	f, err := s.FS.OpenDir(name)
	return shakyFile{f, s}, err
}

func (s *shaky) Rename(from, to string) error {
	if s.fails() {
		return syscall.EIO
	}
	return s.FS.Rename(from, to)
}

type shakyFile struct {
	vfs.File
	disk *shaky
}

func (f shakyFile) Write(b []byte) (int, error) {
	if f.disk.fails() {
		return 0, syscall.ENOSPC
	}
	return f.File.Write(b)
}

func (f shakyFile) WriteAt(b []byte, at int64) (int, error) {
	if f.disk.fails() {
		n, _ := f.File.WriteAt(b[:len(b)/2], at)
		return n, syscall.ENOSPC
	}
	return f.File.WriteAt(b, at)
}

func (f shakyFile) Sync() error {
	if f.disk.fails() {
		return syscall.EIO
	}
	return f.File.Sync()
}

// TestNotesAreKeptBesideFailures: whatever fails of the disk, and whenever it crashes, each note whose Append returned nil is
// there, unless it is a checkpoint that a shorter file leaves out. The newest checkpoint is one of those that were given.
func TestNotesAreKeptBesideFailures(t *testing.T) {
	key := newSigner(t, origin)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 3))
	for range 40 {
		disk, failing := &shaky{FS: crashmem.New()}, false
		disk.fails = func() bool { return failing && r.IntN(4) == 0 }
		f, err := OpenFile(disk, "/")
		if err != nil {
			t.Fatal(err)
		}
		f.most, f.keep = 3000, 4
		var kept, given [][]byte // the notes whose Append returned nil, and all since the last of these
		failing = true
		for n := range int64(60) {
			raw := signed(t, at(n+1), key)
			if n%9 == 4 {
				a := Acceptance{Origin: origin, Who: "me", Size: n}
				if raw, err = a.Sign(key); err != nil {
					t.Fatal(err)
				}
			}
			if given = append(given, raw); f.Append(raw) == nil {
				kept, given = append(kept, raw), nil
			}
			if r.IntN(8) > 0 {
				continue
			}
			g, err := OpenFile(disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: r.IntN(101), RNG: r}), "/")
			if err != nil {
				t.Fatalf("after %d notes: %v", n, err)
			}
			has := map[string]bool{}
			for raw, err := range g.All() {
				if err != nil {
					t.Fatal(err)
				}
				has[string(raw)] = true
			}
			newest := 0
			for i := len(kept) - 1; i >= 0; i-- {
				if IsCheckpoint(kept[i]) {
					newest++
				}
				if !has[string(kept[i])] && (!IsCheckpoint(kept[i]) || newest < f.keep) {
					t.Fatalf("note %d of %d that were kept is gone", i, len(kept))
				}
			}
			known := g.Newest() == nil
			for _, raw := range append(given, kept...) {
				known = known || bytes.Equal(raw, g.Newest())
			}
			if !known {
				t.Fatal("the newest was never given")
			}
			if err := g.Close(); err != nil {
				t.Fatal(err)
			}
		}
		failing = false
		if err := f.Append(signed(t, at(99), key)); err != nil {
			t.Errorf("the disk works again: %v", err)
		}
		if f.end > 5000 {
			t.Errorf("the file has %d bytes", f.end)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

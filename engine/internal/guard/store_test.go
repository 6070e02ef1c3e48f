package guard

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/internal/crashtest/crashmem"
	"github.com/tgad/tgad/schemas/tga"
)

const dir = "store"

var testStore = tga.ID{1, 2, 3, 4, 5, 6, 0x70, 8, 0x80, 10}

// fatalLogger turns Pebble's Fatalf into a panic and drops the rest.
type fatalLogger struct{}

func (fatalLogger) Infof(string, ...any)  {}
func (fatalLogger) Errorf(string, ...any) {}
func (fatalLogger) Fatalf(format string, args ...any) {
	panic(fmt.Errorf("pebble: "+format, args...))
}

// settings of a store under test.
type settings struct {
	bare     bool   // without the package under test
	memtable uint64 // bytes; 0 = 4 MiB
	spares   int
	format   pebble.FormatMajorVersion // 0 = 24
	noFlush  bool                      // leave a new store's first log in use
}

// store is a Pebble store with this package around it, used as the engine uses it.
type store struct {
	t     testing.TB
	set   settings
	db    *pebble.DB
	fs    *CountingFS
	mark  *Watermark
	acked int // records 0..acked-1 are acknowledged
}

func pebbleOptions(fsys vfs.FS, set settings) *pebble.Options {
	o := &pebble.Options{
		FS: fsys, Logger: fatalLogger{}, FormatMajorVersion: 24, MemTableSize: 4 << 20,
		DisableAutomaticCompactions: true, MemTableStopWritesThreshold: 100, L0StopWritesThreshold: 1000,
	}
	if set.format != 0 {
		o.FormatMajorVersion = set.format
	}
	if set.memtable != 0 {
		o.MemTableSize = set.memtable
	}
	return o
}

// open opens the store on base after Check, or returns Check's or Pebble's error. A
// panic inside Pebble is an error too.
func open(t testing.TB, base vfs.FS, set settings) (s *store, err error) {
	s = &store{t: t, set: set}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	if set.bare {
		s.db, err = pebble.Open(dir, pebbleOptions(base, set))
		return s, err
	}
	s.fs = FS(base, FSOptions{Dir: dir, Spares: set.spares, SpareBytes: 256 << 10,
		OnFlushed: func(wal, seqnum uint64) error {
			return s.mark.Flushed(wal, seqnum)
		}})
	r, _, err := Check(s.fs, dir)
	if err != nil {
		return s, err
	}
	if err := s.fs.MkdirAll(dir, 0o755); err != nil {
		return s, err
	}
	if s.mark, err = OpenWatermark(s.fs, dir, testStore, r.Empty()); err != nil {
		return s, err
	}
	if err := s.fs.PrepareSpares(); err != nil {
		return s, err
	}
	if s.db, err = pebble.Open(dir, pebbleOptions(s.fs, set)); err != nil {
		return s, err
	}
	if r.Empty() && !set.noFlush {
		err = s.db.Flush()
	}
	return s, err
}

func mustOpen(t testing.TB, base vfs.FS, set settings) *store {
	t.Helper()
	s, err := open(t, base, set)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return s
}

func key(i int) []byte { return fmt.Appendf(nil, "key-%06d", i) }

// value is long enough to be told apart and depends on i alone.
func value(i, size int) []byte {
	b := make([]byte, size)
	r := rand.New(rand.NewPCG(uint64(i), 7))
	for j := range b {
		b[j] = byte(r.Uint32())
	}
	return b
}

// put appends one record of two keys without waiting for it.
func (s *store) put(i, size int) *pebble.Batch {
	s.t.Helper()
	b := s.db.NewBatch()
	if err := errors.Join(b.Set(key(i), value(i, size), nil), b.Set(append(key(i), 'x'), nil, nil)); err != nil {
		s.t.Fatal(err)
	}
	return b
}

// add commits n records, each synced, marked and acknowledged.
func (s *store) add(n, size int) {
	s.t.Helper()
	for range n {
		b := s.put(s.acked, size)
		if err := s.db.Apply(b, pebble.Sync); err != nil {
			s.t.Fatalf("apply: %v", err)
		}
		if s.mark != nil {
			if err := s.mark.Advance(uint64(b.SeqNum()) + uint64(b.Count()) - 1); err != nil {
				s.t.Fatalf("advance: %v", err)
			}
		}
		s.acked++
		if err := b.Close(); err != nil {
			s.t.Fatal(err)
		}
	}
}

func (s *store) close() error {
	var err error
	if s.db != nil {
		err = s.db.Close()
	}
	if s.mark != nil {
		err = errors.Join(err, s.mark.Close())
	}
	if s.fs != nil {
		err = errors.Join(err, s.fs.Close())
	}
	return err
}

// holds reports whether the first n records are there and whole.
func (s *store) holds(n int) error {
	for i := range n {
		v, closer, err := s.db.Get(key(i))
		if err != nil {
			return fmt.Errorf("record %d of %d: %w", i, n, err)
		}
		if !slices.Equal(v, value(i, len(v))) {
			return fmt.Errorf("record %d of %d: wrong value", i, n)
		}
		if err := closer.Close(); err != nil {
			return err
		}
	}
	return nil
}

// files reads a store's directory.
func files(t testing.TB, fsys vfs.FS) map[string][]byte {
	t.Helper()
	names, err := fsys.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	m := map[string][]byte{}
	for _, name := range names {
		f, err := fsys.Open(fsys.PathJoin(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // an obsolete file that Pebble deletes in the background
		}
		if err != nil {
			t.Fatal(err)
		}
		if m[name], err = io.ReadAll(f); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// memFS makes a file system that holds the files; change replaces some, nil removes.
func memFS(t testing.TB, base map[string][]byte, change map[string][]byte) *crashmem.FS {
	t.Helper()
	m := crashmem.New()
	if err := m.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	put := func(name string, b []byte) {
		f, err := m.Create(m.PathJoin(dir, name), vfs.WriteCategoryUnspecified)
		if err == nil {
			_, err = f.Write(slices.Clone(b)) // Write may change what it is given
		}
		if err == nil {
			err = errors.Join(f.Sync(), f.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, b := range base {
		if _, ok := change[name]; !ok {
			put(name, b)
		}
	}
	for name, b := range change {
		if b != nil {
			put(name, b)
		}
	}
	return m
}

// newest returns the name of the newest file with the prefix or suffix.
func newest(m map[string][]byte, match func(string) bool) string {
	name := ""
	for n := range m {
		if match(n) {
			name = max(name, n)
		}
	}
	return name
}

func isLog(name string) bool      { return strings.HasSuffix(name, ".log") }
func isManifest(name string) bool { return strings.HasPrefix(name, "MANIFEST-") }

// outcome is what became of a damaged store.
type outcome string

const (
	harmless outcome = "harmless"
	byScan   outcome = "refused by Scan"
	byVerify outcome = "refused by Verify"
	byPebble outcome = "refused by Pebble"
	lost     outcome = "SILENTLY LOST"
)

// judge opens a damaged store and says what happened to its acked records.
func judge(t testing.TB, fsys vfs.FS, set settings, acked int) (outcome, error) {
	if !set.bare {
		r, _, err := Check(fsys, dir)
		switch {
		case err != nil && r.Err() != nil:
			return byScan, err
		case err != nil:
			return byVerify, err
		}
	}
	s, err := open(t, fsys, set)
	if err != nil {
		if s.db != nil {
			err = errors.Join(err, s.close())
		}
		return byPebble, err
	}
	err = s.holds(acked)
	if cerr := s.close(); cerr != nil {
		t.Errorf("close: %v", cerr)
	}
	if err != nil {
		return lost, err
	}
	return harmless, nil
}

type tally map[outcome]int

func (c tally) String() string {
	var parts []string
	for _, o := range []outcome{harmless, byScan, byVerify, byPebble, lost} {
		parts = append(parts, fmt.Sprintf("%s %d", o, c[o]))
	}
	return strings.Join(parts, ", ")
}

// chunkHeaders returns the offsets of the header bytes of a log's or MANIFEST's chunks.
func chunkHeaders(b []byte, log uint32, wal bool) (offsets []int) {
	for base := 0; base < len(b); base += blockSize {
		block := b[base:min(base+blockSize, len(b))]
		for off := 0; off < len(block); {
			c, what := at(block, off, log, wal)
			if what != foundChunk && what != foundTrailer {
				break
			}
			for i := off; i < min(off+syncHeader, c.end); i++ {
				offsets = append(offsets, base+i)
			}
			off = c.end
		}
	}
	return offsets
}

func flip(b []byte, i int, mask byte) []byte {
	b = slices.Clone(b)
	b[i] ^= mask
	return b
}

func logNumber(t testing.TB, name string) uint64 {
	t.Helper()
	var n uint64
	if _, err := fmt.Sscanf(name, "%d.log", &n); err != nil {
		t.Fatal(err)
	}
	return n
}

func u64(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }

package wal

import (
	"bytes"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"
)

// TestReadersSeeWhatPassedTheCache: through a file of their own, each time, also the pages that
// they had read before.
func TestReadersSeeWhatPassedTheCache(t *testing.T) {
	path := t.TempDir() + "/segment"
	file, err := vfs.Default.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	}()
	f := pagesOf(file)
	if flags, err := unix.FcntlInt(file.Fd(), unix.F_GETFL, 0); err != nil || (flags&unix.O_DIRECT != 0) != f.direct {
		t.Fatalf("flags %#x, direct %v, %v", flags, f.direct, err)
	}
	reader, err := vfs.Default.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := reader.Close(); err != nil {
			t.Error(err)
		}
	}()
	b, seen := pages(nil).room(8*pageLen), make([]byte, 8*pageLen)
	for round := range 20 {
		for i := range b {
			b[i] = byte(round + i/pageLen)
		}
		if err := f.writeAt(b, 0); err != nil {
			t.Fatal(err)
		}
		if err := readFull(reader, seen, 0); err != nil || !bytes.Equal(seen, b) {
			t.Fatalf("round %d: %v", round, err)
		}
	}
}

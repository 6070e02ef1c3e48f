package guard

import (
	"errors"
	"io"
	"io/fs"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/tgad/tgad/internal/crashtest/crashmem"
	"github.com/tgad/tgad/schemas/tga"
)

const dir = "store"

var (
	testStore = tga.ID{1, 2, 3, 4, 5, 6, 0x70, 8, 0x80, 10}
	testLine  = tga.ID{11, 12}
)

// hook calls before ahead of every operation on base.
func hook(base vfs.FS, before func(errorfs.Op) error) vfs.FS {
	return errorfs.Wrap(base, errorfs.InjectorFunc(before))
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

func flip(b []byte, i int, mask byte) []byte {
	b = slices.Clone(b)
	b[i] ^= mask
	return b
}

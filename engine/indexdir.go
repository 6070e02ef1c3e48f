package engine

import (
	"errors"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/schemas/tga"
)

// indexDir is the directory of an index. It can be removed at any time, because the index can be
// rebuilt from the log.
type indexDir struct {
	fs   vfs.FS
	path string
}

// spoiltName is a file in the index directory. If it exists, the index must not be used.
const spoiltName = "SPOILT"

// spoilt reports whether the index must be removed and rebuilt.
func (x indexDir) spoilt() bool {
	_, err := x.fs.Stat(x.fs.PathJoin(x.path, spoiltName))
	return err == nil
}

// spoil makes the next open remove the index.
func (x indexDir) spoil() error {
	name := x.fs.PathJoin(x.path, spoiltName)
	f, err := x.fs.Create(name, vfs.WriteCategoryUnspecified)
	if err == nil {
		err = errors.Join(f.Sync(), f.Close(), syncDir(x.fs, x.path))
	}
	if err != nil {
		return tga.Errorf(tga.StoreUnavailable, "make %s: %w", name, err)
	}
	return nil
}

func (x indexDir) remove() error {
	if err := x.fs.RemoveAll(x.path); err != nil {
		return tga.Errorf(tga.StoreUnavailable, "remove %s: %w", x.path, err)
	}
	return nil
}

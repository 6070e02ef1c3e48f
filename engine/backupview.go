package engine

import (
	"errors"
	"io"
	"maps"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/engine/internal/guard"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal"
)

// asBackup returns the file system on which dir, if it has a backup, is that backup and nothing else. Beside the
// backup may lie what an interrupted [DB.Backup] had copied already, see [backup.next].
func asBackup(fs vfs.FS, dir string) (vfs.FS, error) {
	m, err := readManifest(fs, dir)
	if err != nil || m == nil {
		return fs, err
	}
	mark, err := guard.ReadWatermark(fs, dir)
	if err == nil && mark.Group > m.End.Group {
		return fs, nil // somebody opened it for writing, so it is a store
	}
	return manifestFS{fs, filesOf(m)}, nil
}

// backup compares each file of a backup with the digest in its manifest. The other checks read what the records
// say; a file has bytes behind its last record too, and a restore refuses a file in which any byte was changed.
func (c *checker) backup(db *DB) error {
	files, ok := db.opts.FS.(manifestFS)
	if !ok {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(files.files)) {
		f := files.files[name]
		err := copyFile(c.ctx, files.FS, files.PathJoin(db.dir, logName, name), "", &f)
		switch {
		case c.ctx.Err() != nil:
			return c.ctx.Err()
		case errors.Is(err, tga.StateChecksumMismatch):
			if err := c.problem(tga.ID{}, err); err != nil {
				return err
			}
		case err != nil:
			return tga.Errorf(tga.StoreUnavailable, "%w", err)
		}
	}
	return nil
}

// manifestFS has in the directory of the log the files of a manifest alone, each as long as the manifest says.
type manifestFS struct {
	vfs.FS
	files map[string]wal.CopiedFile
}

func (f manifestFS) Unwrap() vfs.FS { return f.FS }

func (f manifestFS) List(dir string) ([]string, error) {
	names, err := f.FS.List(dir)
	if f.PathBase(dir) == logName {
		names = slices.DeleteFunc(names, func(name string) bool { _, in := f.files[name]; return !in })
	}
	return names, err
}

func (f manifestFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	file, err := f.FS.Open(name, opts...)
	if part, in := f.files[f.PathBase(name)]; err == nil && in && f.PathBase(f.PathDir(name)) == logName {
		return &beginning{file, io.NewSectionReader(file, 0, part.Length)}, nil
	}
	return file, err
}

// beginning is the beginning of a file, open for reading.
type beginning struct {
	vfs.File
	part *io.SectionReader
}

func (b *beginning) Read(p []byte) (int, error) { return b.part.Read(p) }

func (b *beginning) ReadAt(p []byte, off int64) (int, error) { return b.part.ReadAt(p, off) }

func (b *beginning) Stat() (vfs.FileInfo, error) {
	info, err := b.File.Stat()
	return beginningInfo{info, b.part.Size()}, err
}

type beginningInfo struct {
	vfs.FileInfo
	most int64
}

func (i beginningInfo) Size() int64 { return min(i.FileInfo.Size(), i.most) }

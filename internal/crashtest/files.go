package crashtest

import (
	"errors"
	"io"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// filesOf lists the files of the store in an image, as paths below its directory. If there is no
// store yet, the list is empty.
func filesOf(fs vfs.FS) (names []string) {
	for _, dir := range []string{"", "log", IndexDir} {
		list, err := fs.List(fs.PathJoin(Dir, dir))
		if err != nil {
			continue // it is not made yet
		}
		for _, name := range list {
			if info, err := fs.Stat(fs.PathJoin(Dir, dir, name)); err == nil && !info.IsDir() {
				names = append(names, fs.PathJoin(dir, name))
			}
		}
	}
	slices.Sort(names)
	return names
}

func readFile(fs vfs.FS, path string) ([]byte, error) {
	f, err := fs.Open(path)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(f)
	return b, errors.Join(err, f.Close())
}

// writeFile replaces a file, durably.
func writeFile(fs vfs.FS, path string, b []byte) error {
	f, err := fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	// The memory file system may change the slice that it is given, so give it a copy.
	_, err = f.Write(append([]byte(nil), b...))
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close(), syncDir(fs, fs.PathDir(path)))
}

func syncDir(fs vfs.FS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

package checkpoint

import (
	"errors"
	"io/fs"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/internal/access"
	"github.com/tgad/tgad/internal/diskfs"
)

// Disk is the operating system's file system. Only this user can read the files that it makes.
var Disk = diskfs.OS()

// Replace replaces a file as a whole. After a crash the file is the old one or the new one, and the
// new one if Replace had returned nil. After an error it is not known which of them it is. If the path
// is a link, the file that it leads to is replaced.
func Replace(disk vfs.FS, path string, raw []byte) error {
	if disk == Disk {
		to, err := access.Target(path)
		if err != nil {
			return err
		}
		path = to
	}
	temp := path + ".new"
	if err := disk.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := disk.Create(temp, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write(raw)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = disk.Rename(temp, path)
	}
	if err != nil {
		return err
	}
	// Sync the directory before returning: without it a crash could bring the old file back.
	d, err := disk.OpenDir(disk.PathDir(path))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

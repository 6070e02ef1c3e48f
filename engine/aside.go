package engine

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/internal/access"
	"github.com/tgad/tgad/internal/filelock"
	"github.com/tgad/tgad/schemas/tga"
)

// partial is the suffix of a directory that is still being made.
const partial = ".partial"

// makingName is a file in such a directory. Its lock says that a process is making the directory.
const makingName = "making.lock"

// aside makes a directory under a temporary name with fill, and renames it to dir when it is
// complete. So dir exists complete or not at all. First it removes what a process that died left
// under the temporary name. STATE_LOCK_ACQUIRE_FAILED: another process is making dir.
// VALIDATION_ERROR: dir exists already.
func aside(fs vfs.FS, dir string, fill func(temp string) error) (err error) {
	if dir, err = target(fs, dir); err != nil {
		return err
	}
	if err := absent(fs, dir); err != nil {
		return err
	}
	temp := dir + partial
	unlock, err := lockAside(fs, temp)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	if err := absent(fs, dir); err != nil { // the previous holder of the lock may have made dir
		return errors.Join(err, fs.RemoveAll(temp))
	}
	names, err := fs.List(temp)
	if err != nil {
		return err
	}
	for _, name := range names {
		if name == makingName {
			continue
		}
		if err := fs.RemoveAll(fs.PathJoin(temp, name)); err != nil {
			return err
		}
	}
	if err = fill(temp); err == nil {
		err = rename(fs, temp, dir)
	}
	if err != nil {
		return errors.Join(err, fs.RemoveAll(temp))
	}
	_ = fs.Remove(fs.PathJoin(dir, makingName)) // dir is complete, and nobody minds the file: see noContent
	return nil
}

// target returns the directory that dir names, without a slash at its end. A link counts as the directory that
// it leads to, which may lie on another disk.
func target(fs vfs.FS, dir string) (string, error) {
	dir = fs.PathJoin(dir)
	if vfs.Root(fs) != vfs.Default {
		return dir, nil
	}
	to, err := filepath.EvalSymlinks(dir)
	switch _, here := os.Lstat(dir); {
	case errors.Is(here, os.ErrNotExist):
		return dir, nil
	case errors.Is(err, os.ErrNotExist):
		return "", tga.Errorf(tga.NotFound, "%s is a link to what is not there: is its disk mounted?", dir)
	case err != nil:
		return "", tga.Errorf(tga.StoreUnavailable, "look at %s: %w", dir, err)
	}
	return to, nil
}

// lockAside makes the directory temp, or takes an existing one, for this process alone.
func lockAside(fs vfs.FS, temp string) (unlock func() error, err error) {
	for range 10 {
		if err := fs.MkdirAll(temp, access.DirMode); err != nil {
			return nil, err
		}
		if vfs.Root(fs) != vfs.Default {
			return func() error { return nil }, nil // no other process can see this file system
		}
		at := fs.PathJoin(temp, makingName)
		held, err := filelock.Lock(at)
		switch {
		case errors.Is(err, os.ErrNotExist):
			continue // the previous holder renamed or removed the directory
		case errors.Is(err, filelock.ErrHeld):
			return nil, tga.Errorf(tga.StateLockAcquireFailed, "%s is being made: %w", temp, err)
		case err != nil:
			return nil, err
		}
		mine, err := held.Stat()
		if err == nil {
			if there, lerr := os.Lstat(at); lerr == nil && os.SameFile(mine, there) {
				return held.Close, nil
			}
		}
		if err = errors.Join(err, held.Close()); err != nil {
			return nil, err
		}
	}
	return nil, tga.Errorf(tga.StateLockAcquireFailed, "%s is being made by others", temp)
}

// absent refuses a directory that exists and is not empty.
func absent(fs vfs.FS, dir string) error {
	names, err := fs.List(dir)
	switch {
	case errors.Is(err, os.ErrNotExist), err == nil && len(names) == 0:
		return nil
	case err != nil:
		return tga.Errorf(tga.StoreUnavailable, "look at %s: %w", dir, err)
	}
	return tga.Errorf(tga.ValidationError, "%s is there already, with %d files", dir, len(names))
}

// rename gives a finished directory its name, durably, or leaves it where it is.
func rename(fs vfs.FS, from, to string) error {
	fail := func(err error) error { return tga.Errorf(tga.StoreUnavailable, "rename %s to %s: %w", from, to, err) }
	if err := fs.Remove(to); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fail(err) // absent found to missing or empty
	}
	if err := fs.Rename(from, to); err != nil {
		return fail(err)
	}
	if err := syncDir(fs, fs.PathDir(to)); err != nil {
		return fail(errors.Join(err, fs.Rename(to, from)))
	}
	return nil
}

package setup

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tgad/tgad/schemas/tga"
)

// BackupOf is the file that keeps what a client's file was before tgad was installed. Its name has
// the digest of what was written then: as long as that is what the file holds, nobody has changed
// it since.
func BackupOf(file string, written []byte) string {
	return file + ".before-tgad-" + tga.Sum(written).String()[:16]
}

// Follow is the file that a path leads to: what is replaced is never a symbolic link.
func Follow(file string) (string, error) {
	to, err := filepath.EvalSymlinks(file)
	if errors.Is(err, fs.ErrNotExist) {
		return "", tga.Errorf(tga.NotFound, "there is no %s", file)
	}
	return to, err
}

// Put replaces a client's file, and keeps what it was before tgad was installed: with what was
// kept at the last time, if nobody has changed the file since, else with original. It returns the
// name of that backup.
func Put(file string, before, after, original []byte) (backup string, err error) {
	last, backup := BackupOf(file, before), BackupOf(file, after)
	if kept, err := os.ReadFile(last); err == nil {
		original = kept
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	info, err := os.Stat(file)
	if err == nil {
		// Before the file: a kill in between leaves a backup that is of no file.
		err = Write(backup, original, info, nil)
	}
	if err == nil {
		err = Replace(file, before, after)
	}
	if err == nil && last != backup {
		if err = os.Remove(last); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	return backup, err
}

// PutBack restores what a client's file was before tgad was installed, where nobody has changed it
// since; false where somebody has, or where there is no backup.
func PutBack(file string, before []byte) (bool, error) {
	backup := BackupOf(file, before)
	original, err := os.ReadFile(backup)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		err = Replace(file, before, original)
	}
	if err != nil {
		return false, err
	}
	return true, os.Remove(backup)
}

// Replace puts other content into a file that has what before says. A process that is killed
// leaves the one or the other, whole. A file that was changed meanwhile stays as it is.
func Replace(file string, before, after []byte) error {
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	return Write(file, after, info, func() error {
		now, err := os.ReadFile(file)
		if err == nil && !bytes.Equal(now, before) {
			err = tga.Errorf(tga.StateConflict, "%s was changed meanwhile, and is left as it is: end the client, and try again", file)
		}
		return err
	})
}

// Write makes a file, or replaces one, whole. It has the mode and owner of another one. ready, if
// it is not nil, is asked at the last moment.
func Write(file string, content []byte, like fs.FileInfo, ready func() error) (err error) {
	dir := filepath.Dir(file)
	f, err := os.CreateTemp(dir, ".tgad-*")
	if err != nil {
		return err
	}
	named := false
	defer func() {
		if err != nil && !named {
			err = errors.Join(err, f.Close(), os.Remove(f.Name()))
		}
	}()
	if _, err = f.Write(content); err != nil {
		return err
	}
	if err = f.Chmod(like.Mode().Perm()); err != nil {
		return err
	}
	if err = ownedLike(f, like); err != nil {
		return err
	}
	if err = f.Sync(); err != nil {
		return err
	}
	if ready != nil {
		if err = ready(); err != nil {
			return err
		}
	}
	if err = os.Rename(f.Name(), file); err != nil {
		return err
	}
	named = true // from here on nothing is taken back
	closed := f.Close()
	d, opened := os.Open(dir)
	if opened == nil {
		opened = errors.Join(d.Sync(), d.Close())
	}
	if failed := errors.Join(closed, opened); failed != nil {
		return tga.Errorf(tga.StoreUnavailable, "%s is replaced, and may not survive a power cut: %w", file, failed)
	}
	return nil
}

package setup

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tgad/tgad/schemas/tga"
)

// BackupOf is the name of the backup of a client's file from before tgad was installed. The name has
// the digest of the bytes that the install wrote. As long as the file has these bytes, nobody has
// changed it since.
func BackupOf(file string, written []byte) string {
	return file + ".before-tgad-" + tga.Sum(written).String()[:16]
}

// Follow resolves symbolic links, so that never a link is replaced.
func Follow(file string) (string, error) {
	to, err := filepath.EvalSymlinks(file)
	if errors.Is(err, fs.ErrNotExist) {
		return "", tga.Errorf(tga.NotFound, "there is no %s", file)
	}
	return to, err
}

// Put replaces the content of a client's file, and writes a backup, whose name it returns. If nobody
// has changed the file since an earlier install, the backup is that install's backup, else original.
func Put(file string, before, after, original []byte) (backup string, err error) {
	last, backup := BackupOf(file, before), BackupOf(file, after)
	if kept, err := os.ReadFile(last); err == nil {
		original = kept
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	info, err := os.Stat(file)
	if err == nil {
		// The backup is written before the file. A kill in between leaves a backup without use.
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

// PutBack restores a client's file from its backup. It returns false if somebody has changed the file
// since the install, or if there is no backup.
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

// Replace replaces the content before of a file by after. If the process is killed, the file has
// either content, whole. If the content is not before, the file stays unchanged.
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

// Write creates or replaces a file as a whole. The file gets the mode and owner of like. ready, if not
// nil, is called right before the file is replaced; if it fails, nothing is replaced.
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
	named = true // the file is replaced: from here on nothing is undone
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

package hostdir

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// writer does the steps of a restore.
type writer struct {
	*standing
	dir     *Dir
	target  *target
	objects *reader
	at      string // the directory, or a new directory that will replace it
	root    *os.Root
	fresh   bool            // at is such a new directory
	oldRoot string          // new name of what was at the path of the directory
	each    bool            // contents are synced one by one
	holders map[string]bool // directories that contain something that is left alone
	staged  map[string]string
	olds    []string        // temporary names of removed files
	touched map[string]bool // paths made, changed or removed
	n       int             // number of the newest temporary name
	undo    []func() error  // undo functions, in the order of the changes
}

// do makes a change and remembers how to undo it. A change that is reported as failed may have
// happened nevertheless. So an undo function must also work if there is nothing to undo.
func (w *writer) do(op, name string, f, undo func() error) error {
	n := len(w.undo)
	if undo != nil {
		w.undo = append(w.undo, undo)
	}
	if w.dir.fault != nil {
		if err := w.dir.fault(op, name, false); err != nil {
			return err
		}
	}
	if err := f(); err != nil {
		if errors.Is(err, fs.ErrExist) {
			w.undo = w.undo[:n] // somebody else made what is there, so do not undo it
		}
		return err
	}
	if w.touched == nil {
		w.touched = map[string]bool{}
	}
	w.touched[name] = true
	if w.dir.fault != nil {
		return w.dir.fault(op, name, true)
	}
	return nil
}

// takeBack undoes everything, the newest change first. It returns cause, with the errors of the
// undo functions.
func (w *writer) takeBack(cause error) error {
	for _, undo := range slices.Backward(w.undo) {
		if err := undo(); err != nil && !errors.Is(err, fs.ErrNotExist) {
			cause = fmt.Errorf("%w; and what was done could not be taken back: %w", cause, err)
		}
	}
	w.undo = nil
	return cause
}

func (w *writer) rename(from, to string) error {
	return w.do("rename", from, func() error { return w.root.Rename(from, to) }, func() error { return w.root.Rename(to, from) })
}

func (w *writer) changeMode(name string, from, to fs.FileMode) error {
	return w.do("chmod", name, func() error { return w.root.Chmod(name, to) }, func() error { return w.root.Chmod(name, from) })
}

// open makes a directory readable and writable for the scan.
func (w *writer) open(name string, perm fs.FileMode) error {
	return w.changeMode(name, perm, perm|0o700)
}

// remove removes what the snapshot does not have, or has as another type. Files are renamed to
// temporary names, so that they can be put back. A directory is empty by then; to undo its
// removal, it is made again.
func (w *writer) remove() error {
	for _, name := range w.unwanted() {
		f := w.all[name]
		var err error
		if f.mode == dirMode {
			err = w.do("rmdir", name, func() error { return w.root.Remove(name) }, func() error { return w.remake(name, f) })
		} else {
			err = w.rename(name, w.old(name))
		}
		if err != nil {
			return err
		}
		delete(w.all, name)
	}
	return nil
}

// remake makes a directory that was removed, unless it is still there.
func (w *writer) remake(name string, f found) error {
	if err := w.root.Mkdir(name, 0o700); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return nil
		}
		return err
	}
	return errors.Join(f.stamp.own(w.root, name), w.root.Chmod(name, f.perm))
}

func (w *writer) mkdir() error {
	for _, name := range slices.Sorted(maps.Keys(w.target.dirs)) { // parents sort first
		if _, ok := w.all[name]; ok {
			continue
		}
		err := w.do("mkdir", name, func() error { return w.root.Mkdir(name, 0o700) }, func() error { return w.root.Remove(name) })
		if err != nil {
			return err
		}
		w.all[name] = found{mode: dirMode, perm: 0o700}
	}
	return nil
}

// bringHome moves excluded paths back that were moved away from their places. A path stays where
// it is if its old place is taken, or if the snapshot does not have the directory of that place.
func (w *writer) bringHome() error {
	for _, name := range slices.Sorted(maps.Keys(w.strays)) {
		home := w.strays[name]
		if _, ok := w.target.dirs[filepath.Dir(home)]; !ok {
			continue
		}
		if _, err := w.root.Lstat(home); !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := w.rename(name, home); err != nil {
			return err
		}
		w.touched[home] = true
		w.alone[home] = w.alone[name]
		delete(w.alone, name)
	}
	return nil
}

// removeHolders removes the directories that contained only paths which bringHome moved.
func (w *writer) removeHolders() error {
	if err := w.check(); err != nil {
		return err
	}
	return w.remove()
}

// put gives files and links their names. It replaces an existing name atomically: a reader sees
// the old or the new file.
func (w *writer) put() error {
	for _, name := range slices.Sorted(maps.Keys(w.target.files)) {
		f, stands := w.all[name]
		temp, staged := w.staged[name]
		var err error
		switch {
		case staged && stands:
			var old string
			if old, err = w.keepOld(name); err == nil {
				err = w.do("rename", name, func() error { return w.root.Rename(temp, name) }, func() error { return w.root.Rename(old, name) })
			}
		case staged:
			err = w.do("rename", name, func() error { return w.root.Rename(temp, name) }, func() error { return w.root.Rename(name, temp) })
		case f.mode != linkMode && f.perm != w.target.perm(name):
			err = w.changeMode(name, f.perm, w.target.perm(name))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// keepOld keeps the file at a path under another name, which it returns. If the file system does
// not allow a second name for it, the file is renamed and loses its first name.
func (w *writer) keepOld(name string) (string, error) {
	old := w.old(name)
	err := w.do("link", name, func() error { return w.root.Link(name, old) }, func() error { return w.root.Remove(old) })
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return old, err
	}
	old = w.old(name)
	return old, w.rename(name, old)
}

// old returns a temporary name for the file at a path, which is kept until [writer.drop].
func (w *writer) old(name string) string {
	w.olds = append(w.olds, w.aside(name))
	return w.olds[len(w.olds)-1]
}

// probe makes sure that the modes of directories can be changed. The change itself is made last.
func (w *writer) probe() error {
	for _, name := range deepest(w.target.dirs) {
		if f := w.all[name]; f.perm != w.target.dirs[name] {
			if err := w.do("chmod", name, func() error { return w.root.Chmod(name, f.perm) }, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// swapRoot renames a new directory to the path of the directory, or removes the directory.
func (w *writer) swapRoot() error {
	path := w.dir.path
	_, wanted := w.target.dirs["."]
	switch {
	case w.fresh:
		if _, err := os.Lstat(path); err == nil {
			old := filepath.Join(filepath.Dir(path), w.dir.prefix+"old")
			w.oldRoot = old
			err := w.do("rename", ".", func() error { return os.Rename(path, old) }, func() error { return os.Rename(old, path) })
			if err != nil {
				return err
			}
		}
		err := w.do("rename", ".", func() error { return os.Rename(w.at, path) }, func() error { return os.Rename(path, w.at) })
		if err != nil {
			return err
		}
		return syncPath(filepath.Dir(path))
	case !wanted && len(w.alone) == 0:
		old := filepath.Join(filepath.Dir(path), w.dir.prefix+"old")
		w.oldRoot = old
		err := w.do("rename", ".", func() error { return os.Rename(path, old) }, func() error { return os.Rename(old, path) })
		if err != nil {
			return err
		}
		return syncPath(filepath.Dir(path))
	}
	return nil
}

// drop removes the files that were kept to undo the restore, and those that an interrupted restore
// left.
func (w *writer) drop() error {
	w.undo = nil // from here on nothing is undone
	for _, name := range slices.Concat(w.ours, w.olds) {
		err := w.do("remove", name, func() error { return w.root.Remove(name) }, nil)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if w.oldRoot != "" {
		return os.Remove(w.oldRoot)
	}
	return nil
}

// chmod gives directories their modes, the deepest first, because a mode may take its owner's
// access away.
func (w *writer) chmod() error {
	for _, name := range deepest(w.target.dirs) {
		if w.all[name].perm != w.target.dirs[name] {
			if err := w.do("chmod", name, func() error { return w.root.Chmod(name, w.target.dirs[name]) }, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// sync makes names and modes durable; the contents are durable already. It also syncs the
// directories of names that were removed. A directory that was removed itself needs no sync, and
// must not be opened: there may be a link now at its path, or at that of a directory above it.
func (w *writer) sync() error {
	if _, err := os.Lstat(w.dir.path); errors.Is(err, fs.ErrNotExist) {
		return nil // the directory is removed
	}
	if len(w.touched) > bulk && canSyncAll {
		return syncAll(w.dir.path)
	}
	paths := map[string]bool{}
	for name := range w.touched {
		if filepath.IsAbs(name) {
			continue
		}
		dir := filepath.Dir(name)
		if _, wanted := w.target.dirs[dir]; wanted || dir == "." || w.holders[dir] {
			paths[dir] = true
		}
		if e, ok := w.target.files[name]; ok && e.mode != linkMode || w.target.dirs[name] != 0 {
			paths[name] = true
		}
	}
	for name := range paths {
		// A file or directory that its owner may not read can't be opened for a sync. Its name
		// and mode become durable with its directory, and its bytes with syncAll.
		err := syncPath(filepath.Join(w.dir.path, name))
		if errors.Is(err, fs.ErrPermission) && canSyncAll {
			return syncAll(w.dir.path)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

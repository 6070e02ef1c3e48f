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

// writer carries a restore out.
type writer struct {
	*standing
	dir     *Dir
	target  *target
	objects *reader
	at      string // the directory, or the one that is to take its place
	root    *os.Root
	fresh   bool            // at is to take its place
	oldRoot string          // where what stood there is kept
	each    bool            // contents are synced one by one
	holders map[string]bool // directories that hold what is left alone
	staged  map[string]string
	olds    []string        // where what was removed is kept
	touched map[string]bool // paths made, changed or removed
	n       int             // of the last name aside
	undo    []func() error  // takes back what was done, in order
}

// do makes a change and remembers how it is taken back. A change that is reported as failed
// may have happened all the same: what takes it back must not mind that there is nothing to.
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
			w.undo = w.undo[:n] // what stands there is not ours
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

// takeBack undoes everything, the newest first, and returns why.
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

// open makes a directory readable and writable on the way of the scan.
func (w *writer) open(name string, perm fs.FileMode) error {
	return w.changeMode(name, perm, perm|0o700)
}

// remove takes away what is not to be there, or is of another type. Files are moved
// aside, so that they can come back. A directory is empty by then and is made again.
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

// bringHome moves excluded paths that were moved back to where they were. One whose place
// is taken, or gone from the snapshot too, stays where it is.
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

// removeHolders removes the directories that held only what was brought home.
func (w *writer) removeHolders() error {
	if err := w.check(); err != nil {
		return err
	}
	return w.remove()
}

// put gives files and links their names. A name that stood is replaced at once: whoever
// reads it sees the one or the other.
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

// keepOld keeps what stands at a path under another name, which it returns. Where the file
// system or its rules have no second name for it, it loses the first.
func (w *writer) keepOld(name string) (string, error) {
	old := w.old(name)
	err := w.do("link", name, func() error { return w.root.Link(name, old) }, func() error { return w.root.Remove(old) })
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return old, err
	}
	old = w.old(name)
	return old, w.rename(name, old)
}

// old returns a name under which what stands at a path is kept until [writer.drop].
func (w *writer) old(name string) string {
	w.olds = append(w.olds, w.aside(name))
	return w.olds[len(w.olds)-1]
}

// probe makes sure that the modes of directories can be changed, which is done last.
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

// swapRoot gives the directory its name, or takes it away.
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

// drop removes what was kept for taking back, and what an interrupted restore left.
func (w *writer) drop() error {
	w.undo = nil // from here on nothing is taken back
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

// chmod gives directories their modes, the deepest first: a mode may shut its owner out.
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

// sync makes names and modes durable; the contents are. The directories of names that were
// removed are synced too. One that is gone itself needs no sync, and must not be asked for: a
// link may stand where it, or one above it, stood.
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
		// A file or directory that its owner may not read can't be opened to be synced;
		// its name and mode are durable with its directory's, its bytes with syncAll.
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

package hostdir

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/tgad/tgad/schemas/tga"
)

// aside is the name under which a file is written before it takes its place. Whatever a
// crash leaves of it stands in no snapshot, so the next restore removes it.
const aside = ".tgad-restore"

// restore makes the directory what a snapshot says. All changes go through an os.Root: a
// link that a tool put in the place of a directory leads nowhere else.
func (d *Dir) restore(ctx context.Context, tree string) (err error) {
	files, modes, err := d.repo.list(ctx, tree)
	if err != nil {
		return err
	}
	objects, err := d.repo.reader(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, objects.close()) }()
	var b bytes.Buffer
	if err := objects.blob(modes, &b); err != nil {
		return err
	}
	dirs, perms, err := parseModes(b.String())
	if err != nil {
		return err
	}
	all, err := d.scan(true)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(d.path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	w := &writer{dir: d, root: root, objects: objects, all: all, files: files, dirs: dirs, perms: perms}
	return w.run()
}

func parseModes(text string) (dirs, perms map[string]fs.FileMode, err error) {
	dirs, perms = map[string]fs.FileMode{}, map[string]fs.FileMode{}
	for line := range strings.SplitSeq(strings.TrimSuffix(text, "\x00"), "\x00") {
		if line == "" {
			continue
		}
		head, name, ok := strings.Cut(line, " ")
		p, err := strconv.ParseUint(head[min(1, len(head)):], 8, 32)
		if !ok || err != nil || !filepath.IsLocal(name) {
			return nil, nil, tga.Errorf(tga.SnapshotMismatch, "modes of a snapshot: %q", line)
		}
		to := perms
		if head[0] == 'd' {
			to = dirs
		}
		to[filepath.FromSlash(name)] = goPerm(uint32(p))
	}
	return dirs, perms, nil
}

// writer carries a restore out.
type writer struct {
	dir     *Dir
	root    *os.Root
	objects *reader
	all     map[string]found // what stands there
	files   map[string]entry // what is to stand there
	dirs    map[string]fs.FileMode
	perms   map[string]fs.FileMode
	touched []string // paths made or removed
}

func (w *writer) run() error {
	for _, step := range []func() error{w.remove, w.mkdir, w.write, w.chmod, w.sync} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// remove takes away what is not to be there, or is of another type: what is deepest first.
func (w *writer) remove() error {
	for _, name := range deepest(w.all) {
		f := w.all[name]
		_, dir := w.dirs[name]
		e, file := w.files[name]
		if f.mode == dirMode && dir || f.mode != dirMode && file && (f.mode == linkMode) == (e.mode == linkMode) {
			continue
		}
		err := w.root.Remove(name)
		if f.mode == dirMode && err != nil && w.leftAlone(name) {
			continue // it holds what is not ours to remove
		}
		if err != nil {
			return err
		}
		delete(w.all, name)
		w.touched = append(w.touched, name)
	}
	return nil
}

// leftAlone says that a directory has only what a snapshot does not hold.
func (w *writer) leftAlone(name string) bool {
	list, err := os.ReadDir(filepath.Join(w.dir.path, name))
	return err == nil && len(list) > 0
}

func (w *writer) mkdir() error {
	for _, name := range slices.Sorted(maps.Keys(w.dirs)) { // parents sort first
		if _, ok := w.all[name]; ok {
			continue
		}
		if err := w.root.Mkdir(name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		w.all[name] = found{mode: dirMode, perm: 0o700}
		w.touched = append(w.touched, name)
	}
	return nil
}

func (w *writer) write() error {
	for _, name := range slices.Sorted(maps.Keys(w.files)) {
		e, f := w.files[name], w.all[name]
		perm := goPerm(defaultPerm(e.mode))
		if p, ok := w.perms[name]; ok {
			perm = p
		}
		if f.stamp.id == e.id {
			if f.mode == linkMode || f.perm == perm {
				continue
			}
			if err := w.root.Chmod(name, perm); err != nil {
				return err
			}
		} else if err := w.replace(name, e, perm); err != nil {
			return err
		}
		w.touched = append(w.touched, name)
	}
	return nil
}

// replace writes a file or link aside and gives it its name: whoever reads the name sees
// the one or the other.
func (w *writer) replace(name string, e entry, perm fs.FileMode) error {
	temp := filepath.Join(filepath.Dir(name), aside)
	if err := w.root.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if e.mode == linkMode {
		var target bytes.Buffer
		if err := w.objects.blob(e.id, &target); err != nil {
			return err
		}
		if err := w.root.Symlink(target.String(), temp); err != nil {
			return err
		}
		return w.root.Rename(temp, name)
	}
	f, err := w.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = w.objects.blob(e.id, f)
	if err == nil {
		err = f.Chmod(perm)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return w.root.Rename(temp, name)
}

// chmod gives directories their modes, the deepest first: a mode may shut its owner out.
func (w *writer) chmod() error {
	for _, name := range deepest(w.dirs) {
		if w.all[name].perm != w.dirs[name] {
			if err := w.root.Chmod(name, w.dirs[name]); err != nil {
				return err
			}
			w.touched = append(w.touched, name)
		}
	}
	return nil
}

// sync makes it durable. The directories of names that were removed are synced too; one
// that is gone itself needs no sync.
func (w *writer) sync() error {
	if len(w.touched) > bulk && canSyncAll {
		return syncAll(w.dir.path)
	}
	paths := map[string]bool{}
	for _, name := range w.touched {
		paths[filepath.Dir(name)] = true
		if e, ok := w.files[name]; ok && e.mode != linkMode || w.dirs[name] != 0 {
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

// deepest returns paths so that what is in a directory comes before it.
func deepest[V any](m map[string]V) []string {
	return slices.SortedFunc(maps.Keys(m), func(a, b string) int { return cmp.Compare(b, a) })
}

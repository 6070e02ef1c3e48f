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

// target is the content that a snapshot says the directory must have.
type target struct {
	files map[string]entry
	dirs  map[string]fs.FileMode // includes "." if the directory itself exists
	perms map[string]fs.FileMode // of files whose permissions differ from those of their git mode
}

// has reports whether the snapshot has something at a path or below it.
func (t *target) has(name string) bool {
	_, dir := t.dirs[name]
	_, file := t.files[name]
	return dir || file
}

func (t *target) perm(name string) fs.FileMode {
	if p, ok := t.perms[name]; ok {
		return p
	}
	return goPerm(defaultPerm(t.files[name].mode))
}

// restore makes the directory equal to a snapshot, or leaves it as it is.
func (d *Dir) restore(ctx context.Context, tree string) error {
	files, modes, err := d.repo.list(ctx, tree)
	if err != nil {
		return err
	}
	text, err := d.repo.run(ctx, nil, "cat-file", "blob", modes)
	if err != nil {
		return err
	}
	t := &target{files: files}
	if t.dirs, t.perms, err = parseModes(string(text)); err != nil {
		return err
	}
	maps.DeleteFunc(t.files, func(name string, _ entry) bool { return d.excluded(name) })
	maps.DeleteFunc(t.dirs, func(name string, _ fs.FileMode) bool { return d.excluded(name) })
	for try := 0; ; try++ {
		// Somebody else may work in the directory: if something appeared or vanished since the
		// scan, scan again.
		if err := d.attempt(ctx, t); err == nil || !moving(err) || try == tries-1 {
			return err
		}
		rest(try)
	}
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

// attempt tries a restore once. If it fails, it undoes what it did.
func (d *Dir) attempt(ctx context.Context, t *target) (err error) {
	objects, err := d.repo.reader(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, objects.close()) }()
	w := &writer{dir: d, target: t, objects: objects}
	defer func() {
		if err != nil {
			err = w.takeBack(err)
		}
		if w.root != nil {
			err = errors.Join(err, w.root.Close())
		}
	}()
	if err := w.openRoot(); err != nil || w.root == nil {
		return err
	}
	s := &scanner{dir: d, root: w.root, wanted: t.has, open: w.open}
	if err := s.scan(); err != nil {
		return err
	}
	w.standing = s.standing
	// All steps before drop can be undone. The steps from drop on need neither space on the
	// disk nor a permission that was not used before.
	steps := []func() error{w.check, w.unmoved, w.stage, w.unmoved, w.remove, w.mkdir, w.bringHome, w.removeHolders, w.put, w.probe, w.swapRoot, w.drop, w.chmod, w.sync}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// openRoot opens the directory. If it is gone, or something else is at its path, openRoot makes
// a new directory beside it, which [writer.swapRoot] renames to that path.
func (w *writer) openRoot() (err error) {
	d := w.dir
	w.at = d.path
	_, wanted := w.target.dirs["."]
	root, err := d.openRoot()
	var other *inTheWay
	switch {
	case err == nil:
		w.root = root
		return nil
	case errors.As(err, &other) && (kindOf(other.mode) == "a device" || !wanted):
		return err
	case errors.As(err, &other):
	case !errors.Is(err, fs.ErrNotExist):
		return err
	case !wanted:
		return nil // nothing is there, and the snapshot has nothing
	}
	w.fresh = other != nil || err != nil
	w.at = filepath.Join(filepath.Dir(d.path), d.prefix+"root")
	if err := os.RemoveAll(w.at); err != nil { // what an interrupted restore left
		return err
	}
	if err := w.do("mkdir", w.at, func() error { return os.Mkdir(w.at, 0o700) }, func() error { return os.Remove(w.at) }); err != nil {
		return err
	}
	w.root, err = os.OpenRoot(w.at)
	return err
}

// check refuses the restore if something that is left alone is in the way of the snapshot.
func (w *writer) check() error {
	w.holders = map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(w.alone)) {
		mode := w.alone[name]
		if w.target.has(name) && !w.dir.exclude[name] {
			if mode&(fs.ModeNamedPipe|fs.ModeSocket) == 0 {
				return tga.Errorf(tga.RestoreFailed, "%s is in the way: it is %s, which a snapshot does not hold", name, kindOf(mode))
			}
			// A FIFO or socket has no content that could be lost.
			w.all[name] = found{mode: pipeMode}
			delete(w.alone, name)
			continue
		}
		for up := filepath.Dir(name); up != "."; up = filepath.Dir(up) {
			if _, file := w.target.files[up]; file {
				return tga.Errorf(tga.RestoreFailed, "%s is in the way: the snapshot has a file there, and a directory holds %s, which is left alone", up, name)
			}
			w.holders[up] = true
		}
	}
	return nil
}

// pipeMode is the mode of a FIFO or socket that will be removed.
const pipeMode = "10000"

// unwanted returns, the deepest first, the paths at which the snapshot has nothing or something
// of another type.
func (w *writer) unwanted() (names []string) {
	for _, name := range deepest(w.all) {
		f := w.all[name]
		_, dir := w.target.dirs[name]
		e, file := w.target.files[name]
		switch {
		case name == ".", f.mode == dirMode && dir, f.mode == dirMode && w.holders[name]:
		case file && f.mode != dirMode && f.mode != pipeMode && (f.mode == linkMode) == (e.mode == linkMode):
		default:
			names = append(names, name)
		}
	}
	return names
}

// unmoved refuses the restore if a file has changed since [Dir.RestoreFrom] began.
func (w *writer) unmoved() error {
	if w.dir.expect == nil {
		return nil
	}
	for name, f := range w.all {
		if f.mode == dirMode || f.mode == pipeMode { // neither has content
			continue
		}
		was, known := w.dir.expect[name]
		info, err := w.root.Lstat(name)
		if err != nil || !known {
			return tga.Errorf(tga.StateConflict, "%s came or went since it was looked at", name)
		}
		now := stampOf(info)
		now.mode = f.stamp.mode
		if !was.same(now) {
			return tga.Errorf(tga.StateConflict, "%s was changed since it was looked at", name)
		}
	}
	for name := range w.dir.expect {
		if _, stands := w.all[name]; !stands {
			return tga.Errorf(tga.StateConflict, "%s came or went since it was looked at", name)
		}
	}
	return nil
}

// stage writes the missing contents under temporary names, and makes them durable.
func (w *writer) stage() error {
	w.staged = map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(w.target.files)) {
		e := w.target.files[name]
		if f := w.all[name]; f.stamp.id != e.id || (f.mode == linkMode) != (e.mode == linkMode) {
			w.staged[name] = w.aside(name)
		}
	}
	w.each = len(w.staged) <= bulk || !canSyncAll
	for _, name := range slices.Sorted(maps.Keys(w.staged)) {
		e, temp := w.target.files[name], w.staged[name]
		err := w.do("write", temp, func() error { return w.write(temp, e, w.target.perm(name)) }, func() error { return w.root.Remove(temp) })
		if err != nil {
			return err
		}
	}
	if !w.each {
		return w.do("sync", ".", func() error { return syncAll(w.at) }, nil)
	}
	return nil
}

func (w *writer) write(temp string, e entry, perm fs.FileMode) error {
	if e.mode == linkMode {
		var to bytes.Buffer
		if err := w.objects.blob(e.id, &to); err != nil {
			return err
		}
		return w.root.Symlink(to.String(), temp)
	}
	f, err := w.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = w.objects.blob(e.id, f)
	if err == nil {
		err = f.Chmod(perm)
	}
	if err == nil && w.each {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// aside returns a temporary name for the content of a path, in the nearest directory above it
// that exists before and after the restore: so no rename goes from one file system to another.
func (w *writer) aside(name string) string {
	up := filepath.Dir(name)
	for up != "." {
		_, wanted := w.target.dirs[up]
		if f, stands := w.all[up]; stands && f.mode == dirMode && wanted {
			break
		}
		up = filepath.Dir(up)
	}
	for {
		w.n++
		if at := filepath.Join(up, w.dir.prefix+strconv.Itoa(w.n)); !slices.Contains(w.ours, at) {
			return at
		}
	}
}

// deepest returns paths so that what is in a directory comes before it.
func deepest[V any](m map[string]V) []string {
	return slices.SortedFunc(maps.Keys(m), func(a, b string) int {
		if (a == ".") != (b == ".") {
			if a == "." {
				return 1
			}
			return -1
		}
		return cmp.Compare(b, a)
	})
}

package hostdir

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// tries is how often a directory is scanned at most if it changes meanwhile.
const tries = 8

// rest waits before the next try.
func rest(try int) { time.Sleep(time.Millisecond << try) }

// snapshot copies the directory into the repository and returns the tree. If something changes
// while it is copied, the directory is scanned again. At the last try, a file that appeared or
// vanished counts as it was seen, because the directory was like that at some moment. A file
// whose content changes all the time was never like its torn copy. It makes the snapshot fail,
// because otherwise a restore would write a content that never existed.
func (d *Dir) snapshot(ctx context.Context) (string, error) {
	for try := 0; ; try++ {
		last := try == tries-1
		all, gone, err := d.look()
		if !last && (gone || err != nil && moving(err)) {
			rest(try)
			continue
		}
		if err != nil {
			return "", err
		}
		c, err := d.store(ctx, all)
		if err != nil {
			return "", err
		}
		if !last && (len(c.torn) > 0 || len(c.gone) > 0 || d.changed(all, c.fresh)) {
			rest(try)
			continue
		}
		if c.err != nil {
			return "", c.err
		}
		if err := d.drop(c); err != nil {
			return "", err
		}
		for _, name := range c.gone {
			delete(all, name)
		}
		if err := d.noteHomes(); err != nil {
			return "", err
		}
		return d.index(ctx, all, c.fresh)
	}
}

// drop counts the torn copies of files that are no longer at their paths as gone. A torn copy of
// a file that is still there makes the snapshot fail.
func (d *Dir) drop(c *copied) error {
	for _, name := range c.torn {
		if !slices.Contains(c.left, name) && !d.replaced(c.all, name) {
			return fmt.Errorf("%s changes while it is copied: exclude it, or let it rest", name)
		}
		c.gone = append(c.gone, name)
	}
	return nil
}

// look scans the directory for a snapshot. A directory that does not exist counts as empty.
// gone says that something vanished meanwhile.
func (d *Dir) look() (_ map[string]found, gone bool, err error) {
	root, err := d.openRoot()
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]found{}, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	s := &scanner{dir: d, root: root}
	err = s.scan()
	return s.all, s.gone, err
}

// moving reports whether an error means that somebody else changes the directory meanwhile.
func moving(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist) || errors.Is(err, errMoved) || isNotDir(err)
}

// changed reports whether one of some paths has changed since it was scanned.
func (d *Dir) changed(all map[string]found, names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		info, err := os.Lstat(filepath.Join(d.path, name))
		if err != nil {
			return true
		}
		now := stampOf(info)
		now.mode = all[name].stamp.mode
		return !now.same(all[name].stamp)
	})
}

// replaced reports whether a path no longer has the file that was found there.
func (d *Dir) replaced(all map[string]found, name string) bool {
	info, err := os.Lstat(filepath.Join(d.path, name))
	return err != nil || stampOf(info).ino != all[name].stamp.ino
}

// index makes the tree of a scan, and syncs the files that are new in it.
func (d *Dir) index(ctx context.Context, all map[string]found, fresh []string) (string, error) {
	modes := modesOf(all)
	if d.modesID == "" || !slices.Equal(d.modes, modes) {
		file := filepath.Join(d.repo.tmp(), "modes")
		if err := os.WriteFile(file, modes, 0o600); err != nil {
			return "", err
		}
		ids, err := d.repo.hashNamed(ctx, file)
		if err != nil {
			return "", err
		}
		d.modes, d.modesID = modes, ids[0]
	}
	next := map[string]string{modesName: fileMode + " " + d.modesID}
	for name, f := range all {
		if f.mode != dirMode {
			next[escape(name)] = f.mode + " " + f.stamp.id
		}
	}
	if d.tree != "" && maps.Equal(next, d.indexed) {
		d.keep(all, next)
		return d.tree, d.syncFiles(fresh)
	}
	if d.tree == "" { // nothing is known of the index
		if _, err := d.repo.run(ctx, nil, "read-tree", "--empty"); err != nil {
			return "", err
		}
		d.indexed = map[string]string{}
	}
	d.tree = "" // not known until all of this is done
	var in bytes.Buffer
	for name := range d.indexed {
		if next[name] == "" {
			fmt.Fprintf(&in, "0 %040d\t%s\x00", 0, name)
		}
	}
	for name, v := range next {
		if d.indexed[name] != v {
			fmt.Fprintf(&in, "%s\t%s\x00", v, name)
		}
	}
	if _, err := d.repo.run(ctx, in.Bytes(), "update-index", "-z", "--add", "--replace", "--index-info"); err != nil {
		return "", err
	}
	args := []string{"write-tree"}
	if len(fresh) > bulk && canSyncAll { // there may be as many trees as files
		args = append(slices.Clone(fast), args...)
	}
	out, err := d.repo.run(ctx, nil, args...)
	if err != nil {
		return "", err
	}
	if len(fresh) > bulk && canSyncAll {
		if err := syncAll(d.repo.dir); err != nil {
			return "", err
		}
	}
	if err := d.syncFiles(fresh); err != nil {
		return "", err
	}
	d.tree = strings.TrimSpace(string(out))
	d.keep(all, next)
	return d.tree, nil
}

// keep remembers the content of the index and the stamps of its files.
func (d *Dir) keep(all map[string]found, next map[string]string) {
	d.indexed = next
	d.stamps = make(map[string]stamp, len(all))
	for name, f := range all {
		if f.mode != dirMode {
			d.stamps[name] = f.stamp
		}
	}
}

// syncFiles makes files of the directory durable, with their names. A file that is gone by now
// needs no sync.
func (d *Dir) syncFiles(names []string) error {
	sync := func(path string, f func(string) error) error {
		if err := f(path); err != nil && !moving(err) && !isNoFile(err) {
			return err
		}
		return nil
	}
	if len(names) > bulk && canSyncAll {
		return sync(d.path, syncAll)
	}
	dirs := map[string]bool{}
	for _, name := range names {
		dirs[filepath.Dir(name)] = true
		path := filepath.Join(d.path, name)
		if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() {
			continue
		}
		if err := sync(path, syncPath); err != nil {
			return err
		}
	}
	for dir := range dirs {
		if err := sync(filepath.Join(d.path, dir), syncPath); err != nil {
			return err
		}
	}
	return nil
}

// modesOf returns the modes blob: "<octal> <path>\0" for every directory, and for every
// file whose permission bits are not those of its git mode, in order.
func modesOf(all map[string]found) []byte {
	var b bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(all)) {
		f := all[name]
		if p := unixPerm(f.perm); f.mode == dirMode {
			fmt.Fprintf(&b, "d%o %s\x00", p, filepath.ToSlash(name))
		} else if f.mode != linkMode && p != defaultPerm(f.mode) {
			fmt.Fprintf(&b, "f%o %s\x00", p, filepath.ToSlash(name))
		}
	}
	return b.Bytes()
}

func defaultPerm(mode string) uint32 {
	if mode == execMode {
		return 0o755
	}
	return 0o644
}

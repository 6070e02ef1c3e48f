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

// found is what stands at a path: a file, a link or a directory.
type found struct {
	mode  string // git's mode; dirMode for a directory
	perm  fs.FileMode
	stamp stamp
}

const (
	dirMode  = "40000"
	fileMode = "100644"
	execMode = "100755"
	linkMode = "120000"
)

// stamp says that a file has not changed: nothing that changes a file leaves its ctime.
type stamp struct {
	size, ino, dev int64
	mtime, ctime   int64
	mode           string
	id             string // of the content; "" = not known
	seen           int64  // when it was looked at
}

func (s stamp) same(o stamp) bool {
	s.id, s.seen, o.id, o.seen = "", 0, "", 0
	return s == o
}

// settled says that a file can't have changed since the stamp was taken without its ctime
// showing it: that is so when the clock of the file system had moved on by then.
func (s stamp) settled() bool {
	tick := int64(50 * time.Millisecond)
	if s.ctime%int64(time.Second) == 0 {
		tick = int64(2 * time.Second) // a file system with times in seconds
	}
	return s.ctime+tick < s.seen
}

// permBits are the bits that a snapshot keeps.
const permBits = fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky

// unixPerm returns permission bits as chmod(1) writes them.
func unixPerm(m fs.FileMode) uint32 {
	p := uint32(m.Perm())
	for bit, mode := range specialBits {
		if m&mode != 0 {
			p |= bit
		}
	}
	return p
}

func goPerm(p uint32) fs.FileMode {
	m := fs.FileMode(p & 0o777)
	for bit, mode := range specialBits {
		if p&bit != 0 {
			m |= mode
		}
	}
	return m
}

var specialBits = map[uint32]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky}

// scan finds everything below the directory. With open, it makes directories readable
// and writable on its way, for a restore that sets their modes at its end.
func (d *Dir) scan(open bool) (map[string]found, error) {
	all := map[string]found{}
	var down func(rel string) error
	down = func(rel string) error {
		list, err := os.ReadDir(filepath.Join(d.path, rel))
		if err != nil {
			return err
		}
		for _, e := range list {
			name := filepath.Join(rel, e.Name())
			if d.exclude[name] {
				continue
			}
			info, err := e.Info()
			if err != nil {
				return err
			}
			f := found{perm: info.Mode() & permBits}
			switch {
			case info.IsDir():
				f.mode = dirMode
				if open && f.perm&0o700 != 0o700 {
					f.perm |= 0o700
					if err := os.Chmod(filepath.Join(d.path, name), f.perm); err != nil {
						return err
					}
				}
				all[name] = f
				if err := down(name); err != nil {
					return err
				}
				continue
			case info.Mode().IsRegular():
				f.mode = fileMode
				if f.perm&0o100 != 0 {
					f.mode = execMode
				}
			case info.Mode()&fs.ModeSymlink != 0:
				f.mode, f.perm = linkMode, 0
			default:
				continue // left alone
			}
			f.stamp = stampOf(info)
			f.stamp.mode, f.stamp.seen = f.mode, time.Now().UnixNano()
			if old, ok := d.stamps[name]; ok && old.same(f.stamp) && old.settled() {
				f.stamp.id = old.id
			}
			all[name] = f
		}
		return nil
	}
	return all, down(".")
}

// snapshot brings the repository up to the directory and returns the tree.
func (d *Dir) snapshot(ctx context.Context) (string, error) {
	for try := 0; ; try++ {
		all, err := d.scan(false)
		if err != nil {
			return "", err
		}
		fresh, err := d.store(ctx, all)
		if err != nil {
			return "", err
		}
		// A file that changes while it is copied is copied again: a torn copy would be
		// restored as if it had ever stood there.
		switch torn := d.changed(all, fresh); {
		case torn == "":
		case try < 5:
			continue
		default:
			return "", fmt.Errorf("%s changes while it is copied", torn)
		}
		return d.index(ctx, all, fresh)
	}
}

// changed returns a file of names that is not as it was found, "" where there is none.
func (d *Dir) changed(all map[string]found, names []string) string {
	for _, name := range names {
		info, err := os.Lstat(filepath.Join(d.path, name))
		if err != nil {
			return name
		}
		now := stampOf(info)
		if now.mode = all[name].stamp.mode; !now.same(all[name].stamp) {
			return name
		}
	}
	return ""
}

// store puts the contents that are not known to be in the repository there, and fills
// the ids in. It returns the paths of those.
func (d *Dir) store(ctx context.Context, all map[string]found) (fresh []string, err error) {
	defer func() { err = errors.Join(err, d.repo.clearTmp()) }()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if f := all[name]; f.mode != dirMode && f.stamp.id == "" {
			fresh = append(fresh, name)
		}
	}
	put := d.storeFew
	if len(fresh) > bulk {
		put = d.storeBulk
	}
	ids, err := put(ctx, fresh, all)
	if err != nil {
		return nil, err
	}
	for i, name := range fresh {
		f := all[name]
		f.stamp.id = ids[i]
		all[name] = f
	}
	return fresh, nil
}

// storeFew stores the contents of files and links one by one.
func (d *Dir) storeFew(ctx context.Context, names []string, all map[string]found) (ids []string, err error) {
	sources := slices.Clone(names)
	for i, name := range names {
		if f := all[name]; f.mode == linkMode || strings.Contains(name, "\n") {
			if sources[i], err = d.copyAside(name, f, i); err != nil {
				return nil, err
			}
		}
	}
	return d.repo.hash(ctx, sources)
}

// copyAside puts what a link or an oddly named file holds into a file that git can be
// told of.
func (d *Dir) copyAside(name string, f found, n int) (string, error) {
	path, aside := filepath.Join(d.path, name), filepath.Join(d.repo.tmp(), fmt.Sprint(n))
	if f.mode == linkMode {
		target, err := os.Readlink(path)
		if err != nil {
			return "", err
		}
		return aside, os.WriteFile(aside, []byte(target), 0o600)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	return aside, os.WriteFile(aside, b, 0o600)
}

func (r *repo) clearTmp() error {
	list, err := os.ReadDir(r.tmp())
	for _, e := range list {
		err = errors.Join(err, os.Remove(filepath.Join(r.tmp(), e.Name())))
	}
	return err
}

// index makes the tree of what was found, and syncs the files that are new in it.
func (d *Dir) index(ctx context.Context, all map[string]found, fresh []string) (string, error) {
	modes := modesOf(all)
	if d.modesID == "" || !slices.Equal(d.modes, modes) {
		file := filepath.Join(d.repo.tmp(), "modes")
		if err := os.WriteFile(file, modes, 0o600); err != nil {
			return "", err
		}
		ids, err := d.repo.hash(ctx, []string{file})
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
	if len(fresh) > bulk && canSyncAll { // as many trees, perhaps
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

// keep remembers what is in the index and the stamps of the files in it.
func (d *Dir) keep(all map[string]found, next map[string]string) {
	d.indexed = next
	d.stamps = make(map[string]stamp, len(all))
	for name, f := range all {
		if f.mode != dirMode {
			d.stamps[name] = f.stamp
		}
	}
}

// syncFiles makes files of the directory durable, with the names they have.
func (d *Dir) syncFiles(names []string) error {
	if len(names) > bulk && canSyncAll {
		return syncAll(d.path)
	}
	dirs := map[string]bool{}
	for _, name := range names {
		dirs[filepath.Dir(name)] = true
		if info, err := os.Lstat(filepath.Join(d.path, name)); err != nil || !info.Mode().IsRegular() {
			continue
		}
		if err := syncPath(filepath.Join(d.path, name)); err != nil {
			return err
		}
	}
	for dir := range dirs {
		if err := syncPath(filepath.Join(d.path, dir)); err != nil {
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

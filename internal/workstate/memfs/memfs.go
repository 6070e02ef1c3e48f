// Package memfs is a file system in memory with which package workstate is tested: no program
// that people run links it. Each call works in its own branch, snapshots share the nodes that
// they have in common, and calls conflict by path.
//
// It keeps names, permission bits and contents. It has no links and no times.
package memfs

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/tgad/tgad/internal/workstate"
)

// FS is the file system. It implements [fs.FS] and [workstate.Branch]. Paths are those
// of [fs.ValidPath]; errors are [*fs.PathError].
type FS struct {
	parent *FS

	mu      sync.Mutex
	base    *workstate.Node // of a branch: the parent's root when it began
	root    *workstate.Node
	read    map[string]bool // paths looked at; a path with a slash at its end is a listing
	written map[string]bool
}

// New returns an empty file system.
func New() *FS { return &FS{root: dirOf(nil)} }

func pathError(op, name string, err error) error {
	return &fs.PathError{Op: op, Path: name, Err: err}
}

var (
	errIsDir    = errors.New("is a directory")
	errNotDir   = errors.New("not a directory")
	errNotEmpty = errors.New("directory not empty")
)

// look finds the item at a path and notes that the branch depends on it. The caller holds the
// lock.
func (f *FS) look(name string) (item, bool) {
	f.touch(f.read, name)
	return find(f.root, name)
}

func (f *FS) touch(set map[string]bool, name string) {
	if f.parent != nil {
		set[name] = true
	}
}

// parentOf refuses a path at which nothing can be made: it is not valid, or its parent is not
// a directory.
func (f *FS) parentOf(op, name string) error {
	if !fs.ValidPath(name) || name == "." {
		return pathError(op, name, fs.ErrInvalid)
	}
	// The branch depends on every directory above: if one were removed, the operation would fail.
	for dir := path.Dir(name); ; dir = path.Dir(dir) {
		it, ok := f.look(dir)
		switch {
		case !ok && dir == path.Dir(name):
			return pathError(op, name, fs.ErrNotExist)
		case ok && !it.dir:
			return pathError(op, name, errNotDir)
		case dir == ".":
			return nil
		}
	}
}

// put sets the item at a path; nil removes it. The caller holds the lock.
func (f *FS) put(name string, it *item) {
	f.touch(f.written, name)
	f.root = set(f.root, name, it)
}

// WriteFile makes or replaces a file. The permission bits are those of a new file.
func (f *FS) WriteFile(name string, data []byte, perm fs.FileMode) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.parentOf("write", name); err != nil {
		return err
	}
	it, ok := f.look(name)
	if ok && it.dir {
		return pathError("write", name, errIsDir)
	}
	if !ok {
		it.perm = perm.Perm()
	}
	it.size, it.node = int64(len(data)), fileOf(data)
	f.put(name, &it)
	return nil
}

// MkdirAll makes a directory and those above it.
func (f *FS) MkdirAll(name string, perm fs.FileMode) error {
	if !fs.ValidPath(name) {
		return pathError("mkdir", name, fs.ErrInvalid)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	at := "."
	for part := range strings.SplitSeq(name, "/") {
		at = path.Join(at, part)
		it, ok := f.look(at)
		switch {
		case ok && !it.dir:
			return pathError("mkdir", at, errNotDir)
		case !ok:
			f.put(at, &item{dir: true, perm: perm.Perm(), node: dirOf(nil)})
		}
	}
	return nil
}

// Chmod sets the permission bits.
func (f *FS) Chmod(name string, perm fs.FileMode) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.parentOf("chmod", name); err != nil {
		return err
	}
	it, ok := f.look(name)
	if !ok {
		return pathError("chmod", name, fs.ErrNotExist)
	}
	it.perm = perm.Perm()
	f.put(name, &it)
	return nil
}

// Remove removes a file or an empty directory.
func (f *FS) Remove(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.parentOf("remove", name); err != nil {
		return err
	}
	it, ok := f.look(name)
	if !ok {
		return pathError("remove", name, fs.ErrNotExist)
	}
	if it.dir {
		f.touch(f.read, name+"/")
		if len(entries(it.node)) > 0 {
			return pathError("remove", name, errNotEmpty)
		}
	}
	f.put(name, nil)
	return nil
}

// RemoveAll removes the file or directory at a path, with everything below it, if there is one.
func (f *FS) RemoveAll(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !fs.ValidPath(name) || name == "." {
		return pathError("removeall", name, fs.ErrInvalid)
	}
	it, ok := f.look(name)
	if !ok {
		return nil
	}
	f.below(name, it, func(name string, it item) {
		f.touch(f.read, name)
		f.touch(f.written, name)
		if it.dir {
			f.touch(f.read, name+"/")
		}
	})
	f.put(name, nil)
	return nil
}

// below visits it and what is below it, parents first.
func (f *FS) below(name string, it item, visit func(string, item)) {
	visit(name, it)
	if !it.dir {
		return
	}
	for _, child := range entries(it.node) {
		f.below(path.Join(name, child.name), child, visit)
	}
}

// Rename moves a file or a directory to a new path. A file may also replace another file.
func (f *FS) Rename(from, to string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range []string{from, to} {
		if err := f.parentOf("rename", name); err != nil {
			return err
		}
	}
	it, ok := f.look(from)
	if !ok {
		return pathError("rename", from, fs.ErrNotExist)
	}
	if at, ok := f.look(to); ok && (at.dir || it.dir) || strings.HasPrefix(to, from+"/") {
		return pathError("rename", to, fs.ErrExist)
	}
	f.below(from, it, func(name string, at item) {
		f.touch(f.read, name)
		f.touch(f.written, name)
		f.touch(f.written, to+name[len(from):])
		if at.dir {
			f.touch(f.read, name+"/")
		}
	})
	f.put(from, nil)
	f.put(to, &it)
	return nil
}

// Snapshot implements [workstate.Snapshotter]. It copies nothing.
func (f *FS) Snapshot(context.Context) (*workstate.Node, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.root, nil
}

// Restore implements [workstate.Snapshotter].
func (f *FS) Restore(_ context.Context, n *workstate.Node) error {
	if err := check(n); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.parent != nil {
		for _, root := range []*workstate.Node{f.root, n} {
			f.below(".", item{dir: true, node: root}, func(name string, _ item) {
				if name != "." && differs(f.root, n, name) {
					f.written[name] = true
				}
			})
		}
	}
	f.root = n
	return nil
}

// Branch implements [workstate.Brancher].
func (f *FS) Branch() workstate.Branch {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &FS{parent: f, base: f.root, root: f.root, read: map[string]bool{}, written: map[string]bool{}}
}

// differs reports whether the items at a path differ in two trees. Directories are compared by
// existence and permission bits only. A path with a slash at its end stands for the names in
// a directory.
func differs(a, b *workstate.Node, name string) bool {
	at, listing := strings.CutSuffix(name, "/")
	x, ok := find(a, at)
	y, also := find(b, at)
	switch {
	case ok != also || x.dir != y.dir:
		return true
	case !ok:
		return false
	case listing && x.dir:
		return !slices.EqualFunc(entries(x.node), entries(y.node), func(a, b item) bool { return a.name == b.name && a.dir == b.dir })
	case x.dir:
		return x.perm != y.perm
	}
	return x.perm != y.perm || x.node.Digest() != y.node.Digest()
}

// Check implements [workstate.Branch].
func (f *FS) Check(ignoreReads bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.parent.mu.Lock()
	defer f.parent.mu.Unlock()
	head := f.parent.root
	if head == f.base {
		return nil
	}
	touched := maps.Clone(f.written)
	// A path that was written must still have its directories above it, and a directory that
	// was removed must still have the names that were removed with it. So these count as
	// touched even if reads are ignored.
	for name := range f.read {
		if !ignoreReads || f.above(name) || f.removed(name) {
			touched[name] = true
		}
	}
	var names []string
	for name := range touched {
		if differs(f.base, head, name) {
			names = append(names, "path "+name)
		}
	}
	return workstate.Conflict(names...)
}

// above reports whether the branch has written a path below this one.
func (f *FS) above(name string) bool {
	for w := range f.written {
		if strings.HasPrefix(w, strings.TrimSuffix(name, "/")+"/") {
			return true
		}
	}
	return false
}

// removed reports whether a path is the listing of a directory that the branch has removed.
func (f *FS) removed(name string) bool {
	dir, listing := strings.CutSuffix(name, "/")
	it, ok := find(f.root, dir)
	return listing && !(ok && it.dir)
}

// Merge implements [workstate.Branch].
func (f *FS) Merge() {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.parent
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.root == f.base {
		p.root = f.root
	} else {
		p.root = f.mergeInto(p.root)
	}
	if p.parent != nil {
		maps.Copy(p.read, f.read)
		maps.Copy(p.written, f.written)
	}
}

// MergeReads makes what the branch has looked at count as looked at by its parent.
func (f *FS) MergeReads() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.parent.mu.Lock()
	defer f.parent.mu.Unlock()
	if f.parent.parent != nil {
		maps.Copy(f.parent.read, f.read)
	}
}

// mergeInto sets the paths that were written, and no others, in another tree. Parents come
// before their entries. A directory keeps the entries that others have added.
func (f *FS) mergeInto(root *workstate.Node) *workstate.Node {
	for _, name := range slices.Sorted(maps.Keys(f.written)) {
		it, ok := find(f.root, name)
		old, had := find(root, name)
		switch {
		case !ok && had:
			root = set(root, name, nil)
		case !ok:
		case it.dir && had && old.dir:
			it.node = old.node
			root = set(root, name, &it)
		case it.dir:
			it.node = dirOf(nil) // its entries were written too, and follow
			root = set(root, name, &it)
		default:
			root = set(root, name, &it)
		}
	}
	return root
}

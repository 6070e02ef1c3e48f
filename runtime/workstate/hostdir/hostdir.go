// Package hostdir lets package workstate undo what tools did to a directory of the host.
// Snapshots are git trees in a repository outside the directory. The package runs git as a
// command, with no other configuration than the one written here.
//
// A snapshot has every file, symbolic link and directory with its permission bits,
// including those named .git and those that git ignores. It does not have: owners, times,
// extended attributes, which names are links to the same file, and anything that is
// neither file, link nor directory. Such a FIFO, socket or device is left alone, like an
// excluded path, and so are the directories that contain it. Only a FIFO or socket at a
// path where the snapshot has something else is removed.
//
// A restore makes everything as in the snapshot, or changes nothing and says what is in
// the way: a full disk, an immutable file, a directory with excluded files in it where
// the snapshot has a file. It writes all contents under other names before it changes a
// name. It keeps what it removes until nothing can fail any more, and puts it back if
// something fails.
//
// An excluded path that was moved with its directory is recognized by its inode. A
// restore moves it back to its place, and never removes it.
package hostdir

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/tgad/tgad/internal/workstate"
	"github.com/tgad/tgad/schemas/tga"
)

// Options configure a Dir.
type Options struct {
	// Exclude names paths below the directory, with slashes, that are never touched.
	Exclude []string
	// Git is the command; "" means git.
	Git string
}

// Dir is a directory that calls use one after another. It is a [workstate.Snapshotter] and
// a [workstate.Collector].
type Dir struct {
	path    string
	repo    *repo
	exclude map[string]bool

	// prefix begins the names of temporary files. It is random and belongs to the
	// repository, so no other name begins with it.
	prefix string
	// fault lets tests simulate a failing disk: it is called before and after each change
	// that a restore makes in the directory.
	fault func(op, name string, done bool) error

	mu      sync.Mutex
	expect  map[string]stamp    // during [Dir.RestoreFrom]: the files that it began with
	homes   map[string]identity // of excluded paths and the directories above them
	stamps  map[string]stamp    // of files whose content is in the repository
	modes   []byte              // the newest modes blob
	modesID string              // its id; "" = it may not be in the repository
	indexed map[string]string   // "<mode> <id>" by escaped path: the content of the index
	tree    string              // the tree of the index; "" = neither tree nor index is known
}

var (
	_ workstate.Snapshotter = (*Dir)(nil)
	_ workstate.Collector   = (*Dir)(nil)
	_ workstate.Placed      = (*Dir)(nil)
)

// Open opens a directory with a repository for its snapshots, and makes the repository if it
// does not exist. Neither may lie inside the other. Only one Dir uses a repository at a
// time: STATE_LOCK_ACQUIRE_FAILED if another has it. If the repository exists, Open also
// opens a directory that was removed or replaced by something else: a restore makes it again.
func Open(ctx context.Context, dir, repository string, o Options) (*Dir, error) {
	_, known := os.Stat(filepath.Join(repository, "HEAD"))
	dir, err := realDir(dir, known == nil)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(repository, 0o700); err != nil {
		return nil, tga.Errorf(tga.ValidationError, "snapshot repository %s: %w", repository, err)
	}
	if repository, err = real(repository); err != nil {
		return nil, err
	}
	for _, pair := range [][2]string{{dir, repository}, {repository, dir}} {
		if rel, err := filepath.Rel(pair[0], pair[1]); err != nil || rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator)) {
			return nil, tga.Errorf(tga.ValidationError, "%s lies in %s: a snapshot would hold itself", pair[1], pair[0])
		}
	}
	d := &Dir{path: dir, exclude: map[string]bool{}, stamps: map[string]stamp{}, indexed: map[string]string{}}
	for _, name := range o.Exclude {
		if name = filepath.Clean(filepath.FromSlash(name)); name == "." || !filepath.IsLocal(name) {
			return nil, tga.Errorf(tga.ValidationError, "exclude %q: want a path below the directory", name)
		}
		d.exclude[name] = true
	}
	if d.repo, err = openRepo(ctx, repository, o.Git); err != nil {
		return nil, err
	}
	if d.prefix, err = d.repo.prefix(); err == nil {
		d.homes, err = d.repo.readHomes()
	}
	if err != nil {
		return nil, errors.Join(err, d.repo.close())
	}
	return d, nil
}

// realDir returns the path of a directory, links resolved. A known directory may have been
// removed or replaced since: then only the path of its parent is resolved.
func realDir(dir string, known bool) (string, error) {
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		err = errors.New("not a directory")
	}
	if err == nil {
		return real(dir)
	}
	if !known {
		return "", tga.Errorf(tga.ValidationError, "workspace %s: %w", dir, err)
	}
	parent, err := real(filepath.Dir(filepath.Clean(dir)))
	return filepath.Join(parent, filepath.Base(dir)), err
}

func real(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err == nil {
		abs, err = filepath.EvalSymlinks(abs)
	}
	if err != nil {
		return "", tga.Errorf(tga.ValidationError, "%s: %w", path, err)
	}
	return abs, nil
}

// Close unlocks the repository.
func (d *Dir) Close() error { return d.repo.close() }

// Path returns the directory, links resolved.
func (d *Dir) Path() string { return d.path }

// Place implements [workstate.Placed].
func (d *Dir) Place() workstate.Place {
	p := workstate.Place{Kind: workstate.PlaceDirectory, Path: d.path, Aside: d.repo.dir}
	for _, name := range slices.Sorted(maps.Keys(d.exclude)) {
		p.Exclude = append(p.Exclude, filepath.ToSlash(name))
	}
	return p
}

// Fetch copies the objects of n, a snapshot of from, into d's repository, so that d can be
// restored to n. A fork needs it, because it has a directory and a repository of its own.
func (d *Dir) Fetch(ctx context.Context, from *Dir, n *workstate.Node) error {
	tree, err := treeOf(n)
	if err != nil {
		return err
	}
	from.mu.Lock()
	defer from.mu.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.repo.fetch(ctx, from.repo, tree); err != nil {
		return tga.Errorf(codeOf(err), "snapshot %s of %s into %s: %w", tree, from.path, d.repo.dir, err)
	}
	return nil
}

// image is the data of a snapshot's node, JSON.
type image struct {
	Tree string `json:"tree"`
}

var treeForm = regexp.MustCompile(`^[0-9a-f]{40}([0-9a-f]{24})?$`)

func treeOf(n *workstate.Node) (string, error) {
	var i image
	if err := json.Unmarshal(n.Data(), &i); err != nil || !treeForm.MatchString(i.Tree) {
		return "", tga.Errorf(tga.SnapshotMismatch, "node %s is no snapshot of a directory", n.Digest())
	}
	return i.Tree, nil
}

// Snapshot implements [workstate.Snapshotter]. When it returns, the copy and the
// directory itself are both on disk.
func (d *Dir) Snapshot(ctx context.Context) (*workstate.Node, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	tree, err := d.snapshot(ctx)
	if err != nil {
		return nil, tga.Errorf(tga.GenericStateError, "snapshot of %s: %w", d.path, err)
	}
	data, err := json.Marshal(image{tree})
	if err != nil {
		return nil, tga.Errorf(tga.GenericStateError, "snapshot of %s: %w", d.path, err)
	}
	return workstate.NewNode(data), nil
}

// Restore implements [workstate.Snapshotter]. Files whose content is right are not
// written. If it fails, everything is as it was. It may be interrupted at any point: a
// second Restore, of any snapshot, then makes exactly the content of that snapshot.
func (d *Dir) Restore(ctx context.Context, n *workstate.Node) error {
	tree, err := treeOf(n)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.restore(ctx, tree); err != nil {
		return tga.Errorf(codeOf(err), "restore of %s to %s: %w", d.path, tree, err)
	}
	return nil
}

// RestoreFrom is Restore for a directory that somebody else may work in. It restores only if the
// directory equals the snapshot seen, and still does when the new contents are written under other
// names. Otherwise it is STATE_CONFLICT, and nothing is changed.
func (d *Dir) RestoreFrom(ctx context.Context, seen, n *workstate.Node) error {
	was, err := treeOf(seen)
	if err != nil {
		return err
	}
	tree, err := treeOf(n)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	now, err := d.snapshot(ctx)
	if err == nil && now != was {
		err = tga.Errorf(tga.StateConflict, "it is not what it was when it was looked at")
	}
	if err == nil {
		d.expect = maps.Clone(d.stamps)
		err = d.restore(ctx, tree)
		d.expect = nil
	}
	if err != nil {
		return tga.Errorf(codeOf(err), "restore of %s to %s: %w", d.path, tree, err)
	}
	return nil
}

// SnapshotID returns the id of a snapshot, a git tree; [SnapshotOf] is its inverse.
func SnapshotID(n *workstate.Node) (string, error) { return treeOf(n) }

// SnapshotOf returns the snapshot with an id.
func SnapshotOf(id string) (*workstate.Node, error) {
	data, err := json.Marshal(image{id})
	if err != nil {
		return nil, tga.Errorf(tga.SnapshotMismatch, "snapshot %q: %w", id, err)
	}
	n := workstate.NewNode(data)
	_, err = treeOf(n)
	return n, err
}

func codeOf(err error) tga.Code {
	if c := tga.CodeOf(err); c != "" {
		return c
	}
	return tga.RestoreFailed
}

// Collect implements [workstate.Collector].
func (d *Dir) Collect(ctx context.Context, live []*workstate.Node) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	keep := map[string]bool{}
	for _, n := range live {
		tree, err := treeOf(n)
		if err != nil {
			return err
		}
		keep[tree] = true
	}
	// Forget the known contents first: no later snapshot may rely on an object that is deleted.
	d.stamps, d.tree, d.modesID = map[string]stamp{}, "", ""
	return d.repo.collect(ctx, keep)
}

// FileChange is a path in which two snapshots differ.
type FileChange struct {
	Path   string // with slashes
	Status byte   // 'A' added, 'D' deleted, 'M' content or mode, 'T' type
}

// Diff returns the files and links that differ between two snapshots. It does not compare empty
// directories, nor permission bits other than executable.
func (d *Dir) Diff(ctx context.Context, from, to *workstate.Node) ([]FileChange, error) {
	a, err := treeOf(from)
	if err != nil {
		return nil, err
	}
	b, err := treeOf(to)
	if err != nil {
		return nil, err
	}
	out, err := d.repo.run(ctx, nil, "diff-tree", "-r", "-z", "--no-renames", "--name-status", a, b)
	if err != nil {
		return nil, err
	}
	var list []FileChange
	for pair := range slices.Chunk(strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"), 2) {
		if len(pair) == 2 {
			if name, ok := unescape(pair[1]); ok {
				list = append(list, FileChange{filepath.ToSlash(name), pair[0][0]})
			}
		}
	}
	return list, nil
}

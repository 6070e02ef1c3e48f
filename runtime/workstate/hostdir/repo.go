package hostdir

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/tgad/tgad/internal/access"
	"github.com/tgad/tgad/internal/filelock"
	"github.com/tgad/tgad/schemas/tga"
)

// repo is a bare repository that only this package uses.
//
// A snapshot is a tree of "m", the modes, and "w", the files. Every name below w begins with
// an added underscore, because git refuses some names, .git among them.
type repo struct {
	git  string
	dir  string
	lock *os.File
}

// always is the configuration of every command. Git syncs objects and refs when it writes
// them, converts nothing, and starts no garbage collection by itself.
var always = []string{
	"-c", "core.fsync=all", "-c", "core.fsyncMethod=fsync", "-c", "core.autocrlf=false", "-c", "core.safecrlf=false",
	"-c", "core.protectNTFS=false", "-c", "core.protectHFS=false", "-c", "core.symlinks=true", "-c", "core.fileMode=true",
	"-c", "core.hooksPath=/dev/null", "-c", "gc.auto=0", "-c", "maintenance.auto=false", "-c", "core.logAllRefUpdates=false",
}

func openRepo(ctx context.Context, dir, git string) (*repo, error) {
	git = cmp.Or(git, "git")
	git, err := exec.LookPath(git)
	if err != nil {
		return nil, tga.Errorf(tga.ValidationError, "a directory's snapshots need git: %w", err)
	}
	r := &repo{git: git, dir: dir}
	// Whoever waits for a lock that is held must not wait for one that cannot be taken.
	if r.lock, err = filelock.Lock(filepath.Join(dir, "tgad.lock")); errors.Is(err, filelock.ErrHeld) {
		return nil, tga.Errorf(tga.StateLockAcquireFailed, "snapshot repository %s is in use: %w", dir, err)
	} else if err != nil {
		return nil, tga.Errorf(tga.StoreUnavailable, "snapshot repository: %w", err)
	}
	if err = r.init(ctx); err != nil {
		return nil, errors.Join(err, r.close())
	}
	return r, nil
}

func (r *repo) init(ctx context.Context) error {
	if _, err := os.Stat(filepath.Join(r.dir, "HEAD")); errors.Is(err, os.ErrNotExist) {
		if _, err := r.run(ctx, nil, "init", "--quiet", "--bare", "--template=", r.dir); err != nil {
			return err
		}
	}
	// Remove what a killed process left: its index and lock, and temporary files.
	reports, err := filepath.Glob(filepath.Join(r.dir, "fast_import_crash_*"))
	if err != nil {
		return tga.Errorf(tga.GenericStateError, "snapshot repository: %w", err)
	}
	for i := range reports {
		reports[i] = filepath.Base(reports[i])
	}
	for _, name := range append(reports, "tgad.index", "tgad.index.lock", "tgad.tmp") {
		if err := os.RemoveAll(filepath.Join(r.dir, name)); err != nil {
			return tga.Errorf(tga.GenericStateError, "snapshot repository: %w", err)
		}
	}
	if err := os.Mkdir(r.tmp(), 0o700); err != nil {
		return tga.Errorf(tga.GenericStateError, "snapshot repository: %w", err)
	}
	return nil
}

// prefix returns the repository's own random prefix for names in the directory.
func (r *repo) prefix() (string, error) {
	name := filepath.Join(r.dir, "tgad.prefix")
	b, err := access.ReadFile(name)
	if errors.Is(err, os.ErrNotExist) {
		b = []byte(".tgad-restore-" + strings.ToLower(rand.Text()) + "-")
		err = r.writeFile(name, b)
	}
	return string(b), err
}

// writeFile replaces a file of the repository, durably.
func (r *repo) writeFile(name string, b []byte) error {
	temp := filepath.Join(r.tmp(), "new")
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(temp, name); err != nil {
		return err
	}
	return syncPath(r.dir)
}

func (r *repo) tmp() string  { return filepath.Join(r.dir, "tgad.tmp") }
func (r *repo) close() error { return r.lock.Close() }

func (r *repo) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, r.git, append(append([]string{}, always...), args...)...)
	cmd.Dir = r.dir                     // the directory itself may be gone
	cmd.ExtraFiles = []*os.File{r.lock} // held until the command ends, also after our own end
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + r.dir, "LC_ALL=C",
		"GIT_DIR=" + r.dir, "GIT_INDEX_FILE=" + filepath.Join(r.dir, "tgad.index"),
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + os.DevNull, "GIT_ATTR_NOSYSTEM=1",
		"GIT_TERMINAL_PROMPT=0", "GIT_NO_REPLACE_OBJECTS=1",
	}
	return cmd
}

// run runs git with an input and returns what it printed.
func (r *repo) run(ctx context.Context, input []byte, args ...string) ([]byte, error) {
	return finish(r.command(ctx, args...), input)
}

func finish(cmd *exec.Cmd, input []byte) ([]byte, error) {
	cmd.Stdin = bytes.NewReader(input)
	var out, diag bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &diag
	if err := cmd.Run(); err != nil {
		what := cmd.Args[1:]
		for len(what) > 2 && what[0] == "-c" {
			what = what[2:]
		}
		return nil, tga.Errorf(tga.GenericStateError, "git %s: %s: %w", what[0], strings.TrimSpace(diag.String()), err)
	}
	return out.Bytes(), nil
}

// fast turns syncs off for a command, after which the caller syncs everything at once.
var fast = []string{"-c", "core.fsync=none"}

// bulk is the largest number of files and objects that are written and synced one by one.
const bulk = 64

// hash stores the contents of open files and returns their ids in order. Git gets open files
// instead of names: when git opens a name, it could have become a FIFO, and git would wait for
// ever.
func (r *repo) hash(ctx context.Context, files []*os.File) ([]string, error) {
	if len(files) == 0 {
		return nil, nil
	}
	var in bytes.Buffer
	cmd := r.command(ctx, "hash-object", "-w", "--no-filters", "--stdin-paths")
	for _, f := range files {
		fmt.Fprintf(&in, "/dev/fd/%d\n", 3+len(cmd.ExtraFiles))
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
	}
	out, err := finish(cmd, in.Bytes())
	if err != nil {
		return nil, err
	}
	ids := strings.Fields(string(out))
	if len(ids) != len(files) {
		return nil, fmt.Errorf("git hash-object answered %d ids for %d files", len(ids), len(files))
	}
	return ids, nil
}

// entry is a path's entry in the tree of a snapshot.
type entry struct {
	mode string // git's: 100644, 100755 or 120000
	id   string
}

// list reads a snapshot: files and links by path, and the modes blob.
func (r *repo) list(ctx context.Context, tree string) (files map[string]entry, modes string, err error) {
	out, err := r.run(ctx, nil, "ls-tree", "-r", "-z", "--full-tree", tree)
	if err != nil {
		return nil, "", tga.Errorf(tga.SnapshotMismatch, "the repository has no snapshot %s: %w", tree, err)
	}
	files = map[string]entry{}
	for line := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		head, name, ok := strings.Cut(line, "\t")
		f := strings.Fields(head)
		if !ok || len(f) != 3 {
			return nil, "", tga.Errorf(tga.SnapshotMismatch, "snapshot %s: line %q", tree, line)
		}
		if name == modesName {
			modes = f[2]
		} else if name, ok := unescape(name); ok {
			files[name] = entry{f[0], f[2]}
		} else {
			return nil, "", tga.Errorf(tga.SnapshotMismatch, "snapshot %s holds %q", tree, line)
		}
	}
	if modes == "" {
		return nil, "", tga.Errorf(tga.SnapshotMismatch, "snapshot %s has no modes", tree)
	}
	return files, modes, nil
}

// reader reads objects from one git process.
type reader struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	pipe io.Closer
	out  *bufio.Reader
}

func (r *repo) reader(ctx context.Context) (*reader, error) {
	cmd := r.command(ctx, "cat-file", "--batch")
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &reader{cmd, in, out, bufio.NewReaderSize(out, 1<<16)}, cmd.Start()
}

// blob writes the content of a blob to w.
func (r *reader) blob(id string, w io.Writer) error {
	if _, err := io.WriteString(r.in, id+"\n"); err != nil {
		return err
	}
	line, err := r.out.ReadString('\n')
	if err != nil {
		return err
	}
	f := strings.Fields(line)
	if len(f) != 3 || f[1] != "blob" {
		return fmt.Errorf("git cat-file: %s", strings.TrimSpace(line))
	}
	size, err := strconv.ParseInt(f[2], 10, 64)
	if err != nil {
		return err
	}
	if _, err := io.CopyN(w, r.out, size); err != nil {
		return err
	}
	_, err = r.out.Discard(1)
	return err
}

// close ends git. If the last blob was not read to its end, git still writes it, and would wait
// for a reader for ever while the pipe is open. So close the pipe too. The exit status of git
// is ignored: either everything was read, or there is an error already.
func (r *reader) close() error {
	err := errors.Join(r.in.Close(), r.pipe.Close())
	var exit *exec.ExitError
	if wait := r.cmd.Wait(); !errors.As(wait, &exit) {
		err = errors.Join(err, wait)
	}
	return err
}

// fetch copies the objects of a snapshot from another repository.
func (r *repo) fetch(ctx context.Context, from *repo, tree string) (err error) {
	pack, err := os.CreateTemp(r.tmp(), "fetch-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pack.Close(), os.Remove(pack.Name())) }()
	out := from.command(ctx, "pack-objects", "--revs", "--stdout", "-q")
	out.Stdin, out.Stdout = strings.NewReader(tree+"\n"), pack
	var diag strings.Builder
	out.Stderr = &diag
	if err := out.Run(); err != nil {
		return tga.Errorf(tga.SnapshotMismatch, "the repository %s has no snapshot %s: %s: %w", from.dir, tree, strings.TrimSpace(diag.String()), err)
	}
	if _, err := pack.Seek(0, io.SeekStart); err != nil {
		return err
	}
	in := r.command(ctx, "index-pack", "--stdin")
	in.Stdin, in.Stderr = pack, &diag
	if err := in.Run(); err != nil {
		return fmt.Errorf("git index-pack: %s: %w", strings.TrimSpace(diag.String()), err)
	}
	return syncPath(filepath.Join(r.dir, "objects", "pack")) // git syncs the pack, not its name
}

// here returns those of some snapshots that the repository has. The snapshots of a fork are in another
// repository.
func (r *repo) here(ctx context.Context, trees map[string]bool) (map[string]bool, error) {
	var in bytes.Buffer
	for tree := range trees {
		in.WriteString(tree + "\n")
	}
	out, err := r.run(ctx, in.Bytes(), "cat-file", "--batch-check=%(objectname) %(objecttype)")
	found := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		if tree, ok := strings.CutSuffix(strings.TrimSpace(line), " tree"); ok {
			found[tree] = true
		}
	}
	return found, err
}

// collect keeps each snapshot in keep by a ref, and deletes the objects that nothing refers to.
func (r *repo) collect(ctx context.Context, keep map[string]bool) error {
	keep, err := r.here(ctx, keep)
	if err != nil {
		return err
	}
	out, err := r.run(ctx, nil, "for-each-ref", "--format=%(refname)", "refs/keep/")
	if err != nil {
		return err
	}
	var in bytes.Buffer
	for ref := range strings.FieldsSeq(string(out)) {
		if tree := strings.TrimPrefix(ref, "refs/keep/"); keep[tree] {
			delete(keep, tree)
		} else {
			fmt.Fprintf(&in, "delete %s\n", ref)
		}
	}
	for tree := range keep {
		fmt.Fprintf(&in, "create refs/keep/%s %s\n", tree, tree)
	}
	if _, err := r.run(ctx, in.Bytes(), "update-ref", "--stdin"); err != nil {
		return err
	}
	// The index refers to objects too. Delete it; the next snapshot makes a new one.
	if err := os.Remove(filepath.Join(r.dir, "tgad.index")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, args := range [][]string{{"repack", "-a", "-d", "-q"}, {"prune", "--expire=now"}} {
		if _, err := r.run(ctx, nil, args...); err != nil {
			return err
		}
	}
	return nil
}

const modesName = "m"

// escape returns the name of a path in a snapshot.
func escape(path string) string {
	return "w/_" + strings.ReplaceAll(filepath.ToSlash(path), "/", "/_")
}

func unescape(name string) (path string, ok bool) {
	rest, ok := strings.CutPrefix(name, "w/")
	if !ok {
		return "", false
	}
	parts := strings.Split(rest, "/")
	for i, p := range parts {
		if parts[i], ok = strings.CutPrefix(p, "_"); !ok || parts[i] == "" || parts[i] == "." || parts[i] == ".." {
			return "", false
		}
	}
	return filepath.Join(parts...), true
}

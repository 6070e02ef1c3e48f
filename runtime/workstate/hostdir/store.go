package hostdir

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// copied is the result of copying contents into the repository.
type copied struct {
	root  *os.Root
	all   map[string]found
	fresh []string // paths whose contents were not known to be in the repository, and now are
	gone  []string // paths that have no such file any more
	torn  []string // files that were written while they were copied
	left  []string // files of torn that were no longer at their paths after the copy
	err   error    // of git, if torn files may be the cause: then nothing was copied
}

// store copies the contents that are not known to be in the repository into it, and fills
// in their ids.
func (d *Dir) store(ctx context.Context, all map[string]found) (c *copied, err error) {
	defer func() { err = errors.Join(err, d.repo.clearTmp()) }()
	c = &copied{all: all}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if f := all[name]; f.mode != dirMode && f.stamp.id == "" {
			c.fresh = append(c.fresh, name)
		}
	}
	if len(c.fresh) == 0 {
		return c, nil
	}
	if c.root, err = d.openRoot(); err != nil {
		if moving(err) {
			c.gone, c.fresh = c.fresh, nil
			return c, nil
		}
		return nil, err
	}
	defer func() { err = errors.Join(err, c.root.Close()) }()
	put := d.storeFew
	if len(c.fresh) > bulk {
		put = d.storeBulk
	}
	ids, err := put(ctx, c)
	if err != nil && len(c.torn) == 0 {
		return nil, err
	}
	fresh := c.fresh
	c.fresh, c.err = nil, err
	for i, name := range fresh {
		if err == nil && !slices.Contains(c.gone, name) {
			f := all[name]
			f.stamp.id = ids[i]
			all[name] = f
			c.fresh = append(c.fresh, name)
		}
	}
	return c, nil
}

// open opens a file to copy it. It returns nil if there is no file at its path any more. If
// there is another file by now, open takes that one.
func (c *copied) open(name string) (*os.File, error) {
	file, err := c.root.OpenFile(name, os.O_RDONLY|noWait, 0)
	if err != nil {
		if moving(err) || isNoFile(err) {
			return nil, nil
		}
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && info.Mode().IsRegular() {
		c.all[name] = c.all[name].asOpened(info)
		return file, nil
	}
	return nil, errors.Join(err, file.Close())
}

// whole notes whether a copied file was written while it was copied. A whole copy is good
// even if the name is gone by now, or names another file. If the name of a torn copy is gone,
// nobody can read that file any more. The check is made while the file is open: once it is
// closed, the next file of that name may get its inode, and would look like this file.
func (c *copied) whole(name string, file *os.File) error {
	info, err := file.Stat()
	if s := c.all[name].stamp; err != nil || info.Size() == s.size && info.ModTime().UnixNano() == s.mtime {
		return err
	}
	c.torn = append(c.torn, name)
	if now, err := c.root.Lstat(name); err != nil || !os.SameFile(now, info) {
		c.left = append(c.left, name)
	}
	return nil
}

// storeFew stores the contents of files and links one by one.
func (d *Dir) storeFew(ctx context.Context, c *copied) (ids []string, err error) {
	var files []*os.File
	defer func() {
		for _, f := range files {
			err = errors.Join(err, f.Close())
		}
	}()
	for i, name := range c.fresh {
		file, err := d.source(c, i, name)
		if err == nil && file == nil { // take an id that nobody uses
			c.gone = append(c.gone, name)
			file, err = os.Open(os.DevNull)
		}
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	ids, err = d.repo.hash(ctx, files)
	for i, name := range c.fresh {
		if c.all[name].mode != linkMode && !slices.Contains(c.gone, name) {
			err = errors.Join(err, c.whole(name, files[i]))
		}
	}
	return ids, err
}

// source opens a file, or a copy of the target of a link.
func (d *Dir) source(c *copied, n int, name string) (*os.File, error) {
	if c.all[name].mode != linkMode {
		return c.open(name)
	}
	target, err := c.root.Readlink(name)
	if err != nil {
		if moving(err) || isNoLink(err) {
			return nil, nil
		}
		return nil, err
	}
	aside := filepath.Join(d.repo.tmp(), fmt.Sprint(n))
	if err := os.WriteFile(aside, []byte(target), 0o600); err != nil {
		return nil, err
	}
	return os.Open(aside)
}

// hashNamed stores the content of a file of our own.
func (r *repo) hashNamed(ctx context.Context, name string) (ids []string, err error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return r.hash(ctx, []*os.File{f})
}

func (r *repo) clearTmp() error {
	list, err := os.ReadDir(r.tmp())
	for _, e := range list {
		err = errors.Join(err, os.Remove(filepath.Join(r.tmp(), e.Name())))
	}
	return err
}

// zeros supplies the missing bytes of a file that shrinks while it is read. Such a copy is torn,
// and is not kept.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// storeBulk stores the contents of many files and links in one pack, and returns their
// ids in order. A separate object file for each, as in storeFew, costs several times more.
func (d *Dir) storeBulk(ctx context.Context, c *copied) (ids []string, err error) {
	marks := filepath.Join(d.repo.tmp(), "marks")
	// Git syncs the pack when it is whole: core.fsync covers packs too.
	cmd := d.repo.command(ctx, "-c", "fastimport.unpackLimit=0", "fast-import", "--quiet", "--export-marks="+marks)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	var diag strings.Builder
	cmd.Stderr = &diag
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	w := bufio.NewWriterSize(in, 1<<18)
	for i, name := range c.fresh {
		if err = c.writeBlob(w, i+1, name); err != nil {
			break
		}
	}
	err = errors.Join(err, w.Flush(), in.Close())
	if wait := cmd.Wait(); wait != nil {
		err = errors.Join(err, fmt.Errorf("git fast-import: %s: %w", strings.TrimSpace(diag.String()), wait))
	}
	if err != nil {
		return nil, err
	}
	return readMarks(marks, len(c.fresh))
}

// writeBlob writes a file, or the target of a link, as fast-import reads it.
func (c *copied) writeBlob(w *bufio.Writer, mark int, name string) (err error) {
	if c.all[name].mode == linkMode {
		target, err := c.root.Readlink(name)
		if err != nil && (moving(err) || isNoLink(err)) {
			c.gone, err = append(c.gone, name), nil
		}
		if err == nil {
			_, err = fmt.Fprintf(w, "blob\nmark :%d\ndata %d\n%s\n", mark, len(target), target)
		}
		return err
	}
	file, err := c.open(name)
	if err != nil {
		return err
	}
	if file == nil {
		c.gone = append(c.gone, name)
		_, err = fmt.Fprintf(w, "blob\nmark :%d\ndata 0\n\n", mark)
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	size := c.all[name].stamp.size
	if _, err := fmt.Fprintf(w, "blob\nmark :%d\ndata %d\n", mark, size); err != nil {
		return err
	}
	if _, err := io.CopyN(w, io.MultiReader(file, zeros{}), size); err != nil {
		return err
	}
	return errors.Join(c.whole(name, file), w.WriteByte('\n'))
}

// readMarks reads the ids of n blobs.
func readMarks(name string, n int) ([]string, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	ids := make([]string, n)
	for line := range strings.Lines(string(b)) {
		var mark int
		var id string
		if _, err := fmt.Sscanf(line, ":%d %s", &mark, &id); err != nil || mark < 1 || mark > n {
			return nil, fmt.Errorf("git fast-import: mark %q", line)
		}
		ids[mark-1] = id
	}
	for i, id := range ids {
		if id == "" {
			return nil, fmt.Errorf("git fast-import: no id for blob %d", i+1)
		}
	}
	return ids, nil
}

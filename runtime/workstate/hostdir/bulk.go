package hostdir

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// zeros fills what a file that shrinks while it is read no longer has. The copy is then
// of no use, and the scan after it says so.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// storeBulk stores the contents of many files and links in one pack, and returns their
// ids in order. A file of its own for each, as few contents get, costs several times more.
func (d *Dir) storeBulk(ctx context.Context, names []string, all map[string]found) (ids []string, err error) {
	marks := filepath.Join(d.repo.tmp(), "marks")
	// The pack is synced when it is whole: core.fsync names packs too.
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
	for i, name := range names {
		if err = d.writeBlob(w, i+1, name, all[name]); err != nil {
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
	return readMarks(marks, len(names))
}

// writeBlob writes a file, or the target of a link, as fast-import reads it.
func (d *Dir) writeBlob(w *bufio.Writer, mark int, name string, f found) (err error) {
	path := filepath.Join(d.path, name)
	if f.mode == linkMode {
		target, err := os.Readlink(path)
		if err == nil {
			_, err = fmt.Fprintf(w, "blob\nmark :%d\ndata %d\n%s\n", mark, len(target), target)
		}
		return err
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if _, err := fmt.Fprintf(w, "blob\nmark :%d\ndata %d\n", mark, f.stamp.size); err != nil {
		return err
	}
	if _, err := io.CopyN(w, io.MultiReader(file, zeros{}), f.stamp.size); err != nil {
		return err
	}
	return w.WriteByte('\n')
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

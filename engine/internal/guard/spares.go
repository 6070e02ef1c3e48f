package guard

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// sparePrefix begins the name of a spare log file. Pebble takes it for no file of its
// own: it neither reads, copies nor deletes it.
const sparePrefix = "spare-log-"

// spareWrite is how many bytes of a spare are written or read at a time.
const spareWrite = 1 << 20

// PrepareSpares makes the spares that FSOptions asks for. Call it after [Report.Verify]
// passed, and before the store is opened. A spare left from before is kept if every
// byte of it is zero, so that nothing in it can ever read as a record.
func (f *CountingFS) PrepareSpares() error {
	if f.opts.Spares == 0 || f.opts.Dir == "" {
		return nil
	}
	names, err := f.List(f.opts.Dir)
	if err != nil {
		return unavailable("prepare spare logs", err)
	}
	kept := map[string]bool{}
	for _, name := range names {
		if !strings.HasPrefix(name, sparePrefix) {
			continue
		}
		path := f.PathJoin(f.opts.Dir, name)
		if len(kept) < f.opts.Spares && f.isZero(path) {
			kept[path] = true
			continue
		}
		if err := f.Remove(path); err != nil {
			return unavailable("remove spare log "+path, err)
		}
	}
	for i := 0; len(kept) < f.opts.Spares; i++ {
		path := f.PathJoin(f.opts.Dir, fmt.Sprintf("%s%d", sparePrefix, i))
		if kept[path] {
			continue
		}
		if err := f.makeSpare(path); err != nil {
			return unavailable("make spare log "+path, err)
		}
		kept[path] = true
	}
	if err := syncDir(f, f.opts.Dir); err != nil {
		return unavailable("sync directory of spare logs", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.spares = f.spares[:0]
	for path := range kept {
		f.spares = append(f.spares, path)
	}
	return nil
}

// takeSpare hands out a spare, once.
func (f *CountingFS) takeSpare() (string, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.spares) == 0 {
		return "", false
	}
	path := f.spares[len(f.spares)-1]
	f.spares = f.spares[:len(f.spares)-1]
	return path, true
}

// makeSpare writes zeros. A file that is merely allocated would read the same, but its
// first writes would change its metadata, and that is what a spare is to avoid.
func (f *CountingFS) makeSpare(path string) error {
	if err := f.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := f.FS.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	zeros := make([]byte, min(f.opts.SpareBytes, spareWrite))
	for left := f.opts.SpareBytes; left > 0 && err == nil; {
		var n int
		clear(zeros) // Write may change what it is given
		n, err = file.Write(zeros[:min(left, int64(len(zeros)))])
		left -= int64(n)
	}
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}

// isZero reports whether the file has the right size and nothing but zeros. A file
// that cannot be read does not.
func (f *CountingFS) isZero(path string) bool {
	file, err := f.Open(path, vfs.SequentialReadsOption)
	if err != nil {
		return false
	}
	size := int64(0)
	b := make([]byte, spareWrite)
	for err == nil {
		var n int
		n, err = file.Read(b)
		size += int64(n)
		if !allZero(b[:n]) {
			err = errNotZero
		}
	}
	return file.Close() == nil && errors.Is(err, io.EOF) && size == f.opts.SpareBytes
}

var errNotZero = errors.New("spare log holds something")

package tree

import (
	"bufio"
	"errors"
	"io"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/tgad/tgad/schemas/tga"
)

// Compare compares the files of a tree, which no process has open, with the tree that follows from the log. It compares the
// leaves up to the mark. STATE_CHECKSUM_MISMATCH: the files are damaged. They can be removed without a loss: [Open] makes the
// tree again from the log.
func Compare(fs vfs.FS, dir string, store tga.ID, with *Tree) error {
	dir = fs.PathJoin(dir, Dir)
	name := fs.PathJoin(dir, hashesName)
	damaged := func(format string, args ...any) error {
		return tga.Errorf(tga.StateChecksumMismatch, "evidence: "+format+"; remove the file, and a daemon makes it again from the log", append([]any{name}, args...)...)
	}
	mark := fs.PathJoin(dir, markName)
	size, _, ok, err := readMark(fs, mark, store)
	if err != nil {
		return err
	}
	if !ok {
		if _, err := fs.Stat(mark); errors.Is(err, os.ErrNotExist) {
			return nil // without its mark a tree is made again
		}
		name = mark
		return damaged("%s is not as it was written")
	}
	if size > with.Size() {
		return damaged("%s has %d appends, and the log %d", size, with.Size())
	}
	f, err := fs.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return unavailable(name, err)
	}
	defer f.Close()
	r := bufio.NewReaderSize(f, 1<<20)
	var header [headerSize]byte
	if _, err := io.ReadFull(r, header[:]); err != nil || header != with.header() {
		return damaged("%s does not begin as a tree of this store: %v", err)
	}
	for i := range tlog.StoredHashCount(size) {
		var have tlog.Hash
		if _, err := io.ReadFull(r, have[:]); err != nil {
			return damaged("%s ends before hash %d: %v", i, err)
		}
		want, err := with.ReadHashes([]int64{i})
		if err != nil {
			return err
		}
		if have != want[0] {
			return damaged("hash %[2]d of %[1]s is %[3]v, and follows from the log as %[4]v", i, have, want[0])
		}
	}
	return nil
}

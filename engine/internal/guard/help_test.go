package guard

import (
	"bytes"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

func readWALBytes(b []byte, number uint64) (WAL, []Problem, error) {
	return readWAL(bytes.NewReader(b), "test.log", number)
}

// hook calls before ahead of every operation on base. It is errorfs, which alone does
// not see what is written to a file that was opened by ReuseForWrite: a recycled log.
func hook(base vfs.FS, before func(errorfs.Op) error) vfs.FS {
	return hookFS{errorfs.Wrap(base, errorfs.InjectorFunc(before)), before}
}

type hookFS struct {
	vfs.FS
	before func(errorfs.Op) error
}

func (h hookFS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := h.FS.ReuseForWrite(oldname, newname, category)
	if err != nil {
		return nil, err
	}
	return errorfs.WrapFile(f, errorfs.InjectorFunc(func(op errorfs.Op) error {
		op.Path = newname
		return h.before(op)
	})), nil
}

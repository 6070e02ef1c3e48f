// Package crashmem is Pebble's crashable file system in memory, without its deadlock.
//
// In [vfs.MemFS], Link and ReuseForWrite hold the lock that CrashClone needs, and ask for it
// again while they hold it (Pebble v2.1.7, ReuseForWrite through Rename). A CrashClone that
// arrives between the two waits for the first, and the second waits for the CrashClone: the
// store hangs for ever, usually with Pebble's own mutex held.
package crashmem

import (
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// FS is a [vfs.MemFS] that remembers what was synced. Its zero value is not usable.
type FS struct {
	*vfs.MemFS
	// clone is locked for writing by CrashClone, and for reading by the operations that
	// ask for MemFS's lock twice. None of them asks for clone twice.
	clone sync.RWMutex
}

var _ vfs.FS = (*FS)(nil)

// New returns an empty file system.
func New() *FS { return &FS{MemFS: vfs.NewCrashableMem()} }

// CrashClone returns what a crash now would leave, see [vfs.MemFS.CrashClone].
func (f *FS) CrashClone(cfg vfs.CrashCloneCfg) *FS {
	f.clone.Lock()
	defer f.clone.Unlock()
	return &FS{MemFS: f.MemFS.CrashClone(cfg)}
}

// Link implements [vfs.FS].
func (f *FS) Link(oldname, newname string) error {
	f.clone.RLock()
	defer f.clone.RUnlock()
	return f.MemFS.Link(oldname, newname)
}

// ReuseForWrite implements [vfs.FS].
func (f *FS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f.clone.RLock()
	defer f.clone.RUnlock()
	return f.MemFS.ReuseForWrite(oldname, newname, category)
}

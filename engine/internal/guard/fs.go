package guard

import (
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// FSOptions says what [FS] does beside counting. The zero value is safe for any store.
type FSOptions struct {
	// Dir is the store's directory. Without it OnFlushed is never called and no spares
	// are used.
	Dir string

	// OnFlushed is called with what the current MANIFEST says, as soon as that is
	// durable and before Pebble may delete or reuse a flushed log; [Watermark.Flushed]
	// is meant. Its error fails Pebble's sync.
	OnFlushed func(flushedWAL, flushedSeqnum uint64) error

	// OnLost is called when a log or the directory of the store was not written. It
	// should not return: Pebble would panic where nobody can recover. Where it does,
	// Pebble gets the error.
	OnLost func(error)

	// OnFailed is called when any other operation that changes something failed, or a look
	// at a directory. What it returns is what Pebble gets; it need not return. nil = the error
	// as it is.
	OnFailed func(error) error

	// Spares is how many log files of SpareBytes are kept ready, written full of zeros
	// and synced, so that a commit's sync has no metadata to write. 0 = none.
	Spares     int
	SpareBytes int64

	// OnSlowDisk is called when an operation of the OS file system takes longer than
	// SlowDisk (0 = 5 s).
	OnSlowDisk func(vfs.DiskSlowInfo)
	SlowDisk   time.Duration
}

// Class is the kind of a file, by its name.
type Class uint8

// The classes.
const (
	ClassLog Class = iota
	ClassTable
	ClassManifest
	ClassWatermark
	ClassOther // directories too
	numClasses
)

// String names the class.
func (c Class) String() string {
	return [...]string{"log", "table", "manifest", "watermark", "other"}[c]
}

func classOf(name string) Class {
	switch {
	case strings.HasSuffix(name, ".log"), strings.HasPrefix(name, sparePrefix):
		return ClassLog
	case strings.HasSuffix(name, ".sst"), strings.HasSuffix(name, ".blob"):
		return ClassTable
	case strings.HasPrefix(name, "MANIFEST-"):
		return ClassManifest
	case strings.HasPrefix(name, WatermarkName):
		return ClassWatermark
	}
	return ClassOther
}

// Count counts the completed operations on the files of one class.
type Count struct {
	Creates, Writes, Bytes, Syncs uint64
}

// Counts has one Count per class.
type Counts [numClasses]Count

type counter struct {
	creates, writes, bytes, syncs atomic.Uint64
}

// CountingFS is the file system that a store runs on; see [FS].
type CountingFS struct {
	vfs.FS // with health checks where base is the OS
	health io.Closer
	dir    string // opts.Dir as PathDir gives it for a file in it
	opts   FSOptions

	counters [numClasses]counter

	fence     fence
	reporting sync.Mutex // held while OnFlushed runs: whoever finds it reported may go on

	mu      sync.Mutex
	current string // the MANIFEST that the marker durably names
	marked  string // the one that it will name once the directory is synced
	tails   map[string]*manifestReader
	spares  []string
}

var _ vfs.FS = (*CountingFS)(nil)

// FS wraps base for one store. Close it after the store.
//
// A new MANIFEST's first sync also syncs the directory: Pebble creates the file that
// says which MANIFEST is current before it syncs the directory, so a power cut can
// keep that name and lose the MANIFEST's own, and the store never opens again.
func FS(base vfs.FS, o FSOptions) *CountingFS {
	f := &CountingFS{FS: base, opts: o, tails: map[string]*manifestReader{}}
	if o.Dir != "" {
		f.dir = base.PathDir(base.PathJoin(o.Dir, WatermarkName))
	}
	if _, ok := base.(osFS); ok || base == vfs.Default {
		// Pebble checks the disk's health only on the file system it chose itself.
		slow, onSlow := o.SlowDisk, o.OnSlowDisk
		if slow == 0 {
			slow = 5 * time.Second
		}
		if onSlow == nil {
			onSlow = func(vfs.DiskSlowInfo) {}
		}
		f.FS, f.health = vfs.WithDiskHealthChecks(base, slow, nil, onSlow)
	}
	return f
}

// Close stops the health checks.
func (f *CountingFS) Close() error {
	if f.health == nil {
		return nil
	}
	return f.health.Close()
}

// Counts returns the counts so far.
func (f *CountingFS) Counts() Counts {
	var c Counts
	for i := range c {
		n := &f.counters[i]
		c[i] = Count{n.creates.Load(), n.writes.Load(), n.bytes.Load(), n.syncs.Load()}
	}
	return c
}

// Unwrap returns the wrapped file system.
func (f *CountingFS) Unwrap() vfs.FS { return f.FS }

// Create creates a file, a log from a spare where there is one.
func (f *CountingFS) Create(name string, category vfs.DiskWriteCategory) (file vfs.File, err error) {
	base := f.PathBase(name)
	class := classOf(base)
	if f.ours(name) && class == ClassLog {
		if spare, ok := f.takeSpare(); ok {
			return f.ReuseForWrite(spare, name, category)
		}
	}
	err = f.fence.pass(func() error { file, err = f.FS.Create(name, category); return err })
	var tail *manifestReader
	if err == nil && f.ours(name) {
		f.mu.Lock()
		switch {
		case class == ClassManifest:
			tail = newManifestReader(base)
			f.tails[base] = tail
		case strings.HasPrefix(base, manifestMarker):
			_, f.marked, _ = strings.Cut(base[len(manifestMarker):], ".")
		}
		f.mu.Unlock()
	}
	return f.wrap(file, err, name, class, tail)
}

// manifestMarker begins the name of the empty file that names the current MANIFEST:
// marker.manifest.ITERATION.MANIFEST-NUMBER.
const manifestMarker = "marker.manifest."

// ReuseForWrite renames a file and opens it for writing, its old bytes in place.
func (f *CountingFS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (file vfs.File, err error) {
	err = f.fence.pass(func() error { file, err = f.FS.ReuseForWrite(oldname, newname, category); return err })
	return f.wrap(file, err, newname, classOf(f.PathBase(newname)), nil)
}

// OpenReadWrite opens a file for reading and writing. Pebble's health checks let such
// files be: one that they watch must not be synced while it is written, and the
// watermark is.
func (f *CountingFS) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (file vfs.File, err error) {
	err = f.fence.pass(func() error { file, err = f.FS.OpenReadWrite(name, category, opts...); return err })
	return f.wrap(file, err, name, classOf(f.PathBase(name)), nil)
}

// OpenDir opens a directory for syncing.
func (f *CountingFS) OpenDir(name string) (vfs.File, error) {
	dir, err := f.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return &countedFile{File: dir, fs: f, count: &f.counters[ClassOther], dir: true, vital: f.ours(f.PathJoin(name, WatermarkName))}, nil
}

// List lists a directory.
func (f *CountingFS) List(dir string) ([]string, error) {
	names, err := f.FS.List(dir)
	return names, f.failed(err)
}

func (f *CountingFS) failed(err error) error {
	if err == nil || f.opts.OnFailed == nil {
		return err
	}
	return f.opts.OnFailed(err)
}

// ours reports whether a file is in the store's directory; a backup writes elsewhere.
func (f *CountingFS) ours(name string) bool { return f.dir != "" && f.PathDir(name) == f.dir }

func (f *CountingFS) wrap(file vfs.File, err error, name string, class Class, tail *manifestReader) (vfs.File, error) {
	vital := class == ClassLog && f.ours(name)
	if err != nil {
		if vital {
			return nil, f.lost(err)
		}
		return nil, f.failed(err)
	}
	f.counters[class].creates.Add(1)
	return &countedFile{File: file, fs: f, count: &f.counters[class], name: name, class: class, tail: tail, vital: vital}, nil
}

// dirSynced is called when a directory sync that began with marked as the newest marker
// is done: the MANIFEST that it names is current from now on.
func (f *CountingFS) dirSynced(marked string) error {
	if marked == "" {
		return nil
	}
	f.reporting.Lock()
	defer f.reporting.Unlock()
	f.mu.Lock()
	if f.marked != marked { // another sync of the directory came first
		f.mu.Unlock()
		return nil
	}
	f.current, f.marked = marked, ""
	for name := range f.tails {
		if name != marked {
			delete(f.tails, name)
		}
	}
	f.mu.Unlock()
	return f.report(marked)
}

// manifestSynced is called when what was written to a MANIFEST is durable.
func (f *CountingFS) manifestSynced(name string) error {
	f.reporting.Lock()
	defer f.reporting.Unlock()
	return f.report(name)
}

// report hands on what the MANIFEST says, if it is the current one. A MANIFEST that is
// not yet current must not be reported: a power cut could bring back the one before,
// which then would seem to have lost the flush.
func (f *CountingFS) report(name string) error {
	f.mu.Lock()
	tail := f.tails[name]
	if f.current != name || tail == nil || f.opts.OnFlushed == nil {
		f.mu.Unlock()
		return nil
	}
	said, readable := tail.Manifest, !tail.ended && len(tail.problems) == 0
	f.mu.Unlock()
	if !readable {
		return mismatch("%s: what was written to it cannot be read back", name)
	}
	return f.opts.OnFlushed(said.FlushedWAL, said.FlushedSeqnum)
}

func (f *CountingFS) newestMarker() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.marked
}

// countedFile counts, and follows a MANIFEST.
type countedFile struct {
	vfs.File
	fs    *CountingFS
	count *counter
	name  string
	class Class
	dir   bool
	vital bool // a log or the directory of the store: see [FSOptions.OnLost]

	tail  *manifestReader // of a MANIFEST of the store, else nil
	named bool            // its name in the directory is synced
}

// change runs one operation that may change something.
func (c *countedFile) change(do func() error) error {
	err := c.fs.fence.pass(do)
	if err != nil && c.vital {
		return c.fs.lost(err)
	}
	return c.fs.failed(err)
}

func (c *countedFile) Write(p []byte) (n int, err error) {
	err = c.change(func() error {
		if c.tail != nil {
			c.fs.mu.Lock()
			_, err := c.tail.Write(p) // first: the file's Write may change p
			c.fs.mu.Unlock()
			if err != nil {
				return err
			}
		}
		n, err = c.File.Write(p)
		c.count.wrote(n)
		return err
	})
	return n, err
}

func (c *countedFile) WriteAt(p []byte, off int64) (n int, err error) {
	err = c.change(func() error {
		n, err = c.File.WriteAt(p, off)
		c.count.wrote(n)
		return err
	})
	return n, err
}

func (c *countedFile) Sync() error { return c.change(func() error { return c.sync(c.File.Sync) }) }
func (c *countedFile) SyncData() error {
	return c.change(func() error { return c.sync(c.File.SyncData) })
}

func (c *countedFile) SyncTo(length int64) (full bool, err error) {
	err = c.change(func() error {
		full, err = c.File.SyncTo(length)
		if full && err == nil {
			c.count.syncs.Add(1)
		}
		return err
	})
	return full, err
}

func (c *countedFile) Preallocate(offset, length int64) error {
	return c.fs.fence.pass(func() error { return c.File.Preallocate(offset, length) })
}

func (c *countedFile) Close() error { return c.change(c.File.Close) }

// sync syncs and does what has to follow.
func (c *countedFile) sync(do func() error) error {
	marked := ""
	if c.dir {
		// Before the sync: a marker that appears while it runs is not covered by it.
		marked = c.fs.newestMarker()
	}
	if err := do(); err != nil {
		return err
	}
	c.count.syncs.Add(1)
	switch {
	case c.dir:
		return c.fs.dirSynced(marked)
	case c.class != ClassManifest:
		return nil
	}
	if !c.named {
		if err := syncDir(c.fs.FS, c.fs.PathDir(c.name)); err != nil {
			return err
		}
		c.named = true
	}
	return c.fs.manifestSynced(c.fs.PathBase(c.name))
}

func (n *counter) wrote(bytes int) {
	n.writes.Add(1)
	n.bytes.Add(uint64(max(bytes, 0)))
}

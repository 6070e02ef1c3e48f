package main

import (
	"strings"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// countingFS counts the syncs of log files.
type countingFS struct {
	vfs.FS
	syncs atomic.Uint64
}

func (c *countingFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := c.FS.Create(name, category)
	return c.wrap(name, f, err)
}

func (c *countingFS) ReuseForWrite(old, name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := c.FS.ReuseForWrite(old, name, category)
	return c.wrap(name, f, err)
}

func (c *countingFS) wrap(name string, f vfs.File, err error) (vfs.File, error) {
	if err != nil || !strings.HasSuffix(name, ".log") {
		return f, err
	}
	return &countingFile{File: f, fs: c}, nil
}

type countingFile struct {
	vfs.File
	fs *countingFS
}

func (f *countingFile) Sync() error {
	f.fs.syncs.Add(1)
	return f.File.Sync()
}

func (f *countingFile) SyncData() error {
	f.fs.syncs.Add(1)
	return f.File.SyncData()
}

// openPebble opens Pebble with its defaults. An append is a batch of two keys, the record and
// its place in a global order, committed with Sync.
func openPebble(dir string, _ int) (*peer, error) {
	return pebbleWith(dir, "defaults, two keys, Sync", &pebble.Options{})
}

// openTunedPebble opens Pebble with settings for many writes: large memtables and a large
// base level, so that few compactions run beside the appends.
func openTunedPebble(dir string, _ int) (*peer, error) {
	return pebbleWith(dir, "memtable 32 MiB ×4, L0 8/32, LBase 256 MiB, two keys, Sync", &pebble.Options{
		FormatMajorVersion: pebble.FormatValueSeparation,
		MemTableSize:       32 << 20, MemTableStopWritesThreshold: 4,
		L0CompactionThreshold: 8, L0StopWritesThreshold: 32, LBaseMaxBytes: 256 << 20, CacheSize: 64 << 20,
	})
}

type quiet struct{ pebble.Logger }

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}

func pebbleWith(dir, setting string, o *pebble.Options) (*peer, error) {
	fs := &countingFS{FS: vfs.Default}
	o.FS, o.Logger = fs, quiet{pebble.DefaultLogger}
	db, err := pebble.Open(dir, o)
	if err != nil {
		return nil, err
	}
	var index atomic.Uint64
	return &peer{setting: setting, syncs: fs.syncs.Load, close: db.Close, put: func(_ int, key, value []byte) error {
		b := db.NewBatch()
		if err := b.Set(key, value, nil); err != nil {
			return err
		}
		var order [9]byte
		order[0] = 'g'
		n := index.Add(1)
		for i := range 8 {
			order[8-i] = byte(n >> (8 * i))
		}
		if err := b.Set(order[:], key, nil); err != nil {
			return err
		}
		if err := b.Commit(pebble.Sync); err != nil {
			return err
		}
		return b.Close()
	}}, nil
}

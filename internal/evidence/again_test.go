package evidence_test

import (
	"log/slog"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/internal/evidence"
	"github.com/tgad/tgad/internal/evidence/checkpoint"
	"github.com/tgad/tgad/internal/testlog"
)

// failing is a disk of which one kind of operation fails while it is set. What was written and not synced is lost when a
// sync fails, as on a disk whose writes fail after they were taken.
type failing struct {
	vfs.FS
	mu   sync.Mutex
	kind string // "" = all succeed
	hits int
}

func (d *failing) set(kind string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.kind, d.hits = kind, 0
}

// fails says whether an operation fails.
func (d *failing) fails(kind string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.kind == kind {
		d.hits++
	}
	return d.kind == kind
}

func (d *failing) has() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.hits
}

func (d *failing) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if d.fails("create") {
		return nil, syscall.ENOSPC
	}
	f, err := d.FS.Create(name, c)
	return &failingFile{File: f, disk: d}, err
}

func (d *failing) OpenReadWrite(name string, c vfs.DiskWriteCategory, o ...vfs.OpenOption) (vfs.File, error) {
	if d.fails("open") {
		return nil, syscall.EMFILE
	}
	f, err := d.FS.OpenReadWrite(name, c, o...)
	return &failingFile{File: f, disk: d}, err
}

func (d *failing) OpenDir(name string) (vfs.File, error) {
	f, err := d.FS.OpenDir(name)
	return &failingFile{File: f, disk: d}, err
}

func (d *failing) Rename(from, to string) error {
	if d.fails("rename") {
		return syscall.EIO
	}
	return d.FS.Rename(from, to)
}

type failingFile struct {
	vfs.File
	disk *failing
	mu   sync.Mutex
	was  []piece // what stood where something was written since the last sync
}

type piece struct {
	at   int64
	text []byte
}

func (f *failingFile) Write(b []byte) (int, error) {
	if f.disk.fails("write") {
		return 0, syscall.ENOSPC
	}
	return f.File.Write(b)
}

func (f *failingFile) WriteAt(b []byte, at int64) (int, error) {
	if f.disk.fails("write") {
		return 0, syscall.ENOSPC
	}
	old := make([]byte, len(b))
	_, _ = f.File.ReadAt(old, at) // behind the end there are zeros
	f.mu.Lock()
	defer f.mu.Unlock()
	f.was = append(f.was, piece{at, old})
	return f.File.WriteAt(b, at)
}

func (f *failingFile) Sync() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.disk.fails("sync") {
		f.was = nil
		return f.File.Sync()
	}
	for i := len(f.was) - 1; i >= 0; i-- {
		if _, err := f.File.WriteAt(f.was[i].text, f.was[i].at); err != nil {
			return err
		}
	}
	f.was = nil
	return syscall.EIO
}

// TestCheckpointsGoOnAfterAFailedDisk: whatever fails of the disk for a while, checkpoints are made again once it works,
// without a restart; proofs hold meanwhile and afterwards, and the next keeper finds nothing wrong.
func TestCheckpointsGoOnAfterAFailedDisk(t *testing.T) {
	for _, kind := range []string{"write", "sync", "create", "rename", "open after sync"} {
		t.Run(kind, func(t *testing.T) {
			s, disk, said := newStand(t), &failing{FS: vfs.Default}, &testlog.Buffer{}
			s.options.FS, s.options.Logger = disk, slog.New(slog.NewTextHandler(said, nil))
			s.open()
			first := s.append(1)
			before, _ := s.covered()
			kinds := strings.Split(kind, " after ")
			for i := len(kinds) - 1; i >= 0; i-- {
				disk.set(kinds[i])
				s.append(uint64(10 + i))
				for end := time.Now().Add(time.Minute); disk.has() < 2; time.Sleep(time.Millisecond) {
					if time.Now().After(end) {
						t.Fatalf("%s does not fail twice: %s", kinds[i], said.String())
					}
				}
				if _, err := s.k.Receipt(t.Context(), first); err != nil {
					t.Errorf("a receipt while the disk fails: %v", err)
				}
				if err := s.k.Check(t.Context(), evidence.Seen{Size: before.Size, Head: before.Head}); err != nil {
					t.Errorf("what was shown while the disk fails: %v", err)
				}
			}
			disk.set("")
			last := s.append(20)
			c, _ := s.covered()
			r, err := s.k.Receipt(t.Context(), last)
			if err != nil || r.Pending() > 0 {
				t.Errorf("%d leaves are pending: %v", r.Pending(), err)
			}
			for end := time.Now().Add(time.Minute); !strings.Contains(said.String(), "checkpoints are made again"); time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("the log says %s", said.String())
				}
			}
			s.close()
			s.options.FS = nil
			s.open()
			defer s.close()
			if raw, _ := s.k.Newest(); s.db.Stats().Frozen != "" || raw == nil {
				t.Errorf("opened again it is frozen for %q", s.db.Stats().Frozen)
			} else if n, err := checkpoint.Unverified(raw); err != nil || n.Size < c.Size {
				t.Errorf("opened again it has signed for %d, and had for %d: %v", n.Size, c.Size, err)
			}
			if err := evidence.Verify(t.Context(), s.db, s.dir); err != nil {
				t.Error(err)
			}
		})
	}
}

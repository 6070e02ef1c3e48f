package engine_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/crashtest/crashmem"
	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// While the sync of an append hangs, every way to read shows the store as it was, or
// waits. Afterwards every way shows the append.
func TestNoReaderSeesAnUnsyncedBatch(t *testing.T) {
	fs := &faultFS{FS: vfs.NewMem(), log: true}
	db := open(t, "store", options(fs))
	s := spec{trace: id(1)}
	fresh := spec{trace: id(2)}
	m, f := s.make(t), fresh.make(t)
	lease, other := acquire(t, db, s.trace), acquire(t, db, fresh.trace)
	append_(t, db, lease, m.begin())
	seen, err := db.Record(context.Background(), s.ledgerKey())
	if err != nil {
		t.Fatal(err)
	}
	approval := fresh.trace

	hanging, release := make(chan struct{}, 8), make(chan struct{})
	fs.onSync(func(real func() error) error {
		hanging <- struct{}{}
		<-release
		return real()
	})
	before, done := make(chan error, 1), make(chan error, 2)
	third := spec{trace: id(3)}.make(t).begin()
	held := acquire(t, db, id(3))
	go func() { _, err := db.Append(context.Background(), held, third); before <- err }()
	<-hanging
	go func() { _, err := db.Append(context.Background(), lease, m.end()); done <- err }()
	go func() {
		b := f.batch(f.request)
		b.Attachments = []chain.Attachment{{Kind: chain.AttachApproval, Key: approval[:], Value: []byte("v")}}
		_, err := db.Append(context.Background(), other, b)
		done <- err
	}()
	for db.Queued() < 2 {
		time.Sleep(time.Millisecond) // until both wait for the sync that hangs
	}
	release <- struct{}{}
	if err := <-before; err != nil {
		t.Fatal(err)
	}
	cursor := db.Cursor()
	<-hanging // theirs, of one group
	// old reports what a reader sees; waiting until the deadline is right too.
	readers := map[string]func(context.Context) (old bool, err error){
		"record": func(ctx context.Context) (bool, error) {
			rec, err := db.Record(ctx, s.ledgerKey())
			return err == nil && rec.Status == ledger.Reserved, err
		},
		"load": func(ctx context.Context) (bool, error) {
			tr, err := db.Load(ctx, s.trace)
			return err == nil && tr.Head.Seq == 3, err
		},
		"load of a new trace": func(ctx context.Context) (bool, error) {
			_, err := db.Load(ctx, fresh.trace)
			return tga.CodeOf(err) == tga.NotFound, err
		},
		"state": func(ctx context.Context) (bool, error) {
			st, err := db.State(ctx, s.trace)
			return err == nil && st.LastSeq == 3, err
		},
		"entries": func(ctx context.Context) (bool, error) {
			for _, err := range db.Entries(ctx, s.trace, 3) {
				return false, err
			}
			return true, nil
		},
		"notes": func(ctx context.Context) (bool, error) {
			for _, err := range db.Notes(ctx, s.trace, 0) {
				return false, err
			}
			return true, nil
		},
		"await": func(ctx context.Context) (bool, error) {
			err := db.Await(ctx, s.ledgerKey(), *seen)
			return false, err
		},
		"follow": func(ctx context.Context) (bool, error) {
			for _, err := range db.Follow(ctx, cursor) {
				return false, err
			}
			return false, nil
		},
		"cursor": func(context.Context) (bool, error) { return db.Cursor() == cursor, nil },
		"attachment": func(ctx context.Context) (bool, error) {
			v, err := db.Attachment(ctx, chain.AttachApproval, approval[:])
			return err == nil && v == nil, err
		},
		"attachments": func(ctx context.Context) (bool, error) {
			for _, err := range db.Attachments(ctx, chain.AttachApproval, nil) {
				return false, err
			}
			return true, nil
		},
		"open traces": func(ctx context.Context) (bool, error) {
			n := 0
			for o, err := range db.OpenTraces(ctx) {
				if err != nil {
					return false, err
				}
				if o.TraceID == fresh.trace {
					return false, nil
				}
				n++
			}
			return n == 2, nil
		},
	}
	look := func(within time.Duration) map[string]string {
		out := map[string]string{}
		for name, read := range readers {
			ctx, cancel := context.WithTimeout(context.Background(), within)
			old, err := read(ctx)
			switch {
			case errors.Is(err, context.DeadlineExceeded) || old:
				out[name] = "old"
			default:
				out[name] = "new"
			}
			cancel()
		}
		return out
	}
	for name, saw := range look(5 * time.Millisecond) {
		if saw != "old" {
			t.Errorf("%s shows an append that is not durable", name)
		}
	}
	fs.onSync(nil)
	close(release)
	for range 2 {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	for name, saw := range look(time.Minute) {
		if saw != "new" && name != "notes" {
			t.Errorf("%s does not show a durable append", name)
		}
	}
}

var errDisk = errors.New("the disk says no")

// A sync that fails poisons the store, whether the bytes reached the disk or not.
// What was acknowledged before is there at the next open, and nothing half.
func TestFailedSyncPoisons(t *testing.T) {
	for _, c := range []struct {
		name      string
		persisted bool
		fail      func(*faultFS, bool)
	}{
		{"sync fails, not persisted", false, failSync},
		{"sync fails, but persisted", true, failSync},
		{"write fails", false, failWrite},
	} {
		t.Run(c.name, func(t *testing.T) {
			disk := crashmem.New()
			fs := &faultFS{FS: disk, log: true}
			db := open(t, "store", options(fs))
			for i := range uint64(20) {
				run(t, db, spec{trace: id(i + 1)})
			}
			s := spec{trace: id(100)}
			m := s.make(t)
			lease := acquire(t, db, s.trace)
			append_(t, db, lease, m.begin())
			seen, err := db.Record(context.Background(), s.ledgerKey())
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			waiters := make(chan error, 2)
			go func() { waiters <- db.Await(ctx, s.ledgerKey(), *seen) }()
			go func() {
				for _, err := range db.Follow(ctx, db.Cursor()) {
					waiters <- err
				}
			}()
			c.fail(fs, c.persisted)

			_, err = db.Append(ctx, lease, m.end())
			wantCode(t, err, tga.StoreUnavailable)
			for range 2 {
				wantCode(t, <-waiters, tga.StoreUnavailable)
			}
			fs.onSync(nil) // the disk is well again: that changes nothing
			_, err = db.Append(ctx, lease, m.end())
			wantCode(t, err, tga.StoreUnavailable)
			_, err = db.Record(ctx, s.ledgerKey())
			wantCode(t, err, tga.StoreUnavailable)
			_, err = db.Load(ctx, id(1))
			wantCode(t, err, tga.StoreUnavailable)
			if db.Stats().Poisoned == "" {
				t.Error("stats do not say that the store is poisoned")
			}
			_ = db.Close() // whatever it says, the disk is looked at next

			after := open(t, "store", options(disk.CrashClone(vfs.CrashCloneCfg{})))
			for i := range uint64(20) {
				if st, err := after.State(ctx, id(i+1)); err != nil || st.LastSeq != 4 {
					t.Errorf("acknowledged trace %d: %+v, %v", i+1, st, err)
				}
			}
			st, err := after.State(ctx, s.trace)
			if want := map[bool]uint64{false: 3, true: 4}[c.persisted]; err != nil || st.LastSeq != want {
				t.Errorf("the trace whose append failed: seq %d, want %d, %v", st.LastSeq, want, err)
			}
		})
	}
}

func failSync(fs *faultFS, persisted bool) {
	fs.onSync(func(real func() error) error {
		if persisted {
			if err := real(); err != nil {
				return err
			}
		}
		return errDisk
	})
}

func failWrite(fs *faultFS, _ bool) {
	fs.onWrite(func(func() (int, error)) (int, error) { return 0, errDisk })
}

// An append is one sync of the log, no more and no less.
func TestOneSyncPerAppend(t *testing.T) {
	serial.Test(t)
	const calls = 500
	fs := &faultFS{FS: vfs.NewMem(), log: true}
	o := options(fs)
	o.MemTableBytes = 64 << 20
	o.FirstSegmentBytes, o.SegmentBytes = 64<<20, 64<<20 // no rotation, which flushes the index
	db := open(t, "store", o)
	// Memtables start at 256 KiB and double: fill those up to 16 MiB, so that the next
	// has room for all that is counted.
	filler := []chain.Document{{Pointer: tga.PointerResult, Data: make([]byte, 30<<10)}}
	for i := range uint64(1000) {
		run(t, db, spec{trace: id(1_000_000 + i), documents: filler})
	}
	var syncs atomic.Int64
	fs.onSync(func(real func() error) error { syncs.Add(1); return real() })
	before := db.Stats()
	for i := range uint64(calls) {
		run(t, db, spec{trace: id(i + 1)})
	}
	after := db.Stats()
	if got := syncs.Load(); got != 2*calls {
		t.Errorf("%d calls, two appends each: %d syncs of the log", calls, got)
	}
	if got := after.Commits - before.Commits; got != 2*calls {
		t.Errorf("the store counts %d commits", got)
	}
	if got := after.LogSyncs - before.LogSyncs; got != 2*calls {
		t.Errorf("the store counts %d syncs", got)
	}
	if after.Flushes != before.Flushes {
		t.Errorf("%d flushes while counting", after.Flushes-before.Flushes)
	}
}

// A full disk refuses new traces while those open still end.
func TestLowSpaceRefusesNewTracesOnly(t *testing.T) {
	fs := vfs.NewMem()
	free := func(n uint64) { fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: n, TotalBytes: 1 << 40}) }
	const mark = 64 << 20
	o := options(fs)
	o.LowWaterBytes = mark
	free(mark)
	db, err := engine.Open("store", o)
	if err != nil {
		t.Fatal(err)
	}
	a := spec{trace: id(1)}.make(t)
	lease := acquire(t, db, id(1))
	append_(t, db, lease, a.begin()) // at the mark
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	free(mark - 1)
	db = open(t, "store", o)
	lease = acquire(t, db, id(2))
	_, err = db.Append(context.Background(), lease, spec{trace: id(2)}.make(t).begin())
	wantCode(t, err, tga.StoreUnavailable)
	lease = acquire(t, db, id(1))
	append_(t, db, lease, a.end())
	if s := db.Stats(); !s.FreeKnown || s.FreeBytes != mark-1 || s.LowWater != mark || s.Poisoned != "" {
		t.Errorf("stats %+v", s)
	}
}

// When tables can no longer be written, Pebble retries forever and its commits block. Even so,
// appends end with an error, the process goes on, and the acknowledged appends are there
// afterwards.
func TestFullDiskStopsAppends(t *testing.T) {
	disk := crashmem.New()
	fs := &faultFS{FS: disk, suffix: ".sst"}
	db := open(t, "store", options(fs))
	run(t, db, spec{trace: id(1)})
	fs.onWrite(func(func() (int, error)) (int, error) { return 0, syscall.ENOSPC })
	ctx := context.Background()
	last := uint64(1)
	for i := uint64(2); ; i++ {
		m := spec{trace: id(i), args: `{"fill":"` + noise(i, 500) + `"}`}.make(t)
		lease, err := db.Acquire(ctx, id(i))
		if err == nil {
			_, err = db.Append(ctx, lease, m.begin())
		}
		if err != nil {
			wantCode(t, err, tga.StoreUnavailable)
			break
		}
		last = i
	}
	if s := db.Stats(); s.BackgroundErrors < engine.MaxBgErrs || s.Poisoned == "" {
		t.Errorf("stats %+v", s)
	}
	_ = db.Close()
	after := open(t, "store", options(disk.CrashClone(vfs.CrashCloneCfg{})))
	for i := uint64(2); i <= last; i++ {
		if st, err := after.State(ctx, id(i)); err != nil || st.LastSeq != 3 {
			t.Fatalf("acknowledged trace %d of %d: %+v, %v", i, last, st, err)
		}
	}
}

// TestAttachmentReadBesideItsAppend: an attachment is not shown before it is durable, and a
// reader does not wait for the disk.
func TestAttachmentReadBesideItsAppend(t *testing.T) {
	fs := &faultFS{FS: vfs.NewMem(), log: true}
	db := open(t, "store", options(fs))
	m, lease := spec{trace: id(1)}.make(t), acquire(t, db, id(1))
	key := id(1)
	b := m.batch(m.request)
	b.Attachments = []chain.Attachment{{Kind: chain.AttachApproval, Key: key[:], Value: []byte("v")}}
	var once sync.Once
	syncing, release, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	fs.onSync(func(real func() error) error {
		once.Do(func() { close(syncing) })
		<-release
		return real()
	})
	go func() { _, err := db.Append(context.Background(), lease, b); done <- err }()
	<-syncing
	if v, err := db.Attachment(context.Background(), chain.AttachApproval, key[:]); v != nil || err != nil {
		t.Errorf("read %q, %v of an append that is not durable", v, err)
	}
	for a, err := range db.Attachments(context.Background(), chain.AttachApproval, nil) {
		t.Errorf("read %q, %v of an append that is not durable", a.Value, err)
	}
	close(release)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if v, err := db.Attachment(context.Background(), chain.AttachApproval, key[:]); string(v) != "v" || err != nil {
		t.Errorf("read %q, %v when it is durable", v, err)
	}
}

// TestSyncInTimeIsNotCalledSlow: a disk that is fast enough is not reported as slow.
func TestSyncInTimeIsNotCalledSlow(t *testing.T) {
	fs := &faultFS{FS: vfs.NewMem(), log: true}
	db := open(t, "store", options(fs))
	fs.onSync(func(real func() error) error { time.Sleep(5 * time.Millisecond); return real() })
	run(t, db, spec{trace: id(1)}, spec{trace: id(2)})
	fs.onSync(nil)
	if n := db.Stats().SlowWrites; n != 0 {
		t.Errorf("%d of the syncs were slow", n)
	}
}

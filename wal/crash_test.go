package wal

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/tgad/tgad/internal/crashtest/crashmem"
	"github.com/tgad/tgad/schemas/tga"
)

// changes reports whether an operation changes what is on disk.
func changes(op errorfs.Op) bool {
	switch op.Kind {
	case errorfs.OpCreate, errorfs.OpLink, errorfs.OpRemove, errorfs.OpRemoveAll, errorfs.OpRename, errorfs.OpReuseForWrite,
		errorfs.OpMkdirAll, errorfs.OpFileWrite, errorfs.OpFileWriteAt, errorfs.OpFileSync, errorfs.OpFileSyncData:
		return true
	}
	return false
}

// TestCrashBetweenAnyTwoWrites crashes before each write of a log that is appended to, finished
// and opened again. None, a part or all of the unsynced writes survive. Afterwards every
// acknowledged group is there, whole and in order, there is no doubt, and the log goes on.
func TestCrashBetweenAnyTwoWrites(t *testing.T) {
	type crash struct {
		fs           *crashmem.FS
		acknowledged int
		group        uint64
	}
	mem := crashmem.New()
	rng := rand.New(rand.NewPCG(7, 7))
	var mu sync.Mutex // a segment is made beside the writer
	var now *crash    // what is acknowledged
	var crashes []crash
	fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		mu.Lock()
		defer mu.Unlock()
		if now != nil && changes(op) && rng.IntN(3) > 0 {
			clone := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: []int{0, 30, 60, 100}[rng.IntN(4)], RNG: rng})
			crashes = append(crashes, crash{clone, now.acknowledged, now.group})
		}
		return nil
	}))
	b := newBench(t, fs)
	for i := range 25 {
		switch i {
		case 8, 16:
			if i == 8 {
				if err := finish(b.log); err != nil {
					t.Fatal(err)
				}
			} else if err := b.log.Close(); err != nil {
				t.Fatal(err)
			}
			r, err := b.read()
			if err != nil {
				t.Fatal(err)
			}
			if b.log, err = Open(b.options()); err != nil {
				t.Fatal(err)
			}
			if err := b.log.Resume(r.tail); err != nil {
				t.Fatal(err)
			}
		}
		b.append(1+i%2, 200<<10)
		mu.Lock()
		now = &crash{acknowledged: len(b.want), group: b.last.Group}
		mu.Unlock()
	}
	if err := b.log.Close(); err != nil {
		t.Fatal(err)
	}
	all := slices.Clip(b.want)
	if len(crashes) < 50 {
		t.Fatalf("%d crashes", len(crashes))
	}
	for i, c := range crashes {
		b := &bench{t: t, fs: c.fs, rng: rng, want: all[:c.acknowledged]}
		r, err := b.read()
		if err != nil || r.tail.Doubt != nil || len(r.errs) > 0 {
			t.Fatalf("crash %d: %+v %v %v", i, r.tail, r.errs, err)
		}
		if len(r.ops) < c.acknowledged || r.tail.At.Group < c.group {
			t.Fatalf("crash %d: %d of %d acknowledged operations", i, len(r.ops), c.acknowledged)
		}
		for j := range r.ops {
			if r.ops[j] != all[j] {
				t.Fatalf("crash %d: operation %d is of %s", i, j, r.ops[j].Key)
			}
		}
		b.want = slices.Clip(all[:len(r.ops)])
		l, err := Open(b.options())
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Resume(r.tail); err != nil {
			t.Fatalf("crash %d: %v", i, err)
		}
		b.log = l
		b.append(1, 10)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if r, err = b.read(); err != nil || r.tail.Doubt != nil || !b.same(r) {
			t.Fatalf("crash %d, once it went on: %+v %v", i, r.tail, err)
		}
	}
}

// TestEveryFailureStopsTheLog fails each write and sync, once. The group that it was for is not
// acknowledged, and no later group is. The log on disk opens without a doubt and has every
// acknowledged group.
func TestEveryFailureStopsTheLog(t *testing.T) {
	failed := errors.New("the disk failed")
	for n := int64(1); ; n++ {
		mem := vfs.NewMem()
		begun, count := atomic.Bool{}, atomic.Int64{}
		fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if begun.Load() && changes(op) && count.Add(1) == n {
				return failed
			}
			return nil
		}))
		b := newBench(t, fs)
		begun.Store(true)
		var err error
		for range 12 {
			if err = b.try(700 << 10); err != nil {
				break
			}
		}
		if err == nil && count.Load() < n {
			if n < 10 {
				t.Fatalf("%d operations", count.Load())
			}
			return
		}
		if err != nil {
			if tga.CodeOf(err) != tga.StoreUnavailable || !errors.Is(err, failed) {
				t.Errorf("operation %d: %v", n, err)
			}
			if again := b.try(10); again == nil {
				t.Errorf("operation %d: the log takes a group after %v", n, err)
			}
		}
		if err := b.log.Close(); err != nil && tga.CodeOf(err) != tga.StoreUnavailable {
			t.Error(err)
		}
		b.fs = mem
		r, err := b.read()
		if err != nil || r.tail.Doubt != nil || r.tail.At.Group < b.last.Group {
			t.Errorf("operation %d: %+v %v", n, r.tail, err)
		}
	}
}

// try is append for a log that may return an error.
func (b *bench) try(size int) error {
	var o Ops
	o.PutBody([]byte("key"), nil, make([]byte, size))
	var g Group
	g.Add(&o, MaxRecord)
	at, err := b.log.Append(&g)
	if err == nil {
		b.last = at
	}
	return err
}

// TestLastRecordIsDurableAfterOpen fails the sync of a group, ends the process and opens the
// log again. The group is there, because the file's pages are still cached. From then on it has
// to stay, even if the power fails next.
func TestLastRecordIsDurableAfterOpen(t *testing.T) {
	mem := crashmem.New()
	var fail atomic.Bool
	fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileSyncData && fail.Load() {
			return errors.New("the disk failed")
		}
		return nil
	}))
	b := newBench(t, fs)
	b.append(1, 100)
	fail.Store(true)
	if err := b.try(5000); err == nil {
		t.Fatal("the sync did not fail")
	}
	if err := b.log.Close(); err != nil {
		t.Fatal(err)
	}
	fail.Store(false)
	r, err := b.read()
	if err != nil || r.tail.At.Group != b.last.Group+1 {
		t.Fatalf("%+v %v", r.tail, err)
	}
	l, err := Open(b.options())
	if err == nil {
		err = l.Resume(r.tail)
	}
	if err != nil {
		t.Fatal(err)
	}
	after := &bench{t: t, fs: mem.CrashClone(vfs.CrashCloneCfg{}), rng: b.rng}
	if cut, err := after.read(); err != nil || cut.tail.Doubt != nil || cut.tail.At.Group < r.tail.At.Group {
		t.Errorf("%+v %v", cut.tail, err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

package guard

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/tgad/tgad/internal/crashtest/crashmem"
)

// cut is what a power cut leaves: what was synced, and a part of what was not.
type cut struct {
	mem   *crashmem.FS
	op    string
	acked int
}

// cuts runs do on a crashable file system and takes, before every operation that
// changes it, one image per loss level. do sets acked as records are acknowledged.
func cuts(mem *crashmem.FS, seed uint64, do func(fsys vfs.FS, acked *atomic.Int64)) []cut {
	var (
		all   []cut
		acked atomic.Int64
		mu    sync.Mutex
		rng   = rand.New(rand.NewPCG(seed, 1))
		on    = true
	)
	do(hook(mem, func(op errorfs.Op) error {
		mu.Lock()
		defer mu.Unlock()
		if !on || op.Kind.ReadOrWrite() == errorfs.OpIsRead {
			return nil
		}
		n := int(acked.Load()) // before the clone: what is acknowledged must be in it
		for _, percent := range []int{0, 30, 70, 100} {
			image := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rng})
			all = append(all, cut{image, fmt.Sprintf("%v %s, %d %% kept", op.Kind, op.Path, percent), n})
		}
		return nil
	}), &acked)
	mu.Lock()
	defer mu.Unlock()
	on = false
	return all
}

// run opens the store and works on it.
func run(t testing.TB, fsys vfs.FS, set settings, acked *atomic.Int64, work func(*store)) {
	t.Helper()
	s := mustOpen(t, fsys, set)
	s.acked = int(acked.Load())
	if work != nil {
		work(s)
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
}

// addAcked is add that tells the power cut what is acknowledged.
func addAcked(s *store, acked *atomic.Int64, n, size int) {
	for range n {
		s.add(1, size)
		acked.Store(int64(s.acked))
	}
}

// judgeAll opens every image.
func judgeAll(t *testing.T, all []cut, set settings, fail bool) tally {
	t.Helper()
	sum := tally{}
	for _, c := range all {
		got, err := judge(t, c.mem, set, c.acked)
		sum[got]++
		if fail && got != harmless {
			t.Errorf("before %s, %d acked: %s: %v", c.op, c.acked, got, err)
		}
	}
	return sum
}

// TestPowerCutInsideOpenLeavesAStoreThatOpens cuts the power before every write of the
// creation of a store and of later opens of it.
func TestPowerCutInsideOpenLeavesAStoreThatOpens(t *testing.T) {
	for _, spares := range []int{0, 2} {
		set := settings{spares: spares}
		sum := tally{}
		for seed := range uint64(2) {
			// Creation, and creation again after a cut inside it.
			first := cuts(crashmem.New(), seed, func(fsys vfs.FS, acked *atomic.Int64) {
				run(t, fsys, set, acked, nil)
			})
			add(sum, judgeAll(t, first, set, true))
			// The next open: replay of a log, flush, new MANIFEST, new log.
			mem := crashmem.New()
			s := mustOpen(t, mem, set)
			s.add(20, 300)
			n := s.acked
			image := mem.CrashClone(vfs.CrashCloneCfg{})
			if err := s.close(); err != nil {
				t.Fatal(err)
			}
			second := cuts(image, seed, func(fsys vfs.FS, acked *atomic.Int64) {
				acked.Store(int64(n))
				run(t, fsys, set, acked, nil)
			})
			add(sum, judgeAll(t, second, set, true))
			// An open after a cut inside an open.
			for i := int(seed); i < len(second); i += 37 {
				third := cuts(second[i].mem.CrashClone(vfs.CrashCloneCfg{}), seed, func(fsys vfs.FS, acked *atomic.Int64) {
					acked.Store(int64(n))
					run(t, fsys, set, acked, nil)
				})
				add(sum, judgeAll(t, third, set, true))
			}
		}
		t.Logf("%d spares: %v", spares, sum)
	}
}

// TestPebbleAloneDoesNotSurviveAPowerCutInsideOpen is the upstream defect that the sync
// of the directory repairs. When it no longer shows, the repair can go.
func TestPebbleAloneDoesNotSurviveAPowerCutInsideOpen(t *testing.T) {
	set := settings{bare: true}
	sum := tally{}
	for seed := range uint64(3) {
		add(sum, judgeAll(t, cuts(crashmem.New(), seed, func(fsys vfs.FS, acked *atomic.Int64) {
			run(t, fsys, set, acked, nil)
		}), set, false))
		mem := crashmem.New()
		s := mustOpen(t, mem, set)
		s.add(20, 300)
		image := mem.CrashClone(vfs.CrashCloneCfg{})
		if err := s.close(); err != nil {
			t.Fatal(err)
		}
		add(sum, judgeAll(t, cuts(image, seed, func(fsys vfs.FS, acked *atomic.Int64) {
			acked.Store(20)
			run(t, fsys, set, acked, nil)
		}), set, false))
	}
	t.Logf("Pebble alone: %v", sum)
	if sum[byPebble] == 0 {
		t.Error("every image opened: is the defect gone?")
	}
}

// TestPowerCutAtAnyWriteLosesNothing cuts the power at every write of a life: creation,
// records, flushes, recycled logs, close, open.
func TestPowerCutAtAnyWriteLosesNothing(t *testing.T) {
	for _, spares := range []int{0, 2} {
		set := settings{memtable: 64 << 10, spares: spares}
		sum := tally{}
		all := cuts(crashmem.New(), 5, func(fsys vfs.FS, acked *atomic.Int64) {
			for range 2 {
				run(t, fsys, set, acked, func(s *store) {
					for i := range 5 {
						addAcked(s, acked, 4, 500)
						if i%2 == 1 {
							if err := errors.Join(s.mark.SyncNow(), s.db.Flush()); err != nil {
								t.Fatal(err)
							}
						}
					}
					addAcked(s, acked, 8, 9000) // over a block, and a rotation
					if err := s.mark.SyncNow(); err != nil {
						t.Fatal(err)
					}
					addAcked(s, acked, 2, 50)
				})
			}
		})
		// Every image is checked; to open each would take a minute.
		for i, c := range all {
			if _, _, err := Check(c.mem, dir); err != nil {
				t.Errorf("before %s, %d acked: %v", c.op, c.acked, err)
			}
			if i%3 == 0 {
				got, err := judge(t, c.mem, set, c.acked)
				sum[got]++
				if got != harmless {
					t.Errorf("before %s, %d acked: %s: %v", c.op, c.acked, got, err)
				}
			}
		}
		t.Logf("%d spares: %d images checked, opened: %v", spares, len(all), sum)
	}
}

package guard

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/tgad/tgad/internal/crashtest/crashmem"
	"github.com/tgad/tgad/schemas/tga"
)

func newMark(t testing.TB, fsys vfs.FS) *Watermark {
	t.Helper()
	if err := errors.Join(fsys.MkdirAll(dir, 0o755), syncDir(fsys, fsys.PathDir(dir))); err != nil {
		t.Fatal(err)
	}
	w, err := CreateWatermark(fsys, dir, Mark{StoreID: testStore, Timeline: testLine})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func read(t testing.TB, fsys vfs.FS) Mark {
	t.Helper()
	m, err := ReadWatermark(fsys, dir)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestWatermarkNeverGoesBackwards(t *testing.T) {
	mem := crashmem.New()
	w := newMark(t, mem)
	steps := []struct {
		group uint64
		sum   uint32
		want  Mark
	}{
		{20, 7, Mark{Group: 20, Sum: 7}},
		{19, 8, Mark{Group: 20, Sum: 7}},
		{20, 9, Mark{Group: 20, Sum: 7}},
		{21, 10, Mark{Group: 21, Sum: 10}},
	}
	for i, s := range steps {
		if err := w.Advance(s.group, s.sum); err != nil {
			t.Fatal(err)
		}
		s.want.StoreID, s.want.Timeline, s.want.Generation = testStore, testLine, w.Mark().Generation
		if m := read(t, mem); m != s.want || m != w.Mark() {
			t.Errorf("step %d: on disk %+v, in memory %+v", i, m, w.Mark())
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	// The same after an open, and from many goroutines at once.
	w, err := OpenWatermark(mem, dir)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 200 {
				group := uint64(100 + 8*i + g)
				if err := w.Advance(group, 0); err != nil {
					t.Error(err)
				}
				// What the waiters are told next must be in the file.
				if m := read(t, mem); m.Group < group {
					t.Errorf("%d acknowledged, the file says %d", group, m.Group)
				}
				if i%50 == 0 {
					if err := w.SyncNow(); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if m := read(t, mem); m.Group != 1699 {
		t.Errorf("at the end: %+v", m)
	}
}

// TestDamagedSlotLeavesTheOtherOne flips every byte of each slot, and of both.
func TestDamagedSlotLeavesTheOtherOne(t *testing.T) {
	mem := crashmem.New()
	w := newMark(t, mem)
	if err := errors.Join(w.Advance(20, 0), w.Advance(30, 0)); err != nil {
		t.Fatal(err)
	}
	base := files(t, mem)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	b := base[WatermarkName]
	if len(b) != watermarkSize {
		t.Fatalf("%d bytes", len(b))
	}
	newer := int(w.Mark().Generation%2) * slotStride
	older := slotStride - newer
	for i := range slotSize {
		for _, mask := range []byte{1, 0x80, 0xff} {
			one := memFS(t, base, map[string][]byte{WatermarkName: flip(b, newer+i, mask)})
			if m, err := ReadWatermark(one, dir); err != nil || m.Group != 20 {
				t.Errorf("newer slot, byte %d ^ %#x: %+v, %v", i, mask, m, err)
			}
			other := memFS(t, base, map[string][]byte{WatermarkName: flip(b, older+i, mask)})
			if m, err := ReadWatermark(other, dir); err != nil || m.Group != 30 {
				t.Errorf("older slot, byte %d ^ %#x: %+v, %v", i, mask, m, err)
			}
			both := memFS(t, base, map[string][]byte{WatermarkName: flip(flip(b, older+i, mask), newer+i, mask)})
			if m, err := ReadWatermark(both, dir); !errors.Is(err, tga.StateChecksumMismatch) {
				t.Errorf("both slots, byte %d ^ %#x: %+v, %v", i, mask, m, err)
			}
		}
	}
	for n := range len(b) + 1 {
		m, err := ReadWatermark(memFS(t, base, map[string][]byte{WatermarkName: append([]byte{}, b[:n]...)}), dir)
		whole := n >= slotStride+slotSize
		switch {
		case n < slotSize && !errors.Is(err, tga.StateChecksumMismatch),
			n >= slotSize && !whole && newer == slotStride && (err != nil || m.Group != 20),
			whole && (err != nil || m.Group != 30):
			t.Errorf("cut to %d bytes: %+v, %v", n, m, err)
		}
	}
}

// TestReadWatermarkWritesNothing: neither reading nor a refusal leaves anything.
func TestReadWatermarkWritesNothing(t *testing.T) {
	mem := crashmem.New()
	if err := newMark(t, mem).Close(); err != nil {
		t.Fatal(err)
	}
	before := files(t, mem)
	if _, err := ReadWatermark(mem, dir); err != nil {
		t.Error(err)
	}
	if after := files(t, mem); !maps.EqualFunc(before, after, bytes.Equal) {
		t.Error("a look changed a file")
	}
	if _, err := OpenWatermark(mem, "elsewhere"); !errors.Is(err, tga.NotFound) || !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if names, err := mem.List("elsewhere"); err == nil {
		t.Errorf("a refused open left %v", names)
	}
}

// TestWatermarkSurvivesPowerCuts cuts the power before every operation: what was synced
// is there, and creation leaves no file or a whole one.
func TestWatermarkSurvivesPowerCuts(t *testing.T) {
	mem := crashmem.New()
	synced := uint64(0)
	made := false
	rng := rand.New(rand.NewPCG(3, 3))
	n := 0
	fsys := hook(mem, func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsRead {
			return nil
		}
		for _, percent := range []int{0, 30, 70, 100} {
			n++
			image := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rng})
			m, err := ReadWatermark(image, dir)
			if made && (err != nil || m.Group < synced) || err != nil && !errors.Is(err, tga.NotFound) {
				t.Errorf("before %v %s: %+v, %v; synced %d", op.Kind, op.Path, m, err, synced)
			}
		}
		return nil
	})
	w := newMark(t, fsys)
	made = true
	for i := range uint64(50) {
		if err := w.Advance(10+i, 0); err != nil {
			t.Fatal(err)
		}
		if i%5 == 0 {
			if err := w.SyncNow(); err != nil {
				t.Fatal(err)
			}
			synced = 10 + i
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if n < 100 {
		t.Errorf("only %d images", n)
	}
}

// TestFailedWatermarkStaysFailed: after a failed write or sync, in either form of the failure, no
// later group is reported as safe.
func TestFailedWatermarkStaysFailed(t *testing.T) {
	for _, kind := range []errorfs.OpKind{errorfs.OpFileWriteAt, errorfs.OpFileSyncData} {
		mem := crashmem.New()
		fail := false
		fsys := hook(mem, func(op errorfs.Op) error {
			if fail && op.Kind == kind {
				return errorfs.ErrInjected
			}
			return nil
		})
		w := newMark(t, fsys)
		if err := w.Advance(20, 0); err != nil {
			t.Fatal(err)
		}
		fail = true
		if err := errors.Join(w.Advance(21, 0), w.SyncNow()); !errors.Is(err, tga.StoreUnavailable) {
			t.Errorf("%v: %v", kind, err)
		}
		fail = false
		for name, do := range map[string]func() error{
			"Advance": func() error { return w.Advance(22, 0) }, "Advance backwards": func() error { return w.Advance(5, 0) },
			"SyncNow": w.SyncNow, "Close": w.Close,
		} {
			if name == "Close" {
				continue
			}
			if err := do(); !errors.Is(err, errorfs.ErrInjected) {
				t.Errorf("%v, then %s: %v", kind, name, err)
			}
		}
		if err := w.Close(); !errors.Is(err, errorfs.ErrInjected) {
			t.Errorf("%v, then Close: %v", kind, err)
		}
		if err := w.Advance(23, 0); !errors.Is(err, errorfs.ErrInjected) {
			t.Errorf("%v, then closed: %v", kind, err)
		}
	}
}

// TestClosedWatermarkAdvancesNoMore: Advance on a closed watermark fails, so a commit of a store that was cut off
// is not reported as safe.
func TestClosedWatermarkAdvancesNoMore(t *testing.T) {
	mem := crashmem.New()
	w := newMark(t, mem)
	if err := errors.Join(w.Advance(20, 0), w.Close()); err != nil {
		t.Fatal(err)
	}
	if err := w.Advance(21, 0); !errors.Is(err, tga.StoreUnavailable) {
		t.Errorf("%v", err)
	}
	if m := read(t, mem); m.Group != 20 {
		t.Errorf("the mark is at group %d", m.Group)
	}
}

// unclosed is a file whose close fails.
type unclosed struct{ vfs.File }

func (u unclosed) Close() error { return errors.Join(u.File.Close(), errorfs.ErrInjected) }

// TestWatermarkThatIsNotClosedSaysSo.
func TestWatermarkThatIsNotClosedSaysSo(t *testing.T) {
	w := newMark(t, crashmem.New())
	w.f = unclosed{w.f}
	if err := w.Close(); !errors.Is(err, tga.StoreUnavailable) || !errors.Is(err, errorfs.ErrInjected) {
		t.Error(err)
	}
}

// TestSyncEvery runs on a fake clock: what a power cut can take is bounded.
func TestSyncEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := crashmem.New()
		var syncs atomic.Int64
		w := newMark(t, hook(mem, func(op errorfs.Op) error {
			if op.Kind == errorfs.OpFileSyncData {
				syncs.Add(1)
			}
			return nil
		}))
		w.SyncEvery(time.Second)
		for i := range uint64(10) {
			if err := w.Advance(100+i, 0); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(1001 * time.Millisecond)
		synctest.Wait()
		if m := read(t, mem.CrashClone(vfs.CrashCloneCfg{})); m.Group != 109 {
			t.Errorf("after a second: %+v", m)
		}
		time.Sleep(10 * time.Second) // nothing new: no sync
		synctest.Wait()
		if n := syncs.Load(); n != 1 {
			t.Errorf("%d syncs, want 1", n)
		}
		if err := w.Advance(200, 0); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if m := read(t, mem.CrashClone(vfs.CrashCloneCfg{})); m.Group != 200 {
			t.Errorf("after Close: %+v", m)
		}
	})
}

func TestAdvanceAllocatesNothing(t *testing.T) {
	mem := vfs.NewMem()
	w := newMark(t, mem)
	n := uint64(10)
	if a := testing.AllocsPerRun(100, func() {
		n++
		if err := w.Advance(n, 0); err != nil {
			t.Fatal(err)
		}
	}); a != 0 {
		t.Errorf("%v allocations", a)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestWatermarkThatEndsBehindItsSlot: bytes after a slot are ignored, and a slot with one byte missing is invalid.
func TestWatermarkThatEndsBehindItsSlot(t *testing.T) {
	mem := vfs.NewMem()
	w := newMark(t, mem)
	if err := w.Advance(20, 0); err != nil {
		t.Fatal(err)
	}
	if w.Mark().Generation%2 == 0 {
		if err := w.Advance(21, 0); err != nil {
			t.Fatal(err)
		}
	}
	newest := w.Mark().Generation // in the second slot
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	whole := files(t, mem)
	for length, want := range map[int]uint64{slotStride + slotSize: newest, slotStride + slotSize - 1: newest - 1, slotSize: newest - 1, slotSize - 1: 0, 0: 0} {
		change := map[string][]byte{}
		for name, b := range whole {
			change[name] = b[:length]
		}
		m, err := ReadWatermark(memFS(t, whole, change), "store")
		if m.Generation != want || (err == nil) != (want > 0) {
			t.Errorf("%d bytes: %+v, %v; want generation %d", length, m, err, want)
		}
	}
}

package guard

import (
	"context"
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/tgad/tgad/internal/crashtest/crashmem"
	"github.com/tgad/tgad/schemas/tga"
)

// image is a store as a crash left it, with the number of acknowledged records.
type image struct {
	name  string
	set   settings
	files map[string][]byte
	acked int
}

// crash returns what a kill -9 leaves: everything that was written.
func crash(t testing.TB, name string, s *store, mem vfs.FS) image {
	t.Helper()
	i := image{name, s.set, files(t, mem), s.acked}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	return i
}

// images builds the stores that are damaged below.
func images(t testing.TB) []image {
	var all []image
	build := func(name string, set settings, fill func(s *store)) {
		mem := crashmem.New()
		s := mustOpen(t, mem, set)
		fill(s)
		all = append(all, crash(t, name, s, mem))
	}
	build("first log of a new store", settings{noFlush: true}, func(s *store) { s.add(12, 20) })
	build("small", settings{}, func(s *store) { s.add(12, 20) })
	build("flushed, then more", settings{}, func(s *store) {
		s.add(6, 20)
		if err := s.db.Flush(); err != nil {
			t.Fatal(err)
		}
		s.add(6, 20)
	})
	build("compacted beside a live log", settings{}, func(s *store) {
		// The compaction's edit says the newest seqnum, of records that no table holds.
		for range 2 {
			s.add(4, 20)
			if err := s.db.Flush(); err != nil {
				t.Fatal(err)
			}
		}
		s.add(8, 20)
		if err := s.db.Compact(context.Background(), key(0), key(7), false); err != nil {
			t.Fatal(err)
		}
	})
	build("several blocks", settings{}, func(s *store) { s.add(60, 2000) })
	build("records longer than a block", settings{}, func(s *store) { s.add(4, 50_000) })
	build("spares", settings{spares: 2}, func(s *store) { s.add(12, 20) })
	all = append(all, recycledImage(t), severalLogsImage(t), closedImage(t))
	return all
}

// recycledImage is a store whose live log is a recycled file, with the bytes of an
// earlier log behind its end.
func recycledImage(t testing.TB) image {
	mem := crashmem.New()
	set := settings{memtable: 64 << 10}
	s := mustOpen(t, mem, set)
	for range 6 {
		s.add(8, 2000)
		if err := s.db.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	s.add(10, 20)
	i := crash(t, "recycled log", s, mem)
	name := newest(i.files, isLog)
	w, problems, err := readWALBytes(i.files[name], logNumber(t, name))
	if err != nil || len(problems) > 0 || w.End != EndTorn || int64(len(i.files[name])) <= w.EndOffset {
		t.Fatalf("%s does not hold the bytes of an earlier log: %+v %v %v", name, w, problems, err)
	}
	return i
}

// severalLogsImage is a store with more than one live log: its flushes are held up.
func severalLogsImage(t testing.TB) image {
	mem := crashmem.New()
	set := settings{memtable: 32 << 10}
	gate := make(chan struct{})
	hold := false
	fsys := hook(mem, func(op errorfs.Op) error {
		if hold && op.Kind == errorfs.OpCreate && classOf(mem.PathBase(op.Path)) == ClassTable {
			<-gate
		}
		return nil
	})
	s := mustOpen(t, fsys, set)
	hold = true
	s.add(60, 1500)
	i := image{"several live logs", set, files(t, mem), s.acked}
	close(gate)
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	if r, err := Scan(memFS(t, i.files, nil), dir); err != nil || len(r.WALs) < 3 {
		t.Fatalf("want at least 3 live logs: %+v, %v", r.WALs, err)
	}
	return i
}

// closedImage is a store that was closed in order.
func closedImage(t testing.TB) image {
	mem := crashmem.New()
	s := mustOpen(t, mem, settings{})
	s.add(12, 20)
	acked := s.acked
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	return image{"closed", settings{}, files(t, mem), acked}
}

// TestEveryFlippedByteIsHarmlessOrRefused damages one byte of every log and MANIFEST
// at a time. bare shows what Pebble does alone.
func TestEveryFlippedByteIsHarmlessOrRefused(t *testing.T) {
	all, alone := tally{}, tally{}
	for _, img := range images(t) {
		t.Run(img.name, func(t *testing.T) {
			sum, bareSum := tally{}, tally{}
			for name, b := range img.files {
				if !isLog(name) && !isManifest(name) {
					continue
				}
				for _, i := range places(t, name, b) {
					for _, mask := range []byte{0x01, 0xff} {
						damaged := map[string][]byte{name: flip(b, i, mask)}
						got, err := judge(t, memFS(t, img.files, damaged), img.set, img.acked)
						sum[got]++
						if got == lost {
							t.Errorf("%s: byte %d ^ %#x: %v", name, i, mask, err)
						}
						if mask == 0x01 && i%every(img) == 0 {
							bare := img.set
							bare.bare = true
							got, _ := judge(t, memFS(t, img.files, damaged), bare, img.acked)
							bareSum[got]++
						}
					}
				}
			}
			t.Logf("guarded: %v", sum)
			t.Logf("Pebble alone, a sample: %v", bareSum)
			add(all, sum)
			add(alone, bareSum)
			if bareSum[lost] == 0 {
				t.Error("Pebble alone lost nothing: the test damages nothing that matters")
			}
		})
	}
	t.Logf("all guarded: %v", all)
	t.Logf("all Pebble alone: %v", alone)
}

// every says how few of the damaged stores Pebble opens alone. For a chunk with a wrong
// checksum it looks for the flipped bit by trying each, a second and more for a chunk
// that fills a block.
func every(i image) int {
	if i.name == "records longer than a block" {
		return 97
	}
	return 13
}

func add(to, from tally) {
	for o, n := range from {
		to[o] += n
	}
}

// places returns the offsets to damage: every byte of a small file, and of a large one
// every byte of a chunk's header and a sample of the rest.
func places(t testing.TB, name string, b []byte) (at []int) {
	step := 1
	if testing.Short() {
		step = 7
	}
	if len(b) <= 4<<10 {
		for i := 0; i < len(b); i += step {
			at = append(at, i)
		}
		return at
	}
	number := uint64(0)
	if isLog(name) {
		number = logNumber(t, name)
	}
	at = chunkHeaders(b, uint32(number), isLog(name))
	if limit := 600 / step; len(at) > limit {
		kept := at[:0]
		for i, off := range at {
			if (i/syncHeader)%(len(at)/limit+1) == 0 || i > len(at)-3*syncHeader {
				kept = append(kept, off)
			}
		}
		at = kept
	}
	for i := 0; i < len(b); i += step * (len(b)/200 + 1) {
		at = append(at, i)
	}
	return at
}

// TestEveryTruncationIsHarmlessOrRefused cuts every log and MANIFEST at every length.
func TestEveryTruncationIsHarmlessOrRefused(t *testing.T) {
	all, alone := tally{}, tally{}
	for _, img := range images(t) {
		t.Run(img.name, func(t *testing.T) {
			sum, bareSum := tally{}, tally{}
			for name, b := range img.files {
				if !isLog(name) && !isManifest(name) {
					continue
				}
				for n, i := range places(t, name, b) {
					cut := map[string][]byte{name: b[:i]}
					if i == 0 {
						cut[name] = []byte{}
					}
					got, err := judge(t, memFS(t, img.files, cut), img.set, img.acked)
					sum[got]++
					if got == lost {
						t.Errorf("%s: cut to %d bytes: %v", name, i, err)
					}
					if n%every(img) == 0 {
						bare := img.set
						bare.bare = true
						got, _ := judge(t, memFS(t, img.files, cut), bare, img.acked)
						bareSum[got]++
					}
				}
			}
			t.Logf("guarded: %v", sum)
			t.Logf("Pebble alone, a sample: %v", bareSum)
			add(all, sum)
			add(alone, bareSum)
		})
	}
	t.Logf("all guarded: %v", all)
	t.Logf("all Pebble alone: %v", alone)
}

// TestMissingFilesAreHarmlessOrRefused removes one file at a time.
func TestMissingFilesAreHarmlessOrRefused(t *testing.T) {
	sum := tally{}
	for _, img := range images(t) {
		for name := range img.files {
			got, err := judge(t, memFS(t, img.files, map[string][]byte{name: nil}), img.set, img.acked)
			sum[got]++
			if got == lost {
				t.Errorf("%s: without %s: %v", img.name, name, err)
			}
			if name == WatermarkName && got != byVerify {
				t.Errorf("%s: without its watermark: %s, %v", img.name, got, err)
			}
		}
	}
	t.Logf("%v", sum)
}

// TestLostFlushIsRefused puts a MANIFEST back as it was before a flush, without the log
// that was flushed: a disk lost a write that it had reported as done. The logs that are
// left have no gap and end where they should; only the watermark knows of the flush.
func TestLostFlushIsRefused(t *testing.T) {
	mem := crashmem.New()
	s := mustOpen(t, mem, settings{})
	for range 2 {
		s.add(4, 20)
		if err := s.db.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	s.add(8, 20)
	if err := s.db.Compact(context.Background(), key(0), key(7), false); err != nil {
		t.Fatal(err)
	}
	before := files(t, mem)
	if err := s.db.Flush(); err != nil {
		t.Fatal(err)
	}
	s.add(5, 20)
	img := crash(t, "", s, mem)
	name, log := newest(img.files, isManifest), newest(before, isLog)
	if len(before[name]) >= len(img.files[name]) || log == newest(img.files, isLog) {
		t.Fatalf("%s: %d, then %d bytes; log %s", name, len(before[name]), len(img.files[name]), log)
	}
	change := map[string][]byte{name: before[name], log: nil}
	r, _, err := Check(memFS(t, img.files, change), dir)
	if r.Err() != nil || !errors.Is(err, tga.StateChecksumMismatch) {
		t.Errorf("Scan: %v; Verify: %v", r.Err(), err)
	}
	got, err := judge(t, memFS(t, img.files, change), settings{bare: true}, img.acked)
	if got != lost {
		t.Errorf("Pebble alone: %s, %v: is the defect gone?", got, err)
	}
}

// TestWholeStoresAreAccepted is the other half: undamaged, all is well.
func TestWholeStoresAreAccepted(t *testing.T) {
	for _, img := range images(t) {
		r, m, err := Check(memFS(t, img.files, nil), dir)
		if err != nil || r.NewestSeqnum != m.Newest {
			t.Errorf("%s: newest %d, marked %d: %v", img.name, r.NewestSeqnum, m.Newest, err)
		}
		if got, err := judge(t, memFS(t, img.files, nil), img.set, img.acked); got != harmless {
			t.Errorf("%s: %s: %v", img.name, got, err)
		}
	}
}

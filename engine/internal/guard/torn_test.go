package guard

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tgad/tgad/internal/crashtest/crashmem"
)

// group is a store with acknowledged records and, behind them in the newest log, a
// group of records whose sync had not returned: log[synced:written].
type group struct {
	image
	log             string
	synced, written int
	old             []byte // what the log's file held before the group was written
}

// makeGroup builds one: sizes are those of the group's records.
func makeGroup(t testing.TB, name string, set settings, prepare func(*store), sizes []int) group {
	t.Helper()
	mem := crashmem.New()
	s := mustOpen(t, mem, set)
	prepare(s)
	before := files(t, mem)
	g := group{image: image{name: name, set: set, acked: s.acked}, log: newest(before, isLog)}
	g.old = before[g.log]
	w, problems, err := readWALBytes(g.old, logNumber(t, g.log))
	if err != nil || len(problems) > 0 {
		t.Fatal(problems, err)
	}
	g.synced = int(w.EndOffset)
	if rest, ok := strings.CutSuffix(name, " bytes before a block's end"); ok && rest != fmt.Sprint(blockSize-g.synced%blockSize) {
		t.Fatalf("%s: the records end at %d", name, g.synced)
	}

	batches := make([]*pebble.Batch, len(sizes))
	for i, size := range sizes {
		batches[i] = s.put(s.acked+i, size)
		if err := s.db.Apply(batches[i], pebble.NoSync); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.db.LogData(nil, pebble.Sync); err != nil { // writes the group out
		t.Fatal(err)
	}
	g.files = files(t, mem)
	// Not what the watermark says after the group: it was never told.
	if !bytes.Equal(g.files[WatermarkName], before[WatermarkName]) {
		t.Fatal("the watermark moved")
	}
	w, problems, err = readWALBytes(g.files[g.log], logNumber(t, g.log))
	if err != nil || len(problems) > 0 || w.Records < len(sizes) {
		t.Fatal(w, problems, err)
	}
	g.written = int(w.EndOffset)
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	return g
}

func groups(t testing.TB) []group {
	some := func(s *store) { s.add(7, 100) }
	recycle := func(s *store) {
		for range 6 {
			s.add(8, 2000)
			if err := s.db.Flush(); err != nil {
				t.Fatal(err)
			}
		}
		s.add(3, 100)
	}
	toEndOfBlock := func(rest int) func(*store) {
		return func(s *store) {
			// One record that ends rest bytes before the end of the first block.
			s.add(1, blockSize-rest-recordOverhead(t))
		}
	}
	return []group{
		makeGroup(t, "one record", settings{}, some, []int{900}),
		makeGroup(t, "within a block", settings{}, some, []int{10, 600, 0, 1500, 30, 700}),
		makeGroup(t, "over blocks", settings{}, some, []int{20_000, 5, 40_000, 100, 30_000, 9, 25_000}),
		makeGroup(t, "one long record", settings{}, some, []int{150_000}),
		makeGroup(t, "on a spare", settings{spares: 2}, some, []int{600, 40_000, 5, 20_000}),
		makeGroup(t, "on a recycled log", settings{memtable: 64 << 10}, recycle, []int{600, 12, 7_000, 800}),
		makeGroup(t, "in a first log", settings{noFlush: true}, some, []int{300, 40_000, 5, 20_000}),
		makeGroup(t, "19 bytes before a block's end", settings{}, toEndOfBlock(syncHeader), []int{50, 2000}),
		makeGroup(t, "behind a pad of 18 bytes", settings{}, toEndOfBlock(syncHeader-1), []int{50, 2000}),
		makeGroup(t, "at a block's end", settings{}, toEndOfBlock(0), []int{50, 2000}),
	}
}

// recordOverhead is what a record of the first block takes beside its value.
func recordOverhead(t testing.TB) int {
	t.Helper()
	mem := crashmem.New()
	s := mustOpen(t, mem, settings{})
	const size = 30_000 // the same length of varints
	s.add(1, size)
	m := files(t, mem)
	w, _, err := readWALBytes(m[newest(m, isLog)], logNumber(t, newest(m, isLog)))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	return int(w.EndOffset) - size
}

const sector = 512

// torn returns what a crash may leave of the log, one image per call of yield.
func (g group) torn(r *rand.Rand, yield func(what string, log []byte)) {
	now := g.files[g.log][:g.written]
	old := make([]byte, max(len(g.old), g.written))
	copy(old, g.old)
	// No part of the group: as it was, and with the space it would have taken.
	yield("none", g.old)
	yield("none, zeros", old)
	// Every prefix of a small group, a sample of a long one.
	step := 1 + (g.written-g.synced)/400
	if testing.Short() {
		step *= 4
	}
	for end := g.synced; end <= g.written; end += step {
		tail := slices.Clone(old)
		copy(tail, now[:end])
		yield(fmt.Sprintf("prefix %d", end), now[:end:end])
		yield(fmt.Sprintf("prefix %d, old bytes", end), tail)
		garbage := slices.Clone(tail)
		for i := end; i < len(garbage); i++ {
			garbage[i] = byte(r.Uint32())
		}
		yield(fmt.Sprintf("prefix %d, garbage", end), garbage)
		kilo := slices.Clone(now)
		clear(kilo[end:min(end+1024, len(kilo))])
		yield(fmt.Sprintf("hole of 1024 at %d", end), kilo)
	}
	// Any subset of the group's sectors, in any proportion: unordered write-back.
	for n := range 400 {
		log := slices.Clone(now)
		for at := g.synced / sector * sector; at < len(log); at += sector {
			if r.IntN(400) < n {
				copy(log[at:min(at+sector, len(log))], old[at:])
			}
		}
		yield(fmt.Sprintf("sectors %d", n), log)
	}
}

func TestTornTailIsNotCorruption(t *testing.T) {
	for _, g := range groups(t) {
		t.Run(g.name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			checked, opened := 0, 0
			// Pebble looks for the flipped bit of a chunk whose checksum is wrong by trying
			// each: up to a second and a half for one that fills a block.
			every := 16
			if g.written-g.synced > blockSize/2 {
				every = 300
			}
			bare := tally{}
			g.torn(r, func(what string, log []byte) {
				change := map[string][]byte{g.log: log}
				checked++
				rep, _, err := Check(memFS(t, g.files, change), dir)
				if err != nil {
					t.Errorf("%s: %v", what, err)
					return
				}
				if checked%every != 0 {
					return
				}
				opened++
				if got, err := judge(t, memFS(t, g.files, change), g.set, g.acked); got != harmless {
					t.Errorf("%s: %s: %v (scan said newest %d)", what, got, err, rep.NewestSeqnum)
				}
				alone := g.set
				alone.bare = true
				got, _ := judge(t, memFS(t, g.files, change), alone, g.acked)
				bare[got]++
			})
			if checked < 600 || opened < 2 {
				t.Errorf("%d images checked, %d opened", checked, opened)
			}
			t.Logf("%d images checked, %d opened; Pebble alone: %v", checked, opened, bare)
		})
	}
}

// TestTornManifestIsNotCorruption cuts the last edit of a MANIFEST in every place while
// the log that it declares flushed is still there: as a crash inside a flush leaves it.
func TestTornManifestIsNotCorruption(t *testing.T) {
	mem := crashmem.New()
	s := mustOpen(t, mem, settings{})
	s.add(6, 20)
	if err := s.db.Flush(); err != nil {
		t.Fatal(err)
	}
	s.add(6, 20)
	before := files(t, mem)
	acked := s.acked
	if err := s.db.Flush(); err != nil {
		t.Fatal(err)
	}
	after := files(t, mem)
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	name := newest(after, isManifest)
	was, is := before[name], after[name]
	if len(was) == 0 || len(is) <= len(was) {
		t.Fatalf("%s: %d, then %d bytes", name, len(was), len(is))
	}
	for end := len(was); end < len(is); end++ {
		for what, tail := range map[string][]byte{
			"cut": {}, "zeros": make([]byte, len(is)-end), "garbage": value(end, len(is)-end),
		} {
			change := map[string][]byte{name: slices.Concat(is[:end], tail)}
			if got, err := judge(t, memFS(t, before, change), settings{}, acked); got != harmless {
				t.Errorf("%s at %d: %s: %v", what, end, got, err)
			}
		}
	}
}

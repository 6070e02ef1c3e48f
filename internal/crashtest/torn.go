package crashtest

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// group is a log before one of its syncs: its content without and with what the sync will
// make durable.
type group struct {
	img      Image // without it
	file     string
	old, new []byte // of the log, without and with it
	other    []byte // the file of that name in another store; nil where there is none
}

// Torn runs a scenario and, for each sync of a log, makes the disks that a power cut during
// the sync can leave: each step-th prefix of what was written, a hole, garbage or the records
// of an earlier use of the file at the end, blocks of the group out of order. None of these
// is damage, so none may freeze the store.
func (r *Run) Torn(s Scenario, seed uint64, step int, th Thoroughness) {
	w := NewWorld(seed)
	var groups []group
	w.OnPoint(func(p Point) {
		if p.Op != opSync || !isLog(p.Path) {
			return
		}
		g := group{img: w.Snapshot(p, 100, nil), file: p.Path}
		with := w.Snapshot(p, 0, nil)
		var err error
		if g.new, err = readFile(with.FS, p.Path); err != nil {
			return // removed meanwhile
		}
		if g.old, err = readFile(g.img.FS, p.Path); err != nil {
			g.old = nil
		}
		if !slices.Equal(g.old, g.new) {
			groups = append(groups, g)
		}
	})
	p, err := w.Start(s.Conf)
	if err != nil {
		return // Explore reports it
	}
	s.play(p)
	w.OnPoint(nil)
	if err := p.DB.Close(); err != nil {
		return // likewise
	}
	other, err := s.otherStore(seed)
	if err != nil {
		return // likewise
	}
	rng := rand.New(rand.NewPCG(seed, 7))
	type tear struct {
		g    group
		what string
		b    []byte
	}
	var tears []tear
	for _, g := range groups {
		r.Counts.add(&r.Counts.CrashPoints, 1)
		if g.other, err = readFile(other.FS, g.file); err != nil {
			g.other = nil // that store has fewer segments
		}
		for what, b := range g.tears(rng, step) {
			tears = append(tears, tear{g, what, b})
		}
	}
	r.each(len(tears), func(i int) {
		t := tears[i]
		img := t.g.img
		img.FS = img.FS.CrashClone(vfs.CrashCloneCfg{})
		img.Path = []Point{{img.Path[0].N, "torn sync: " + t.what, t.g.file}}
		if err := writeFile(img.FS, t.g.file, t.b); err != nil {
			r.report(img, s.Name, []Violation{{Property: "L1", Detail: err.Error()}})
			return
		}
		r.recover(img, s, i, th)
	})
}

// otherStore returns the disk of a store that went through the same scenario with other ids.
func (s Scenario) otherStore(seed uint64) (Image, error) {
	w := NewWorld(seed ^ 1<<63)
	p, err := w.Start(s.Conf)
	if err != nil {
		return Image{}, err
	}
	s.play(p)
	err = p.DB.Close()
	return w.Crash(0), err
}

// tears yields what can be on disk of a log whose sync did not return.
func (g group) tears(rng *rand.Rand, step int) func(func(string, []byte) bool) {
	from := 0
	for from < len(g.old) && from < len(g.new) && g.old[from] == g.new[from] {
		from++
	}
	to := len(g.new)
	for to > from && to <= len(g.old) && g.old[to-1] == g.new[to-1] {
		to--
	}
	under := func(i int) byte { // what the disk had before
		if i < len(g.old) {
			return g.old[i]
		}
		return 0
	}
	return func(yield func(string, []byte) bool) {
		for k := from + rng.IntN(step); k < to; k += step {
			b := slices.Clone(g.new[:k])
			if k < len(g.old) {
				b = append(b, g.old[k:]...)
			}
			if !yield(fmt.Sprintf("prefix of %d bytes of %d", k-from, to-from), b) {
				return
			}
			hole, at := slices.Clone(g.new), from+rng.IntN(to-from)
			end := at + 1 + rng.IntN(to-at)
			for i := at; i < end; i++ {
				hole[i] = under(i)
			}
			if !yield(fmt.Sprintf("hole %d-%d of %d-%d", at, end, from, to), hole) {
				return
			}
			tail := slices.Clone(g.new)
			for i := k; i < to; i++ {
				tail[i] = byte(rng.Uint32())
			}
			if !yield(fmt.Sprintf("garbage from %d of %d-%d", k, from, to), tail) {
				return
			}
			if k < len(g.other) {
				// Records of another use: each is whole, and lies where it was written.
				use := slices.Clone(g.new)
				copy(use[k:], g.other[k:])
				if !yield(fmt.Sprintf("an earlier use from %d of %d-%d", k, from, to), use) {
					return
				}
			}
			blocks, kept := slices.Clone(g.new), 0
			for i := from; i < to; {
				next := min(to, (i/512+1)*512)
				if rng.IntN(2) == 0 {
					for ; i < next; i++ {
						blocks[i] = under(i)
					}
				} else {
					kept++
				}
				i = next
			}
			if !yield(fmt.Sprintf("%d blocks of %d-%d", kept, from, to), blocks) {
				return
			}
		}
	}
}

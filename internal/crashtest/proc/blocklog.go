//go:build linux

package proc

import (
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"

	"github.com/tgad/tgad/ledger"
)

func cutBlocks(b *bench, seed uint64) iter.Seq2[job, error] {
	if _, err := os.Stat("/dev/fuse"); err != nil {
		b.skip("no FUSE: %v", err)
		return func(func(job, error) bool) {}
	}
	return b.onDisks(seed, b.cutBlockLog)
}

// losses are the ways in which a power cut may lose writes that were not flushed.
var losses = []struct {
	name string
	keep func(n int, r *rand.Rand) func(i int) bool
}{
	{"all lost", func(int, *rand.Rand) func(int) bool { return func(int) bool { return false } }},
	{"none lost", func(int, *rand.Rand) func(int) bool { return func(int) bool { return true } }},
	{"the newest lost", func(n int, r *rand.Rand) func(int) bool {
		last := r.IntN(n)
		return func(i int) bool { return i < last }
	}},
	{"the oldest lost", func(n int, r *rand.Rand) func(int) bool {
		first := r.IntN(n)
		return func(i int) bool { return i > first }
	}},
	{"half lost", func(n int, r *rand.Rand) func(int) bool { return some(n, r, 0.5) }},
	{"some lost", func(n int, r *rand.Rand) func(int) bool { return some(n, r, 0.9) }},
}

func some(n int, r *rand.Rand, share float64) func(int) bool {
	keep := make([]bool, n)
	for i := range keep {
		keep[i] = r.Float64() < share
	}
	return func(i int) bool { return keep[i] }
}

// outsideAt is the world without its disk at a point of a life.
type outsideAt struct {
	n     int
	world *world
}

// cutBlockLog stops a victim at points of its life, on a disk whose writes are logged. It
// makes the images that a power cut could leave at each point and until the next one.
// Between two points a victim makes one change, to its disk or to the world outside. So
// while its disk changes, the world outside is as it was at the point.
func (b *bench) cutBlockLog(dir string, d diskType, profile ledger.Profile, seed uint64, at []int, v *verdict) error {
	base, image := filepath.Join(dir, "base"), filepath.Join(dir, "image")
	if err := errors.Join(d.format(base), copySparse(image, base)); err != nil {
		return err
	}
	disk, err := serveBlocks(image, filepath.Join(dir, "blocks"))
	if err != nil {
		return err
	}
	var worlds []outsideAt
	var places []place // of each point, counted from 1
	err = b.lifeOnDisk(d, disk.path, dir, profile, seed, false, func(n int, w *world) error {
		places = append(places, disk.now())
		if !slices.Contains(at, n) {
			return nil
		}
		c, err := w.outside(fmt.Sprintf("%s cut off at point %d", d.name, n))
		worlds = append(worlds, outsideAt{n, c})
		return err
	})
	places = append(places, disk.now())
	if err := errors.Join(err, disk.close()); err != nil {
		return err
	}
	done := map[moment]bool{}
	for _, o := range worlds {
		for _, m := range disk.between(places[o.n-1], places[o.n]) {
			if m.flushed == m.written && done[m] {
				continue // the disk is as it was at an earlier point, and is whole
			}
			done[m] = true
			if err := b.loseBlocks(d, disk, base, dir, o, m, v); err != nil {
				return err
			}
		}
		if err := o.world.removeJournal(); err != nil {
			return err
		}
	}
	return nil
}

// loseBlocks judges the images of one moment.
func (b *bench) loseBlocks(d diskType, disk *blockDisk, base, dir string, o outsideAt, m moment, v *verdict) error {
	r := b.rand(o.world.seed, uint64(m.written)<<20|uint64(o.n))
	image, n := filepath.Join(dir, "cut"), m.written-m.flushed
	for _, loss := range losses {
		c, err := o.world.copy(false)
		if err != nil {
			return err
		}
		c.path[len(c.path)-1] += fmt.Sprintf(", %d of %d writes not flushed, %s", n, m.written, loss.name)
		if err := copySparse(image, base); err != nil {
			return err
		}
		if err := disk.image(image, m, loss.keep(max(n, 1), r)); err != nil {
			return err
		}
		if err := b.afterCut(d, cut{image, c}, dir, v); err != nil {
			return err
		}
		v.counts.blockLogImages++
		v.counts.on(d.name)
		if n == 0 {
			return nil // nothing can be lost: all images are one
		}
	}
	return nil
}

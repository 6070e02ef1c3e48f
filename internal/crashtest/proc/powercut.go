//go:build linux

package proc

import (
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/tgad/tgad/ledger"
)

// imagesPerLife bounds the memory that the images of one life take.
const imagesPerLife = 48

func cutAtPoints(b *bench, seed uint64) iter.Seq2[job, error] {
	return b.onDisks(seed, b.cutPower)
}

// cutter makes power cuts at some points of a life, with images in dir.
type cutter func(dir string, d diskType, profile ledger.Profile, seed uint64, at []int, v *verdict) error

// onDisks yields a job for each file system, profile and part of the points of a life.
func (b *bench) onDisks(seed uint64, cut cutter) iter.Seq2[job, error] {
	return b.perLife(seed, false, func(i int, profile ledger.Profile, life lived, yield func(job) bool) bool {
		for j, d := range diskTypes {
			if why := d.missing(); why != "" {
				b.skip("%s: %s", d.name, why)
				continue
			}
			for at := range slices.Chunk(b.places(life.count, seed, uint64(i*len(diskTypes)+j)), imagesPerLife) {
				if !yield(func(v *verdict) error {
					return d.inImageDir(func(dir string) error { return cut(dir, d, profile, seed, at, v) })
				}) {
					return false
				}
			}
		}
		return true
	})
}

// imageDir makes the directory for images. It is in memory if possible, because a loop
// device passes each flush on to the disk below.
func imageDir() (string, error) {
	if dir, err := os.MkdirTemp("/dev/shm", "crash-"); err == nil {
		return dir, nil
	}
	return os.MkdirTemp("", "crash-")
}

var oneAtATime sync.Mutex

// inImageDir calls f with a new directory for images of the disk, and removes it.
func (d diskType) inImageDir(f func(dir string) error) (err error) {
	if d.alone {
		oneAtATime.Lock()
		defer oneAtATime.Unlock()
	}
	dir, err := imageDir()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	return f(dir)
}

// cut is a power cut: an image, and the world outside at that moment.
type cut struct {
	image string
	world *world
}

// cutPower stops a victim at each point of its life and copies the image under its file
// system: what the kernel had not yet written is lost. Then it mounts each copy,
// recovers and judges.
func (b *bench) cutPower(dir string, d diskType, profile ledger.Profile, seed uint64, at []int, v *verdict) error {
	image := filepath.Join(dir, "image")
	if err := d.format(image); err != nil {
		return err
	}
	var cuts []cut
	// The kernel's cache stands for that of a disk: a write past it would be on the image at once.
	err := b.lifeOnDisk(d, image, dir, profile, seed, true, func(n int, w *world) error {
		if !slices.Contains(at, n) {
			return nil
		}
		copied := filepath.Join(dir, fmt.Sprint("cut", n))
		if err := copySparse(copied, image); err != nil {
			return err
		}
		outside, err := w.outside(fmt.Sprintf("%s cut off at point %d", d.name, n))
		cuts = append(cuts, cut{copied, outside})
		return err
	})
	if err != nil {
		return err
	}
	for _, c := range cuts {
		if err := b.afterCut(d, c, dir, v); err != nil {
			return err
		}
		v.counts.powerCuts++
		v.counts.on(d.name)
	}
	return nil
}

// lifeOnDisk runs a victim on an image and calls f while it is stopped at each point.
// Then it kills the victim.
func (b *bench) lifeOnDisk(d diskType, image, dir string, profile ledger.Profile, seed uint64, cached bool, f func(n int, w *world) error) (err error) {
	m, err := d.mount(image, filepath.Join(dir, "disk"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.unmount()) }()
	w := b.newWorld(m.dir, profile, seed)
	w.bug, w.cached = b.bug, cached
	c, err := start(task{Victim: new(w.task(stopEach, 0))}, w.stderr(), nil)
	if err != nil {
		return err
	}
	// Do not delete the store here: its disk is deleted afterwards, and further writes
	// would change the image.
	hung := c.limit()
	ended := false
	defer func() {
		hung()
		if !ended {
			c.kill()
			_, e := c.wait(false)
			err = errors.Join(err, e)
		}
		err = errors.Join(err, c.close(), os.RemoveAll(w.stderr()), w.removeJournal())
	}()
	w.begin()
	for n := 1; ; n++ {
		ws, err := c.wait(true)
		if err != nil {
			return err
		}
		acks, err := c.said()
		if err != nil {
			return err
		}
		if ended = !ws.Stopped(); ended {
			if !ws.Exited() || ws.ExitStatus() != 0 {
				return fmt.Errorf("a victim on %s ended with %s: %s", d.name, ending(ws), w.complaint())
			}
			return nil
		}
		if err := errors.Join(w.went(acks), f(n, w)); err != nil {
			return err
		}
		if err := unix.Kill(c.pid, unix.SIGCONT); err != nil {
			return err
		}
	}
}

// outside returns a copy of the world as it is now, without its disk. Requests that the
// oracle has not read yet may reach it later or never: both are possible after a crash.
func (w *world) outside(how string) (*world, error) {
	c, err := w.copy(false)
	if err == nil {
		c.path = append(c.path, how)
		err = c.went(nil)
	}
	return c, err
}

// afterCut mounts the image that a power cut left, recovers the store, and judges it.
func (b *bench) afterCut(d diskType, c cut, dir string, v *verdict) (err error) {
	m, err := d.mount(c.image, filepath.Join(dir, c.world.name))
	if err != nil {
		v.fail(c.world, "S6", "the file system is lost: %v", err)
		return nil
	}
	defer func() { err = errors.Join(err, m.unmount(), os.Remove(c.image)) }()
	w := c.world
	w.store = filepath.Join(m.dir, w.storeName)
	return errors.Join(w.inspect(v), w.conclude(v), w.removeJournal())
}

//go:build linux

package proc

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tgad/tgad/ledger"
)

// A soak is a sequence of epochs. In an epoch one process after the other, each with many
// callers, works on the same store, and each ends by a kill, by a stop and a kill, or by a
// power cut. After an epoch the store is recovered, judged and deleted, so that memory and
// disk use do not grow.
const (
	callers       = 64
	callsOfCaller = 20 // in a life
	livesOfEpoch  = 8
)

func soak(b *bench, seed uint64) iter.Seq2[job, error] {
	return func(yield func(job, error) bool) {
		r := b.rand(seed, 21)
		for n := uint64(0); b.sample == 0 || n < uint64(b.sample); n++ {
			e := epoch{b: b, profile: profiles[r.IntN(len(profiles))], seed: seed<<16 + n}
			// Each third epoch is on its own disk, and loses power.
			if d := diskTypes[r.IntN(len(diskTypes))]; n%3 == 2 {
				if why := d.missing(); why != "" {
					b.skip("%s: %s", d.name, why)
				} else {
					d.bytes = max(d.bytes, soakDisk)
					e.disk = &d
				}
			}
			if !yield(e.run, nil) {
				return
			}
		}
	}
}

// soakDisk is the size of the file system of an epoch. The image is sparse.
const soakDisk = 512 << 20

type epoch struct {
	b       *bench
	profile ledger.Profile
	seed    uint64
	disk    *diskType // nil for the one below the temporary directory
}

func (e epoch) run(v *verdict) (err error) {
	r := e.b.rand(e.seed, 22)
	w := e.b.world(e.profile, e.seed)
	defer func() { err = errors.Join(err, w.remove()) }()
	if e.disk == nil {
		for life := range livesOfEpoch {
			if err := w.crowdLife(life, r, v, nil); err != nil {
				return err
			}
			if err := w.inspect(v); err != nil {
				return err
			}
		}
		return w.conclude(v)
	}
	return e.disk.inImageDir(func(dir string) error { return e.onDisk(dir, w, r, v) })
}

// onDisk runs an epoch on a file system that loses power at the end of each life. The next
// life starts with the image from that moment.
func (e epoch) onDisk(dir string, w *world, r *rand.Rand, v *verdict) error {
	image := filepath.Join(dir, "image0")
	if err := e.disk.format(image); err != nil {
		return err
	}
	for life := range livesOfEpoch + 1 {
		m, err := e.disk.mount(image, filepath.Join(dir, fmt.Sprint("disk", life)))
		if err != nil {
			v.fail(w, "S6", "the file system is lost: %v", err)
			return nil
		}
		w.store = filepath.Join(m.dir, w.storeName)
		next := filepath.Join(dir, fmt.Sprint("image", life+1))
		if life > 0 {
			err = w.inspect(v) // what the cut left
		}
		if life == livesOfEpoch {
			err = errors.Join(err, w.conclude(v))
		} else if err == nil {
			if err = w.crowdLife(life, r, v, func() error { return copySparse(next, image) }); err == nil {
				v.counts.powerCuts++
				v.counts.on(e.disk.name)
			}
		}
		if err := errors.Join(err, m.unmount(), os.Remove(image)); err != nil {
			return err
		}
		image = next
	}
	return nil
}

// crowdLife runs a crowd for a while and then kills it. If cut is not nil, the crowd is
// stopped first, and cut is called while it is stopped.
func (w *world) crowdLife(life int, r *rand.Rand, v *verdict, cut func() error) (err error) {
	t := w.task("", 0)
	t.Callers, t.Life = callers, life
	how := "killed after a while"
	if r.IntN(2) == 0 {
		// A point between two operations is rarely hit by a random time.
		t.What, t.At = killHere, 1+r.IntN(6000)
		if cut != nil {
			t.What = stopHere
		}
		how = fmt.Sprintf("%s at point %d", t.What, t.At)
	}
	pause := r.IntN(4) == 0
	w.path = append(w.path, fmt.Sprintf("life %d of %d callers, %s", life, callers, how))
	c, err := w.startCrowd(t)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	if !c.toPoint {
		time.Sleep(time.Duration(20+r.IntN(1500)) * time.Millisecond)
		if pause {
			if c.over, err = w.stopAWhile(c.child, v, r); err != nil {
				return err
			}
		}
	}
	if cut != nil {
		if err := c.halt(); err != nil {
			return err
		}
		if err := cut(); err != nil {
			return err
		}
	}
	if err := c.end(v, cut != nil || !c.toPoint); err != nil {
		return err
	}
	if err := (&dialer{socket: w.lab.socket}).settle(); err != nil {
		return fmt.Errorf("the oracle: %w", err)
	}
	acks, err := parseAcks(<-c.text)
	if err != nil {
		return err
	}
	return errors.Join(w.note(acks), w.loseIndex(r, v))
}

// crowdProcess is a process with many callers.
type crowdProcess struct {
	*child
	w       *world
	toPoint bool        // it ends or stops by itself at a point
	text    chan []byte // all that it said
	hung    func() bool // ends the limit of its time; whether it was reached
	over    bool        // it was waited for
}

func (w *world) startCrowd(t victimTask) (*crowdProcess, error) {
	c, err := start(task{Victim: &t}, w.stderr(), nil)
	if err != nil {
		return nil, err
	}
	said := make(chan []byte, 1)
	go func() {
		text, _ := io.ReadAll(c.out) // what is cut off was not said
		said <- text
	}()
	return &crowdProcess{child: c, w: w, toPoint: t.What != "", text: said, hung: c.limit()}, nil
}

// halt waits until the crowd is stopped, or over.
func (c *crowdProcess) halt() error {
	if c.over {
		return nil
	}
	if !c.toPoint {
		_ = unix.Kill(c.pid, unix.SIGSTOP) // it may be at its end
	}
	ws, err := c.wait(true)
	if err == nil {
		c.over = !ws.Stopped()
	}
	return err
}

// end waits for the end of the crowd, and judges it.
func (c *crowdProcess) end(v *verdict, kill bool) error {
	if c.over {
		return nil
	}
	if kill {
		c.kill()
	}
	ws, err := c.wait(false)
	if err != nil {
		return err
	}
	c.over = true
	switch {
	case c.hung():
		v.fail(c.w, "L1", "a crowd hung: %s", c.w.complaint())
	case ws.Signaled() && ws.Signal() == unix.SIGKILL:
		v.counts.sigkills++
	case !ws.Exited() || ws.ExitStatus() != 0:
		v.fail(c.w, "L1", "a crowd ended by itself with %s: %s", ending(ws), c.w.complaint())
	}
	return nil
}

// close gives back what the crowd holds. One that is still alive is killed.
func (c *crowdProcess) close() (err error) {
	c.hung()
	if !c.over {
		c.kill()
		_, err = c.wait(false)
	}
	return errors.Join(err, c.child.close())
}

// stopAWhile stops a process for a while and continues it. The process must cope with that.
func (w *world) stopAWhile(c *child, v *verdict, r *rand.Rand) (ended bool, err error) {
	if err := unix.Kill(c.pid, unix.SIGSTOP); err != nil {
		return false, err
	}
	ws, err := c.wait(true)
	if err != nil || !ws.Stopped() {
		return err == nil, err
	}
	v.counts.stops++
	time.Sleep(time.Duration(r.IntN(300)) * time.Millisecond)
	if err := unix.Kill(c.pid, unix.SIGCONT); err != nil {
		return false, err
	}
	time.Sleep(time.Duration(r.IntN(300)) * time.Millisecond)
	return false, nil
}

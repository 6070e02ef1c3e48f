//go:build linux

package proc

import (
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
)

func stopAtPoints(b *bench, seed uint64) iter.Seq2[job, error] {
	return b.perLife(seed, false, func(i int, profile ledger.Profile, life lived, yield func(job) bool) bool {
		for _, n := range b.places(life.count, seed, uint64(i)) {
			if !yield(b.stopped(profile, seed, n)) {
				return false
			}
		}
		return true
	})
}

// stopped stops a victim at a point, lets another victim try the store, and continues the
// first. A stopped process keeps its lock, so the other victim must be refused.
func (b *bench) stopped(profile ledger.Profile, seed uint64, at int) job {
	return func(v *verdict) (err error) {
		w := b.world(profile, seed)
		w.path = append(w.path, fmt.Sprintf("stopped at point %d", at))
		c, err := start(task{Victim: new(w.task(stopHere, at))}, w.stderr(), nil)
		if err != nil {
			return err
		}
		hung := c.limit()
		ended := false
		defer func() {
			if !ended {
				c.kill()
				_, e := c.wait(false)
				err = errors.Join(err, e)
			}
			err = errors.Join(err, c.close())
		}()
		ws, err := c.wait(true)
		if err != nil {
			return err
		}
		if ended = !ws.Stopped(); ended {
			return fmt.Errorf("a victim that was to stop at point %d ended with %s: %s", at, ending(ws), w.complaint())
		}
		// A victim first makes the directory and then the lock file in it. Before that, it
		// has no lock because of which another victim could be refused.
		_, err = os.Stat(filepath.Join(w.store, "tgad.lock"))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		has := err == nil
		other, err := start(task{Victim: new(w.task("", 0))}, w.stderr(), nil)
		if err != nil {
			return err
		}
		otherHung := other.limit()
		ows, err := other.wait(false)
		otherHung()
		if err != nil {
			return errors.Join(err, other.close())
		}
		acks, err := other.said()
		if err := errors.Join(err, other.close()); err != nil {
			return err
		}
		refused := len(acks) == 0 && ows.Exited() && ows.ExitStatus() == exitLocked
		if !refused && has {
			v.fail(w, "S9", "a stopped process has the store and another one was not refused: %s, %s", ending(ows), w.complaint())
		}
		if err := unix.Kill(c.pid, unix.SIGCONT); err != nil {
			return err
		}
		if ws, err = c.wait(false); err != nil {
			return err
		}
		ended = true
		mine, err := c.said()
		if err != nil {
			return err
		}
		if hung() || !ws.Exited() || ws.ExitStatus() != 0 {
			v.fail(w, "L1", "a victim that was continued ended with %s: %s", ending(ws), w.complaint())
		}
		v.counts.stops++
		if err := w.note(append(acks, mine...)); err != nil {
			return err
		}
		return errors.Join(w.inspect(v), w.conclude(v), w.remove())
	}
}

// exitCode is what a child ends with after an error.
func exitCode(err error) int {
	if errors.Is(err, tga.StateLockAcquireFailed) {
		return exitLocked
	}
	return exitBroken
}

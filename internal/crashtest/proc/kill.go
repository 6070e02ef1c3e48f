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

	"golang.org/x/sys/unix"

	"github.com/tgad/tgad/internal/crashtest"
	"github.com/tgad/tgad/ledger"
)

// kill is one planned kill. With at 0 the victim is not killed.
type kill struct {
	traced bool
	what   action
	at     int
}

func (k kill) String() string {
	if k.traced {
		return fmt.Sprintf("killed at system call %d", k.at)
	}
	return fmt.Sprintf("%s at point %d", k.what, k.at)
}

// lived is the result of one life of a victim.
type lived struct {
	closed bool   // it came to its end
	count  int    // points or system calls passed
	last   string // the system call at which it was killed
	acks   []ack
}

// run runs a victim until it is killed or has finished. If it ends in another way, that is a
// violation.
func (w *world) run(k kill, v *verdict) (l lived, err error) {
	var (
		c  *child
		ws unix.WaitStatus
	)
	if k.traced {
		c, ws, l.count, l.last, err = traced(w.task("", 0), w.stderr(), k.at)
	} else if c, err = start(task{Victim: new(w.task(k.what, k.at))}, w.stderr(), nil); err == nil {
		hung := c.limit()
		ws, err = c.wait(false)
		if hung() {
			v.fail(w, "L1", "a victim hung: %s", w.complaint())
		}
	}
	if c == nil {
		return l, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	if err != nil {
		return l, err
	}
	if l.acks, err = c.said(); err != nil {
		return l, err
	}
	if n := len(l.acks); n > 0 && l.acks[n-1].Said == closed {
		l.closed = true
		if !k.traced {
			l.count = int(l.acks[n-1].Points)
		}
	}
	w.path = append(w.path, k.String()+" "+l.last)
	switch {
	case ws.Signaled() && ws.Signal() == unix.SIGKILL:
		v.counts.sigkills++
	case !ws.Exited() || ws.ExitStatus() != 0:
		v.fail(w, "L1", "a victim ended by itself with %s: %s", ending(ws), w.complaint())
	}
	return l, nil
}

// die runs a victim and looks at what it left.
func (w *world) die(k kill, v *verdict) (lived, error) {
	l, err := w.run(k, v)
	if err != nil {
		return l, err
	}
	if err := (&dialer{socket: w.lab.socket}).settle(); err != nil {
		return l, fmt.Errorf("the oracle: %w", err)
	}
	if err := w.note(l.acks); err != nil {
		return l, err
	}
	if err := w.loseIndex(rand.New(rand.NewPCG(w.seed, uint64(k.at)<<8|uint64(len(w.path)))), v); err != nil {
		return l, err
	}
	return l, w.inspect(v)
}

// loseIndex deletes the index of a store in one of four cases: the store must be able to rebuild it
// from the log.
func (w *world) loseIndex(r *rand.Rand, v *verdict) error {
	index := filepath.Join(w.store, crashtest.IndexDir)
	if _, err := os.Stat(index); err != nil || r.IntN(4) != 0 {
		return nil // there is no store yet
	}
	w.path = append(w.path, "index lost")
	v.counts.indexesLost++
	return os.RemoveAll(index)
}

// complaint returns the beginning of what victims of this world wrote to stderr.
func (w *world) complaint() string {
	b, err := os.ReadFile(w.stderr())
	if err != nil {
		return err.Error()
	}
	return string(b[:min(len(b), 3000)])
}

// world makes a world of a pass.
func (b *bench) world(profile ledger.Profile, seed uint64) *world {
	w := b.newWorld(b.lab.stores, profile, seed)
	w.bug = b.bug
	return w
}

// measure runs a victim without a kill and returns at how many places it can be killed.
func (b *bench) measure(profile ledger.Profile, seed uint64, traced bool) (lived, error) {
	w := b.world(profile, seed)
	var v verdict
	l, err := w.run(kill{traced: traced}, &v)
	if err == nil && (!l.closed || l.count == 0 || len(v.bad) > 0) {
		err = fmt.Errorf("a life without a kill did not come to its end: %v", v.bad)
	}
	return l, errors.Join(err, w.remove())
}

// once is the job of a single kill.
func (b *bench) once(profile ledger.Profile, seed uint64, k kill) job {
	return func(v *verdict) error {
		w := b.world(profile, seed)
		if _, err := w.die(k, v); err != nil {
			return err
		}
		return errors.Join(w.conclude(v), w.remove())
	}
}

// perLife yields the jobs that f makes of a whole life under each profile. f returns
// false when yield did.
func (b *bench) perLife(seed uint64, traced bool, f func(i int, profile ledger.Profile, life lived, yield func(job) bool) bool) iter.Seq2[job, error] {
	return func(yield func(job, error) bool) {
		for i, profile := range profiles {
			life, err := b.measure(profile, seed, traced)
			if err != nil {
				yield(nil, err)
				return
			}
			if !f(i, profile, life, func(j job) bool { return yield(j, nil) }) {
				return
			}
		}
	}
}

func killAtPoints(b *bench, seed uint64) iter.Seq2[job, error] {
	return b.perLife(seed, false, func(i int, profile ledger.Profile, life lived, yield func(job) bool) bool {
		last := life.acks[len(life.acks)-1]
		b.say("profile %d: a life passes %d points, %d of them writes", profile, life.count, len(last.Writes))
		for _, n := range b.places(life.count, seed, uint64(i)) {
			if !yield(b.once(profile, seed, kill{what: killHere, at: n})) {
				return false
			}
			if slices.Contains(last.Writes, int64(n)) && !yield(b.once(profile, seed, kill{what: tearHere, at: n})) {
				return false
			}
		}
		return true
	})
}

func killAtSyscalls(b *bench, seed uint64) iter.Seq2[job, error] {
	return b.perLife(seed, true, func(i int, profile ledger.Profile, life lived, yield func(job) bool) bool {
		b.say("profile %d: a life makes %d system calls", profile, life.count)
		for _, n := range b.places(life.count, seed, uint64(i)) {
			if !yield(b.once(profile, seed, kill{traced: true, at: n})) {
				return false
			}
		}
		return true
	})
}

// doublesPerFirst is how many second kills follow each first one in a pass. The pairs are a
// sample; further passes draw others.
const doublesPerFirst = 4

func killTwice(b *bench, seed uint64) iter.Seq2[job, error] {
	return func(yield func(job, error) bool) {
		for i, profile := range profiles {
			for _, traced := range []bool{false, true} {
				life, err := b.measure(profile, seed, traced)
				if err != nil {
					yield(nil, err)
					return
				}
				for _, n := range b.places(life.count, seed, uint64(i)) {
					if !yield(b.twice(profile, seed, kill{traced: traced, what: killHere, at: n}, life.count), nil) {
						return
					}
				}
			}
		}
	}
}

// twice kills a victim once. Then it recovers several copies of the store, and kills each
// recovery at another place. Half of the recoveries that die there are followed by a third
// kill.
func (b *bench) twice(profile ledger.Profile, seed uint64, first kill, count int) job {
	return func(v *verdict) error {
		w := b.world(profile, seed)
		if _, err := w.die(first, v); err != nil {
			return err
		}
		r := b.rand(seed, uint64(first.at))
		// A recovery passes fewer places than a life. So half of the draws are from the
		// first half of the places, which more recoveries reach.
		again := func() kill {
			within := count >> r.IntN(2)
			return kill{traced: first.traced, what: killHere, at: 1 + r.IntN(max(within, 1))}
		}
		for range doublesPerFirst {
			c, err := w.copy(true)
			if err != nil {
				return err
			}
			l, err := c.die(again(), v)
			if err != nil {
				return err
			}
			if !l.closed {
				v.counts.doubleCrashes++
				if r.IntN(2) == 0 {
					if l, err = c.die(again(), v); err != nil {
						return err
					}
					if !l.closed {
						v.counts.tripleCrashes++
					}
				}
			}
			if err := errors.Join(c.conclude(v), c.remove()); err != nil {
				return err
			}
		}
		return w.remove()
	}
}

// copy copies a world and, with store, its store; then no process may run on the store.
func (w *world) copy(store bool) (*world, error) {
	c := *w
	c.name = fmt.Sprintf("w%d", w.lab.worlds.Add(1))
	if store {
		c.storeName = c.name
		c.store = filepath.Join(filepath.Dir(w.store), c.name)
	}
	c.path, c.events, c.acks = slices.Clone(w.path), slices.Clip(w.events), slices.Clip(w.acks)
	b, err := os.ReadFile(filepath.Join(w.journal, w.name+".journal"))
	if err == nil {
		err = os.WriteFile(filepath.Join(w.journal, c.name+".journal"), b, 0o640)
	} else if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	if err == nil && store {
		err = copyDir(c.store, w.store)
	}
	return &c, err
}

// copyDir copies a store that may not be there yet.
func copyDir(to, from string) error {
	if _, err := os.Stat(from); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return os.CopyFS(to, os.DirFS(from))
}

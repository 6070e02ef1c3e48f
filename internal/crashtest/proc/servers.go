//go:build linux

package proc

import (
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/tgad/tgad/ledger"
)

// The oracle passes at most this many steps in a life.
const oracleSteps = 60

func killServers(b *bench, seed uint64) iter.Seq2[job, error] {
	return b.perLife(seed, false, func(i int, profile ledger.Profile, life lived, yield func(job) bool) bool {
		r := b.rand(seed, uint64(i))
		for _, n := range b.places(oracleSteps, seed, uint64(i)) {
			if !yield(b.serverDies(profile, seed, n, 0)) || !yield(b.serverDies(profile, seed, n, 1+r.IntN(life.count))) {
				return false
			}
		}
		return true
	})
}

// serverDies kills the oracle at a step, with the victim at a point, or without. The
// oracle starts again at once, as a tool server does; its journal is the same.
func (b *bench) serverDies(profile ledger.Profile, seed uint64, step, at int) job {
	return func(v *verdict) (err error) {
		dir, err := os.MkdirTemp(b.dir, "s")
		if err != nil {
			return err
		}
		l := &lab{dir: dir, socket: filepath.Join(dir, "oracle.sock")}
		if err := l.startOracle(step); err != nil {
			return err
		}
		first, died, up := l.oracle, false, make(chan error, 1)
		var over atomic.Bool
		go func() {
			_, err := first.wait(false)
			died = !over.Load()
			up <- errors.Join(err, first.close(), l.startOracle(0))
		}()
		w := l.newWorld(dir, profile, seed)
		w.bug = b.bug
		w.path = append(w.path, fmt.Sprintf("oracle killed at step %d", step))
		life, err := w.run(kill{what: killHere, at: at}, v)
		over.Store(true)
		first.kill()
		if err := errors.Join(err, <-up); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, l.close(), os.RemoveAll(dir)) }()
		if died {
			v.counts.sigkills++
		}
		if err := w.note(life.acks); err != nil {
			return err
		}
		return errors.Join(w.inspect(v), w.conclude(v))
	}
}

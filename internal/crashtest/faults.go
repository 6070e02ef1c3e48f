package crashtest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// patience is the time after which a step that has not returned counts as hung. A correct
// store never reaches it.
const patience = 30 * time.Second

// fault is one way an operation of a life cycle goes wrong.
type fault struct {
	n      int // operation
	err    error
	sticky bool // all after it fail as well
	done   bool // it takes place and is reported failed
	// logs says that only operations on write-ahead logs fail: a disk may fail at one
	// place and work at the others.
	logs bool
}

func (f fault) String() string {
	return fmt.Sprintf("%v at operation %d, sticky %v, done %v, logs alone %v", f.err, f.n, f.sticky, f.done, f.logs)
}

// maxHangs ends a tier in which a fault makes the process hang: each costs patience.
const maxHangs = 3

// faultsFrom says which operations fail.
type faultsFrom uint8

const (
	whileMade   faultsFrom = iota // those that make the store, open it and run in it
	whileOpened                   // those that open a store and run in it
	whileRun                      // those that run in an open store
)

// Faults runs a scenario once for each of its operations and each way it can fail. Then it
// kills the process, and judges the recovery by a process on a sound disk.
func (r *Run) Faults(s Scenario, seed uint64, from faultsFrom, every int, th Thoroughness) {
	before := NewWorld(seed).Crash(100)
	if from != whileMade {
		w := NewWorld(seed)
		p, err := w.Start(s.Conf)
		if err == nil {
			err = p.DB.Close()
		}
		if err != nil {
			return // Explore reports it
		}
		before = w.Crash(100)
	}
	ops := operations(s, before, from)
	var list []fault
	for n := 1; n <= ops; n++ {
		if (uint64(n)+seed)%uint64(every) != 0 {
			continue
		}
		for _, err := range []error{ErrIO, ErrSpace} {
			for _, sticky := range []bool{false, true} {
				for _, done := range []bool{false, true} {
					list = append(list, fault{n: n, err: err, sticky: sticky, done: done})
				}
			}
		}
	}
	for n := 1; n <= ops; n++ {
		if (uint64(n)+seed)%uint64(2*every) == 0 {
			list = append(list, fault{n: n, err: ErrIO, sticky: true, logs: true})
		}
	}
	var hangs atomic.Int32
	r.each(len(list), func(i int) {
		if hangs.Load() < maxHangs && r.fault(s, before, from, list[i], i, th) {
			hangs.Add(1)
		}
	})
}

// operations counts the points of a scenario that runs without a fault.
func operations(s Scenario, before Image, from faultsFrom) int {
	w := before.World()
	w.OnPoint(nil)
	p, err := w.Start(s.Conf)
	if err != nil {
		return 0 // Explore reports it
	}
	if from == whileRun {
		w.OnPoint(nil)
	}
	s.play(p)
	if err := p.DB.Close(); err != nil {
		return 0
	}
	return w.Points()
}

// fault runs the scenario with one fault. It reports whether the process hung.
func (r *Run) fault(s Scenario, before Image, from faultsFrom, f fault, i int, th Thoroughness) (hangs bool) {
	defer r.at(before, s.Name+", "+f.String())()
	w := before.World()
	var once sync.Once // a fault that no operation met is no injection
	decide := func(op Op) Fault {
		if op.N != f.n && (!f.sticky || op.N < f.n) || f.logs && !isLog(op.Path) {
			return Fault{}
		}
		once.Do(func() { r.Counts.injected(f) })
		return Fault{Err: f.err, Done: f.done}
	}
	if from != whileRun {
		w.OnOp(decide)
	}
	r.Counts.add(&r.Counts.CrashPoints, 1)
	over := make(chan *Process, 1)
	go func() {
		p, err := w.Start(s.Conf)
		switch {
		case err != nil:
			p = nil
		case from == whileRun:
			w.OnOp(decide)
			s.play(p)
		default:
			s.play(p)
		}
		over <- p
	}()
	var p *Process
	select {
	case p = <-over:
	case <-time.After(patience):
		hangs = true
		r.report(w.Crash(0), s.Name+", "+f.String(), []Violation{{Property: "L1", Detail: "hangs"}})
	}
	for _, loss := range []int{0, 100} {
		img := w.Crash(loss)
		img.Path[0].Op = f.String()
		r.recover(img, s, i, th)
	}
	// Make the disk sound again, so that the goroutines of the dead process end. Nobody
	// reads what they write.
	w.OnOp(nil)
	if p != nil {
		go func() { _ = p.DB.Close() }() // a poisoned store's error says nothing new
	}
	return hangs
}

package interleave

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// report is the result of the exploration of a scenario.
type report struct {
	States    int // distinct
	Schedules int // orders that were followed to their end
	Runs      int // executions: schedules, and those that ended in a state seen before
	Steps     int // moves made
	Longest   int // moves of the longest schedule
	Spared    int // alternatives that were known to lead to a state seen before
	Complete  bool
	Found     *violation
	Ends      map[uint64]bool // the states in which a schedule ended
	Outcomes  map[string]bool // what can be seen of them; nil where nobody asked
}

// violation is a property that does not hold, with the moves that lead to it.
type violation struct {
	What string
	Path []string
}

func (v *violation) String() string {
	return v.What + "\n  " + strings.Join(v.Path, "\n  ")
}

// runsInBubble is how many executions share a bubble, because making a bubble costs more than a run.
const runsInBubble = 200

// how turns the reductions of an exploration off, for the tests that compare with and without them.
type how struct {
	every    bool // make every move, also one that is known to lead to a state seen before
	whole    bool // without the reductions of reduce_test.go
	outcomes bool // note the outcomes
}

// explorer is the exploration of one scenario.
type explorer struct {
	scenario
	report
	how
	seen  map[uint64]bool // by the hash of the whole state
	steps steps
	todo  []alternative
}

// alternative is a sequence of moves that was not followed yet: its choices, and what is known
// about the last of them.
type alternative struct {
	path []byte
	forecast
}

// explore follows every order of a scenario's moves until all are followed, a violation is
// found, or there are more states than limit. Each alternative is executed from the start,
// because actors are goroutines, which cannot be copied. Every second alternative is the newest
// one, which keeps the list short. The others are chosen at random, so that an exploration that
// is cut off has seen some of all parts.
func explore(t *testing.T, s scenario, limit int, how how) report {
	t.Helper()
	e := &explorer{scenario: s, how: how, seen: map[uint64]bool{}, todo: []alternative{{}}, steps: newSteps()}
	e.Ends = map[uint64]bool{}
	if how.outcomes {
		e.Outcomes = map[string]bool{}
	}
	random := rand.New(rand.NewPCG(1, 1))
	for len(e.todo) > 0 && e.Found == nil && len(e.seen) < limit {
		synctest.Test(t, func(t *testing.T) {
			for n := 0; n < runsInBubble && len(e.todo) > 0 && e.Found == nil && len(e.seen) < limit; n++ {
				last := len(e.todo) - 1
				if n%2 == 1 {
					i := random.IntN(len(e.todo))
					e.todo[i], e.todo[last] = e.todo[last], e.todo[i]
				}
				a := e.todo[last]
				e.todo = e.todo[:last]
				if !e.every && e.steps.known(&a.forecast, e.seen) {
					e.Spared++
					n--
					continue
				}
				e.follow(a.path)
			}
		})
	}
	e.States, e.Complete = len(e.seen), len(e.todo) == 0
	return e.report
}

// endless is a number of moves that no schedule of a few actors reaches.
const endless = 400

// follow executes the choices of prefix. Then, in each new state, it makes the first choice that
// may lead to another new state, and keeps the other choices as alternatives.
func (e *explorer) follow(prefix []byte) {
	w := newWorld(e.scenario, e.whole)
	defer w.end()
	path := slices.Clone(prefix)
	e.Runs++
	var made forecast
	for at := 0; ; at++ {
		before := time.Now()
		moves := w.next()
		e.Longest = max(e.Longest, at)
		if at == endless {
			w.broken("it does not end: somebody looks again and again")
		}
		if w.bad != "" {
			e.Found = &violation{What: w.bad, Path: retell(e.scenario, e.whole, path)}
			return
		}
		if at < len(prefix) {
			if int(prefix[at]) >= len(moves) {
				panic("the same choices led to another state: something depends on more than they decide")
			}
			m := moves[prefix[at]]
			if at == len(prefix)-1 {
				made = w.forecast(m, w.state())
			}
			w.make(m)
			e.Steps++
			continue
		}
		s := w.state()
		if time.Now().Equal(before) {
			e.steps.learn(made, w, s)
		}
		// The choices of a prefix lead through states that were entered before. The first
		// state after the prefix may be an old one too.
		if len(moves) == 0 {
			e.Schedules++
			e.Ends[s.whole()] = true
			if e.Outcomes != nil {
				e.Outcomes[w.outcome()] = true
			}
			return
		}
		if e.seen[s.whole()] {
			return
		}
		e.seen[s.whole()] = true
		var next int
		next, made = e.choose(w, s, moves, path)
		if next < 0 {
			return
		}
		path = append(path, byte(next))
		w.make(moves[next])
		e.Steps++
	}
}

// choose returns the first move that may lead to a new state, or a negative number if there is none.
// It keeps the other such moves as alternatives.
func (e *explorer) choose(w *world, s state, moves []move, path []byte) (next int, made forecast) {
	next = -1
	for i := len(moves) - 1; i >= 0; i-- {
		f := w.forecast(moves[i], s)
		if !e.every && e.steps.known(&f, e.seen) {
			e.Spared++
			continue
		}
		if next >= 0 {
			e.todo = append(e.todo, alternative{append(slices.Clone(path), byte(next)), made})
		}
		next, made = i, f
	}
	return next, made
}

// next waits until every actor waits at a gate, waits for another one, or has ended, and lists
// what can happen then. If nothing can happen, it lets time pass. If that does not help
// either, it checks the end.
func (w *world) next() []move {
	for _, pass := range []time.Duration{0, time.Second, tick, time.Hour} {
		time.Sleep(pass)
		w.net.age()
		w.rest()
		if moves := w.moves(); w.bad != "" || len(moves) > 0 || !w.blocked() {
			if w.bad == "" && len(moves) == 0 {
				w.quiet()
			}
			return moves
		}
	}
	w.quiet()
	return nil
}

// rest waits until nobody runs.
func (w *world) rest() {
	synctest.Wait()
	for i := 0; i < len(w.actors); i++ {
		if l := w.actors[i].now; l.at == arrives {
			l.gate <- true
			synctest.Wait()
			i = -1
		}
	}
	w.actors = slices.DeleteFunc(w.actors, func(a *actor) bool { return a.process && a.over })
}

// blocked reports whether some actor has not ended.
func (w *world) blocked() bool {
	return slices.ContainsFunc(w.actors, func(a *actor) bool { return !a.over })
}

// retell executes a path again and says each of its moves.
func retell(s scenario, whole bool, path []byte) []string {
	w := newWorld(s, whole)
	defer w.end()
	w.talk = true
	for _, choice := range path {
		moves := w.next()
		if w.bad != "" || int(choice) >= len(moves) {
			break
		}
		w.make(moves[choice])
	}
	synctest.Wait()
	return w.said
}

package interleave

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// report is what the exploration of a scenario came to.
type report struct {
	States    int // distinct
	Schedules int // orders that were followed to their end
	Runs      int // executions: schedules, and those that ended in a state seen before
	Steps     int // moves made
	Longest   int // moves of the longest schedule
	Whole     bool
	Found     *violation
}

// violation is a property that does not hold, with the way there.
type violation struct {
	What string
	Path []string
}

func (v *violation) String() string {
	return v.What + "\n  " + strings.Join(v.Path, "\n  ")
}

// runsInBubble is how many executions share a bubble: making one costs more than a run.
const runsInBubble = 200

// explore follows every order of a scenario's moves until all are followed, a violation is
// found, or the deadline passes. An execution starts anew for each alternative: actors are
// goroutines, and a goroutine cannot be copied. Every second alternative is the newest, which
// keeps the list short, and every other one is any: a run that is cut off has then seen
// something of all parts, and not one corner whole.
func explore(t *testing.T, s scenario, deadline time.Time) report {
	t.Helper()
	var r report
	seen := map[uint64]bool{}
	todo := [][]byte{nil}
	random := rand.New(rand.NewPCG(1, 1))
	for len(todo) > 0 && r.Found == nil {
		if time.Now().After(deadline) {
			r.States = len(seen)
			return r
		}
		synctest.Test(t, func(t *testing.T) {
			for n := 0; n < runsInBubble && len(todo) > 0 && r.Found == nil; n++ {
				last := len(todo) - 1
				if n%2 == 1 {
					any := random.IntN(len(todo))
					todo[any], todo[last] = todo[last], todo[any]
				}
				prefix := todo[last]
				todo = append(todo[:last], follow(s, prefix, seen, &r)...)
			}
		})
	}
	r.States, r.Whole = len(seen), len(todo) == 0
	return r
}

// endless is a number of moves that no schedule of a few actors reaches.
const endless = 400

// follow executes the choices of prefix and then the first choice of each new state. It
// returns the prefixes of the alternatives that it passed by.
func follow(s scenario, prefix []byte, seen map[uint64]bool, r *report) (alternatives [][]byte) {
	w := newWorld(s)
	defer w.end()
	path := slices.Clone(prefix)
	r.Runs++
	for at := 0; ; at++ {
		moves := w.next()
		r.Longest = max(r.Longest, at)
		if at == endless {
			w.broken("it does not end: somebody looks again and again")
		}
		switch {
		case w.bad != "":
			r.Found = &violation{What: w.bad, Path: retell(s, path)}
			return alternatives
		case len(moves) == 0:
			r.Schedules++
			return alternatives
		case at < len(prefix):
			if int(prefix[at]) >= len(moves) {
				panic("the same choices led to another state: something depends on more than they decide")
			}
			w.make(moves[prefix[at]])
		default:
			// The choices of a prefix lead through states that were entered before; the
			// first state behind it may be one as well.
			h := w.hash()
			if seen[h] {
				return alternatives
			}
			seen[h] = true
			for other := len(moves) - 1; other > 0; other-- {
				alternatives = append(alternatives, append(slices.Clone(path), byte(other)))
			}
			path = append(path, 0)
			w.make(moves[0])
		}
		r.Steps++
	}
}

// next waits until everybody stands at a gate, waits for somebody, or is gone, and lists
// what can happen then. Where nothing can but time passing, time passes. Where not even
// that helps, it checks the end.
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

// blocked reports whether somebody has not come to an end.
func (w *world) blocked() bool {
	return slices.ContainsFunc(w.actors, func(a *actor) bool { return !a.over })
}

// retell executes a path again and says each of its moves.
func retell(s scenario, path []byte) []string {
	w := newWorld(s)
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

package crashtest

import (
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/tgad/tgad/schemas/tga"
)

// ask is one call of one caller, by its places in the journal.
type ask struct {
	Event
	invoked, returned int
}

// Linearizable checks the callers of each key against a register that is written once
// (S9): the first request to take effect sets it, the same request reads its answer, any
// other request conflicts. A call that ended without an answer may have taken effect at
// any time after it was made, or not at all.
//
// For such a register the general search is not needed: the answers name the winner, and
// then each conflict must come after a moment at which the winner may have taken effect.
func Linearizable(events []Event) (bad []Violation) {
	open := map[string]int{}
	asks := map[toolKey][]ask{}
	for i, e := range events {
		k, who := toolKey{e.Tool, e.Key}, fmt.Sprint(e.Tool, e.Key, e.Caller)
		switch e.Kind {
		case Invoked:
			open[who] = i
		case Returned:
			asks[k] = append(asks[k], ask{e, open[who], i})
		}
	}
	for k, list := range asks {
		if detail := register(list); detail != "" {
			bad = append(bad, Violation{Property: "S9", Key: k.key, Detail: detail})
		}
	}
	return bad
}

func register(list []ask) string {
	winner, value := "", ""
	for _, a := range list {
		if a.Code != "" || a.Value == nil {
			continue
		}
		if winner == "" {
			winner, value = a.Args, string(a.Value)
		}
		if a.Args != winner || string(a.Value) != value {
			return fmt.Sprintf("%s was answered %s, %s was answered %s", winner, value, a.Args, a.Value)
		}
	}
	for _, c := range list {
		if c.Code != tga.IdempotencyKeyConflict {
			continue
		}
		if c.Args == winner {
			return fmt.Sprintf("%s won and conflicts", winner)
		}
		before := false // somebody may have set the register before this conflict
		for _, a := range list {
			other := a.Args != c.Args && a.Code != tga.IdempotencyKeyConflict && (winner == "" || a.Args == winner)
			before = before || other && a.invoked < c.returned
		}
		if !before {
			return fmt.Sprintf("%s conflicts with nothing", c.Args)
		}
	}
	return ""
}

// Histories lets concurrent callers ask for few keys with few arguments, n times over,
// and checks that each sees one effect.
func (r *Run) Histories(conf Config, seed uint64, n int) {
	r.each(n, func(i int) {
		w := NewWorld(seed + uint64(i))
		p, err := w.Start(conf)
		if err != nil {
			r.report(w.Crash(100), "histories", []Violation{{Property: "L1", Detail: err.Error()}})
			return
		}
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		licence := []string{"park", "dedupe_key", "dedupe_args", "probe"}[i%4]
		var wg sync.WaitGroup
		for caller := range 16 {
			key, args := fmt.Sprintf("k%d", rng.IntN(3)), 5
			if rng.IntN(4) == 0 {
				args = 6
			}
			key = fmt.Sprintf("%s-%d", key, i%7)
			wg.Go(func() {
				ignore(p.Call(caller, Request(Allowed, licence+"."+Answers, key, args)))
			})
		}
		wg.Wait()
		bad := append(Linearizable(w.Journal()), p.judge(false)...)
		if err := p.DB.Close(); err != nil {
			bad = append(bad, Violation{Property: "L1", Detail: err.Error()})
		}
		r.Counts.add(&r.Counts.Histories, 1)
		r.report(w.Crash(100), fmt.Sprintf("history %d", i), bad)
	})
}

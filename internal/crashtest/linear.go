package crashtest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"

	"github.com/anishathalye/porcupine"

	"github.com/tgad/tgad/schemas/tga"
)

// register models a key for its callers: a register that is written once, by the first
// request that takes effect. known is false while no caller has got the answer.
type register struct {
	set, known  bool
	args, value string
}

// asked and told are a call of a register and its answer.
type asked struct{ args string }

type told struct {
	value    string
	answered bool // with the value
	conflict bool // refused: the key is another request's
}

// registerModel says what a call may do to a register. A call that ended with neither an
// answer nor a conflict may have taken effect, or not.
var registerModel = (&porcupine.NondeterministicModel{
	Init: func() []any { return []any{register{}} },
	Step: func(state, input, output any) []any {
		r, in, out := state.(register), input.(asked), output.(told)
		same := r.set && r.args == in.args
		switch {
		case out.conflict:
			if r.set && !same {
				return []any{r}
			}
			return nil
		case out.answered:
			if !r.set || same && (!r.known || r.value == out.value) {
				return []any{register{true, true, in.args, out.value}}
			}
			return nil
		case !r.set:
			return []any{r, register{set: true, args: in.args}}
		}
		return []any{r}
	},
	Equal: func(a, b any) bool { return a == b },
}).ToModel()

// Linearizable checks the callers of each key against a register that is written once
// (S9): the first request to take effect sets it, the same request reads its answer, any
// other request conflicts. A call that ended without an answer may have taken effect at
// any time after it was made, or not at all.
func Linearizable(events []Event) (bad []Violation) {
	open := map[string]int{}
	calls := map[toolKey][]porcupine.Operation{}
	for i, e := range events {
		k, who := toolKey{e.Tool, e.Key}, fmt.Sprint(e.Tool, e.Key, e.Caller)
		switch e.Kind {
		case Invoked:
			open[who] = i
		case Returned:
			op := porcupine.Operation{
				ClientId: e.Caller, Input: asked{e.Args}, Call: int64(open[who]), Return: int64(i),
				Output: told{string(e.Value), e.Code == "" && e.Value != nil, e.Code == tga.IdempotencyKeyConflict},
			}
			if o := op.Output.(told); !o.answered && !o.conflict {
				op.Return = math.MaxInt64
			}
			calls[k] = append(calls[k], op)
		}
	}
	for k, list := range calls {
		if !porcupine.CheckOperations(registerModel, list) {
			bad = append(bad, Violation{Property: "S9", Key: k.key, Detail: fmt.Sprintf("the answers of %s have no order: %+v", k.tool, list)})
		}
	}
	return bad
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

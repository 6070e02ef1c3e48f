package serving_test

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// What is asked of a key, by whichever replica.
const (
	opCall    = "call"
	opBegin   = "begin"   // an executor asks to send the call itself
	opFinish  = "finish"  // it says what came of it
	opResolve = "resolve" // a person says what came of it
)

// What is told.
const (
	toldDone    = "done"    // with the value
	toldFailed  = "failed"  // so that it may be tried again
	toldDoubt   = "doubt"   // nobody knows what came of it
	toldSend    = "send"    // a permit
	toldWait    = "wait"    // another is at it
	toldUnknown = "unknown" // no answer: it may have taken effect, then or later, or not
)

// asked and told are an operation on a key and its answer.
type asked struct {
	what  string
	id    string // of a begin and its finish: who has the permit
	retry bool   // of a call: once more where it has failed
	value string // of a finish or a resolve; "" is that it has failed
}

type told struct{ what, value string } // the value, or why it is unknown

// account is what a key is for all who ask for it: open, held by who has a permit, done with one
// value for good, or failed. A value that nobody was told yet is not known.
type account struct {
	phase  string // "", toldSend, toldDone, toldFailed
	holder string
	value  string
	failed bool // an earlier attempt did: a begin id may lead to that one
}

const notKnown = "?"

// accountModel says what each operation may do to an account. It is about what callers see, so it
// knows nothing of traces: that a call is on its way shows in nothing but "in doubt", which
// nobody is told of what is done.
var accountModel = (&porcupine.NondeterministicModel{
	Init: func() []any { return []any{account{}} },
	Step: func(state, input, output any) []any {
		var next []any
		for _, a := range steps(state.(account), input.(asked), output.(told)) {
			next = append(next, a)
		}
		return next
	},
	Equal: func(a, b any) bool { return a == b },
}).ToModel()

func steps(a account, in asked, out told) []account {
	if out.what == toldUnknown {
		may := []account{a}
		for _, b := range effects(a, in) {
			if b != a {
				may = append(may, b)
			}
		}
		return may
	}
	switch out.what {
	case toldWait: // the lease may be that of an earlier question with the same begin id
		return []account{a}
	case toldDoubt:
		if a.phase != toldDone {
			return []account{a}
		}
		return nil
	case toldFailed:
		if a.phase == toldFailed || a.failed && in.what == opBegin {
			return []account{a}
		}
	case toldDone:
		if a.phase == toldDone {
			if a.value == notKnown || a.value == out.value {
				return []account{{phase: toldDone, value: out.value, failed: a.failed}}
			}
			return nil
		}
	}
	var may []account
	for _, b := range effects(a, in) {
		if b.phase != out.what {
			continue
		}
		if b.phase == toldDone && b.value == notKnown {
			b.value = out.value
		}
		if b.value == out.value {
			may = append(may, b)
		}
	}
	return may
}

// effects are what an operation may make of an account.
func effects(a account, in asked) []account {
	free := a.phase == "" || a.phase == toldFailed && in.retry
	switch {
	case in.what == opCall && free:
		return []account{{phase: toldDone, value: notKnown, failed: a.failed}}
	case in.what == opBegin && (free || a.phase == toldSend && a.holder == in.id):
		return []account{{phase: toldSend, holder: in.id, failed: a.failed}}
	case in.what == opFinish && a.phase == toldSend && a.holder == in.id,
		in.what == opResolve && in.value != "" && a.phase != toldDone:
		return []account{{phase: toldDone, value: in.value, failed: a.failed}}
	case in.what == opResolve && in.value == "" && a.phase != toldDone:
		return []account{{phase: toldFailed, failed: true}}
	}
	return nil
}

// history is what was asked of each key and what was told, in the order of one clock.
type history struct {
	began time.Time
	mu    sync.Mutex
	byKey map[string][]porcupine.Operation
	count map[string]int    // of answers, by kind
	first map[string]answer // of each key, the first answer that somebody has
}

type answer struct {
	value string
	at    time.Duration
}

func newHistory(began time.Time) *history {
	return &history{began: began, byKey: map[string][]porcupine.Operation{}, count: map[string]int{}, first: map[string]answer{}}
}

// ask makes an operation, and keeps it.
func (h *history) ask(key string, in asked, do func() told) told {
	call := time.Since(h.began)
	out := do()
	at := time.Since(h.began)
	op := porcupine.Operation{Input: in, Output: out, Call: int64(call), Return: int64(at)}
	if out.what == toldUnknown {
		op.Return = math.MaxInt64
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.byKey[key] = append(h.byKey[key], op)
	counted := in.what + " " + out.what
	if out.what == toldUnknown {
		counted += " " + out.value
	}
	h.count[counted]++
	if _, known := h.first[key]; out.what == toldDone && !known {
		h.first[key] = answer{out.value, at}
	}
	return out
}

func (h *history) answered() map[string]answer {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make(map[string]answer, len(h.first))
	for key, a := range h.first {
		all[key] = a
	}
	return all
}

// disordered are the keys whose answers have no order that the model allows.
func (h *history) disordered() (bad []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, list := range h.byKey {
		if got := porcupine.CheckOperationsTimeout(accountModel, list, time.Minute); got != porcupine.Ok {
			lines := []string{fmt.Sprintf("%s: porcupine says %s", key, got)}
			for _, op := range list {
				lines = append(lines, fmt.Sprintf("%12s to %12s  %+v: %+v", time.Duration(op.Call), time.Duration(op.Return), op.Input, op.Output))
			}
			bad = append(bad, strings.Join(lines, "\n\t"))
		}
	}
	return bad
}

// TestHistoriesOutOfOrderAreSeen: of each rule of the model a history that keeps it and one that does not.
func TestHistoriesOutOfOrderAreSeen(t *testing.T) {
	type step struct {
		in  asked
		out told
	}
	call := func(out, value string) step { return step{asked{what: opCall}, told{out, value}} }
	again := func(out, value string) step { return step{asked{what: opCall, retry: true}, told{out, value}} }
	begin := func(id, out, value string) step { return step{asked{what: opBegin, id: id}, told{out, value}} }
	againBegin := func(id, out string) step {
		return step{asked{what: opBegin, id: id, retry: true}, told{what: out}}
	}
	finish := func(id, value, out string) step {
		return step{asked{what: opFinish, id: id, value: value}, told{out, value}}
	}
	resolve := func(value, out string) step {
		return step{asked{what: opResolve, value: value}, told{out, value}}
	}
	for name, c := range map[string]struct {
		good bool
		list []step
	}{
		"one value":               {true, []step{call(toldDone, "1"), call(toldDone, "1")}},
		"two values":              {false, []step{call(toldDone, "1"), call(toldDone, "2")}},
		"a doubt that ends":       {true, []step{call(toldDoubt, ""), call(toldDone, "1")}},
		"a doubt of what is done": {false, []step{call(toldDone, "1"), call(toldDoubt, "")}},
		"a call without an answer, and its value":  {true, []step{call(toldUnknown, ""), call(toldDone, "1")}},
		"a call without an answer, and two values": {false, []step{call(toldUnknown, ""), call(toldDone, "1"), call(toldDone, "2")}},
		"a wait before the end":                    {true, []step{begin("a", toldSend, ""), begin("b", toldWait, ""), finish("a", "1", toldDone), begin("b", toldDone, "1")}},
		"a wait says nothing":                      {true, []step{begin("a", toldSend, ""), finish("a", "1", toldDone), begin("b", toldWait, "")}},
		"two permits":                              {false, []step{begin("a", toldSend, ""), begin("b", toldSend, "")}},
		"one permit asked for twice":               {true, []step{begin("a", toldUnknown, ""), begin("a", toldSend, "")}},
		"a permit after the end":                   {false, []step{begin("a", toldSend, ""), finish("a", "1", toldDone), begin("b", toldSend, "")}},
		"a finish of another's permit":             {false, []step{begin("a", toldSend, ""), finish("b", "1", toldDone)}},
		"a value that is not the finish's":         {false, []step{begin("a", toldSend, ""), finish("a", "1", toldDone), begin("b", toldDone, "2")}},
		"a new attempt after a failure":            {true, []step{call(toldDoubt, ""), resolve("", toldFailed), call(toldFailed, ""), again(toldDone, "1")}},
		"a value after a failure, with no retry":   {false, []step{call(toldDoubt, ""), resolve("", toldFailed), call(toldDone, "1")}},
		"an old begin id, after a new permit":      {true, []step{begin("a", toldSend, ""), resolve("", toldFailed), againBegin("b", toldSend), begin("a", toldFailed, "")}},
		"a failure that never was":                 {false, []step{begin("a", toldSend, ""), begin("b", toldFailed, "")}},
		"a failure of what is done":                {false, []step{call(toldDone, "1"), resolve("", toldFailed)}},
		"a person's value":                         {true, []step{call(toldUnknown, ""), resolve("1", toldDone), call(toldDone, "1")}},
		"another than the person's value":          {false, []step{resolve("1", toldDone), call(toldDone, "2")}},
	} {
		h := newHistory(time.Now())
		for _, s := range c.list {
			h.ask("k", s.in, func() told { return s.out })
		}
		if bad := h.disordered(); (len(bad) == 0) != c.good {
			t.Errorf("%s: want good %v: %s", name, c.good, bad)
		}
	}
}

package serving_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// toolOf is the tool that a key is for: most have no licence.
func toolOf(n int) string {
	switch n % 10 {
	case 0, 1, 2:
		return "charge" // the daemons send it again after a doubt
	case 3, 4:
		return "pay" // an executor sends it
	}
	return "opaque"
}

func keyOf(n int) string { return fmt.Sprintf("%s-%d", toolOf(n), n) }

// ask is one of those who ask for key n. Its callers begin at the same moment, at different replicas.
func (x *trial) ask(n, rank int, rng *rand.Rand) {
	replicas := len(x.servers.replicas)
	if x.meets.meet(n) && rank == 0 {
		x.raced.Add(1)
	}
	x.call(keyOf(n), (n+rank)%replicas, 12, rng)
}

// patience is how long a caller waits for one replica.
const patience = 2000 * time.Millisecond

// call asks for a key until there is an answer: the replica first, if it is not negative, then whichever. Not
// every caller goes on for ever.
func (x *trial) call(key string, first, tries int, rng *rand.Rand) {
	tool, _, _ := strings.Cut(key, "-")
	id, retry := beginID(key, rng), false
	for try := range tries {
		r := x.servers.replicas[rng.IntN(len(x.servers.replicas))]
		if try == 0 && first >= 0 {
			r = x.servers.replicas[first]
		}
		x.quiet.RLock()
		var out told
		if tool == "pay" {
			out = x.execute(r, key, id, retry, rng)
		} else {
			wait := 4 * patience // longer than most faults last
			if rng.IntN(3) == 0 {
				wait = patience
			}
			out = x.askOnce(r, key, retry, wait)
		}
		x.quiet.RUnlock()
		switch out.what {
		case toldDone:
			return
		case toldFailed:
			retry, id = true, beginID(key, rng) // the old one leads to what has failed
			continue
		}
		if out.what == toldDoubt && tries < last && rng.IntN(3) == 0 {
			return
		}
		time.Sleep(between(rng, 20*time.Millisecond, min(time.Second, 100*time.Millisecond<<min(try, 4))))
	}
}

// askOnce asks a replica to make the call of a key.
func (x *trial) askOnce(r *struck, key string, retry bool, wait time.Duration) told {
	tool, _, _ := strings.Cut(key, "-")
	return x.history.ask(key, asked{what: opCall, retry: retry}, func() told {
		ctx, cancel := context.WithTimeout(context.Background(), wait)
		defer cancel()
		return toldOf(r.Call(ctx, runtime.Request{Server: "pay", Tool: tool, Key: key, Args: []byte(`{"amount":5}`), Retry: retry}))
	})
}

func beginID(key string, rng *rand.Rand) string { return fmt.Sprintf("%s by %d", key, rng.Uint64()) }

// last is how often the callers ask who come when all is well again.
const last = 200

// toldOf says what a caller was told.
func toldOf(res runtime.Result, err error) told {
	switch {
	case errors.Is(err, tga.EffectInDoubt):
		return told{what: toldDoubt}
	case err != nil:
		return told{toldUnknown, why(err)}
	case res.State == tga.Completed:
		return told{toldDone, string(res.Value)}
	case res.State == tga.Failed && res.Class == ledger.ClassRetryable:
		return told{what: toldFailed}
	}
	return told{toldUnknown, fmt.Sprint(res.State, " ", res.Class)} // not sent, or not at its end
}

// why is what is counted of an error.
func why(err error) string {
	if code := tga.CodeOf(err); code != "" {
		return string(code)
	}
	return fmt.Sprintf("%T", err)
}

// execute has an executor ask for a permit, send the call, and say what came of it.
func (x *trial) execute(r *struck, key, id string, retry bool, rng *rand.Rand) told {
	var begun runtime.Begun
	out := x.history.ask(key, asked{what: opBegin, id: id, retry: retry}, func() told {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		var err error
		if begun, err = r.Begin(ctx, runtime.BeginRequest{Request: runtime.Request{Server: "remote", Tool: "pay", Key: key, Args: []byte(`{"amount":5}`), Retry: retry}, BeginID: id}); err != nil {
			return told{toldUnknown, why(err)}
		}
		switch begun.Standing {
		case runtime.BeginSend:
			return told{what: toldSend}
		case runtime.BeginWait:
			return told{what: toldWait}
		case runtime.BeginInDoubt:
			return told{what: toldDoubt}
		case runtime.BeginServe:
			return toldOf(begun.Result, nil)
		}
		return told{what: toldUnknown}
	})
	if out.what != toldSend {
		return out
	}
	trace := begun.Result.TraceID
	dies := !x.over() && rng.IntN(12) == 0 // before its send, or after it
	if dies && rng.IntN(2) == 0 {
		x.tools.desert(trace)
		return told{what: toldDoubt}
	}
	a := x.tools.arriveOnce(arrival{replica: executor, tool: "pay", key: key, trace: trace.String(), attempt: fmt.Sprint(begun.Attempt)})
	if dies {
		x.tools.desert(trace)
		return told{what: toldDoubt}
	}
	for range last {
		out = x.history.ask(key, asked{what: opFinish, id: id, value: a.value()}, func() told {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			return toldOf(r.Finish(ctx, trace, begun.Permit, runtime.Finished{Reply: runtime.Reply{Status: tga.StatusSuccess, Result: []byte(a.value())}}))
		})
		if out.what != toldUnknown || x.over() {
			break
		}
		time.Sleep(between(rng, 20*time.Millisecond, 200*time.Millisecond))
		r = x.servers.replicas[rng.IntN(len(x.servers.replicas))]
	}
	x.tools.desert(trace) // it has sent, and says nothing more
	return out
}

// settle has a person look at the tool server for calls in doubt, and say what they see. It returns
// how many there were.
func (x *trial) settle(r *struck, most int) (doubts int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	list, err := r.InDoubt(ctx)
	if err != nil {
		return 0, err
	}
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	for _, o := range list {
		if o.ToolName == "charge" || o.ToolName == "pay" && !x.over() && !x.tools.isDeserted(o.TraceID) || tga.MillisOf(time.Now())-o.Doubt.Since < 1000 {
			continue // its licence or its executor may end it; or what is on its way may still arrive
		}
		if most--; most < 0 {
			break
		}
		x.settleOne(r, o)
	}
	return len(list), nil
}

func (x *trial) settleOne(r *struck, o wire.OpenTrace) {
	failed := runtime.Reply{Status: tga.StatusFailure, Class: ledger.ClassRetryable, ErrorCode: "NOT_SENT", ErrorMessage: "looked at the tool"}
	say, value := failed, ""
	if a, sent := x.tools.look(o.TraceID); sent {
		value = a.value()
		say = runtime.Reply{Status: tga.StatusSuccess, Result: []byte(value)}
	}
	evidence, err := json.Marshal(map[string]any{"seen": value})
	if err != nil {
		panic(err)
	}
	x.history.ask(o.IdempotencyKey, asked{what: opResolve, value: value}, func() told {
		ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
		defer cancel()
		return toldOf(r.Resolve(ctx, o.TraceID, runtime.Resolution{Reply: say, Evidence: evidence, Attempts: o.Attempts}))
	})
}

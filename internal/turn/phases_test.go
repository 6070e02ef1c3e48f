package turn_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/internal/turn/message"
	"github.com/tgad/tgad/internal/turn/state"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

type modelFunc func(context.Context, turn.Question) (turn.Answer, error)

func (f modelFunc) Generate(ctx context.Context, q turn.Question) (turn.Answer, error) {
	return f(ctx, q)
}

// TestTimeoutOfATurn: OSSA 0.2.9 §1 phase 4 rule 4. If the time ends in a phase, the failure has
// that phase's code. A tool that was cut off is in doubt and listed.
func TestTimeoutOfATurn(t *testing.T) {
	for _, c := range []struct {
		text    string
		code    tga.Code
		effects int
	}{{"wait", tga.LLMTimeout, 0}, {"call slow {}", tga.ToolTimeout, 1}} {
		w := newWorld(t, func(w *world) {
			w.licence = ledger.Park
			w.agents[0].Constraints.Timeout = 1500 * time.Millisecond
			w.options = func(o *turn.Options) {
				o.Models["local"] = modelFunc(func(ctx context.Context, q turn.Question) (turn.Answer, error) {
					if q.Messages[len(q.Messages)-1].Plain() == "wait" {
						<-ctx.Done()
						return turn.Answer{}, ctx.Err()
					}
					return obedient(q)
				})
				o.Sleep = nil
			}
		})
		w.tool("slow", nil)
		w.slow = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		res := w.run(c.text)
		if res.Status != turn.Unsuccessful || res.Failure.Code != c.code || len(res.Effects) != c.effects {
			t.Errorf("%s: %+v", c.text, res)
		}
		if c.effects > 0 && res.Effects[0].Status != turn.ToolTimedOut {
			t.Errorf("%+v", res.Effects)
		}
	}
}

// impatient is a store that gives no lease after the deadline of the context.
type impatient struct{ runtime.Store }

func (s impatient) Acquire(ctx context.Context, id tga.ID) (chain.Lease, error) {
	if err := ctx.Err(); err != nil {
		return chain.Lease{}, err
	}
	return s.Store.Acquire(ctx, id)
}

// TestTimeIsOverWhileTheTurnEnds: what was done in time stands, and the chain goes on.
func TestTimeIsOverWhileTheTurnEnds(t *testing.T) {
	e := &emitter{}
	w := newWorld(t, func(w *world) {
		w.agents[0].Constraints.Timeout = 1500 * time.Millisecond
		w.wrap = func(s runtime.Store) runtime.Store { return impatient{s} }
		w.options = func(o *turn.Options) { o.Emitters = []turn.Emitter{e} }
	})
	e.do = func() error {
		if m := e.all[len(e.all)-1]; m.First {
			time.Sleep(time.Until(m.Started.Add(1600 * time.Millisecond)))
		}
		return nil
	}
	if res := w.run("call echo {}"); res.Status != turn.Completed || res.Turns != 2 {
		t.Errorf("%+v", res)
	}
}

// TestCancelledTurnStaysOpen: a caller that leaves does not fail the turn.
func TestCancelledTurnStaysOpen(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	asked := 0
	w := newWorld(t, func(w *world) {
		w.options = func(o *turn.Options) {
			o.Models["local"] = modelFunc(func(ctx context.Context, q turn.Question) (turn.Answer, error) {
				if asked++; asked == 1 {
					cancel()
					<-ctx.Done()
					return turn.Answer{}, ctx.Err()
				}
				return obedient(q)
			})
		}
	})
	if _, err := w.r.Run(ctx, turn.Request{Agent: "helper", Message: []byte("done x")}); !errors.Is(err, context.Canceled) {
		t.Fatalf("%v", err)
	}
	all, err := w.r.Recover(t.Context())
	if err != nil || len(all) != 1 || all[0].Status != turn.Completed || all[0].Text != "x" || asked != 2 {
		t.Errorf("%+v, %v, asked %d times", all, err, asked)
	}
}

// TestIdentities: OSSA 0.2.9 §1 phase 1.
func TestIdentities(t *testing.T) {
	seen := map[tga.ID]bool{}
	for _, c := range []struct {
		scope turn.InstanceScope
		same  bool // from one message to the next
	}{{turn.PerProcess, true}, {turn.PerPod, true}, {turn.PerRequest, false}} {
		w := newWorld(t, func(w *world) {
			w.agents[0].Identity.Scope = c.scope
			w.options = func(o *turn.Options) { o.Instance = "pod-1" }
		})
		one, two := w.run("call echo {}"), w.run("done x")
		if (one.InstanceID == two.InstanceID) != c.same || c.same && one.InstanceID != "pod-1" {
			t.Errorf("%s: instances %q, %q", c.scope, one.InstanceID, two.InstanceID)
		}
		if one.SessionID != "s" || two.SessionID != "s" || two.TurnNumber != one.TurnNumber+1 {
			t.Errorf("%+v, %+v", one, two)
		}
		for _, id := range []tga.ID{one.InvocationID, one.InteractionID, two.InteractionID} {
			if seen[id] {
				t.Errorf("interaction %s twice", id)
			}
			seen[id] = true
		}
		if c.scope == turn.PerPod {
			// Without a name of its own a pod has its host's, in every process.
			w.options = func(*turn.Options) {}
			w.restart()
			one := w.run("done x")
			w.restart()
			if two := w.run("done x"); one.InstanceID != two.InstanceID || one.InstanceID == "pod-1" {
				t.Errorf("instances %q, %q", one.InstanceID, two.InstanceID)
			}
		}
		w.agents[0].Identity.NewSession = true
		if res := w.run("done x"); res.SessionID == "s" || res.TurnNumber != 1 {
			t.Errorf("%+v", res)
		}
	}
}

// TestOrderOfCalls: calls are made in the order of the request, or at once if their tools permit
// it.
func TestOrderOfCalls(t *testing.T) {
	for _, parallel := range []bool{false, true} {
		var mu sync.Mutex
		var order []string
		inside, most := 0, 0
		both := make(chan struct{})
		w := newWorld(t)
		w.tool("step", func(_ context.Context, args string) (string, error) {
			mu.Lock()
			order = append(order, args)
			if inside++; inside > most {
				most = inside
			}
			if parallel && inside == 2 {
				close(both)
			}
			mu.Unlock()
			if parallel {
				<-both
			}
			mu.Lock()
			inside--
			mu.Unlock()
			return args, nil
		})
		for i := range w.defs {
			w.defs[i].Parallel = parallel
		}
		res := w.run("call step 1{\ncall step {\"n\":1}\ncall step {\"n\":2}\ncall echo {}")
		if parallel && most != 2 || !parallel && (most != 1 || !slices.Equal(order, []string{`{"n":1}`, `{"n":2}`})) {
			t.Errorf("parallel %v: %d at once, %v", parallel, most, order)
		}
		ids := map[string]bool{}
		for i, e := range res.Effects {
			if e.CallID != fmt.Sprint("c", i) || ids[e.CallID] {
				t.Errorf("result %d is of call %s", i, e.CallID)
			}
			ids[e.CallID] = true
		}
		if res.Effects[0].Failure == nil || res.Effects[0].Failure.Code != tga.SchemaViolation {
			t.Errorf("arguments that are no JSON: %+v", res.Effects[0])
		}
	}
}

// TestBreakerOfATool opens after a number of calls without an answer. Then the fallback replaces
// the calls, and the tool is not reached.
func TestBreakerOfATool(t *testing.T) {
	w := newWorld(t, func(w *world) {
		w.licence = ledger.Park
		w.agents[0].Handlers = []turn.Handler{{Codes: []tga.Code{tga.EffectInDoubt}, Strategy: turn.Skip}}
	})
	w.fails["echo"] = func(int) (runtime.Reply, error) { return runtime.Reply{}, errors.New("reset") }
	for i := range w.defs {
		w.defs[i].Breaker = turn.BreakerSpec{Failures: 2, Open: time.Hour}
		w.defs[i].Fallback = json.RawMessage(`{"cached":true}`)
		w.defs[i].Retry = turn.RetryPolicy{MaxRetries: -1}
	}
	var last turn.Result
	for range 3 {
		last = w.run("call echo {}")
	}
	if sum(w.out.sends) != 2 || last.Status != turn.Completed || last.Text != `tools said {"cached":true}` && !strings.Contains(last.Text, "cached") {
		t.Errorf("%d sends, %+v", sum(w.out.sends), last)
	}
}

// TestBreakerOfASecondManifest: two manifests use one tool, and the stricter breaker of the second
// one holds for it.
func TestBreakerOfASecondManifest(t *testing.T) {
	w := newWorld(t, func(w *world) {
		w.licence = ledger.Park
		w.agents[0].Handlers = []turn.Handler{{Codes: []tga.Code{tga.EffectInDoubt}, Strategy: turn.Skip}}
	})
	w.fails["echo"] = func(int) (runtime.Reply, error) { return runtime.Reply{}, errors.New("reset") }
	for _, failures := range []int{100, 1} {
		for i := range w.defs {
			w.defs[i].Breaker = turn.BreakerSpec{Failures: failures, Open: time.Hour}
		}
		w.run("call echo {}")
	}
	if w.run("call echo {}"); sum(w.out.sends) != 2 {
		t.Errorf("%d sends", sum(w.out.sends))
	}
}

// TestTwoCallsWithOneID: an answer with such calls is refused, because their results could not be
// told apart.
func TestTwoCallsWithOneID(t *testing.T) {
	w := newWorld(t)
	n := 0
	w.say = func(q turn.Question) (turn.Answer, error) {
		a, err := obedient(q)
		if n++; n == 1 {
			a.Said.ToolCalls = []message.ToolCall{{ID: "1", Name: "echo", Arguments: "{}"}, {ID: "1", Name: "echo", Arguments: "{}"}}
		}
		return a, err
	}
	if res := w.run("done x"); res.Status != turn.Completed || sum(w.out.sends) != 0 || n != 2 {
		t.Errorf("%+v, %d questions", res, n)
	}
}

type emitter struct {
	all []*turn.Emission
	do  func() error
}

func (e *emitter) Emit(_ context.Context, m *turn.Emission) error {
	e.all = append(e.all, m)
	if e.do != nil {
		return e.do()
	}
	return nil
}

// TestEmissionSaysWhatHappened: OSSA 0.2.9 §1 phase 7.
func TestEmissionSaysWhatHappened(t *testing.T) {
	e := &emitter{}
	w := newWorld(t, func(w *world) {
		w.options = func(o *turn.Options) { o.Emitters = []turn.Emitter{e} }
	})
	res, err := w.r.Run(t.Context(), turn.Request{
		Agent: "helper", SessionID: "s", Message: []byte("call count {}"),
		SpanContext: turn.SpanContext{Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", Baggage: "a=b"},
	})
	if err != nil || len(e.all) != 2 {
		t.Fatalf("%d emissions, %v", len(e.all), err)
	}
	one, two := e.all[0], e.all[1]
	if !one.First || one.Last || two.First || !two.Last || one.InvocationID != two.InvocationID || one.InteractionID != res.InvocationID {
		t.Errorf("%+v\n%+v", one, two)
	}
	if len(one.Tools) != 1 || one.Tools[0].Status != turn.ToolSucceeded || len(one.Inferences) != 1 || one.Usage.Total != 15 ||
		one.State.Changes != 2 || one.State.Isolation != state.Serializable || one.SpanContext.Baggage != "a=b" || two.SpanContext != one.SpanContext {
		t.Errorf("%+v", one)
	}
	var phases []turn.Phase
	for _, p := range one.Phases {
		phases = append(phases, p.Phase)
		if p.Ended.Before(p.Started) {
			t.Errorf("%+v", p)
		}
	}
	if !slices.Equal(phases, []turn.Phase{turn.Init, turn.Normalize, turn.Resolve, turn.Infer, turn.Execute, turn.Persist}) {
		t.Errorf("%v", phases)
	}
}

// TestTelemetryNeverFailsATurn: the emitters fail, panic or do not return.
func TestTelemetryNeverFailsATurn(t *testing.T) {
	stuck := make(chan struct{})
	defer close(stuck)
	for name, do := range map[string]func() error{
		"error": func() error { return errors.New("no") },
		"panic": func() error { panic("no") },
		"stuck": func() error { <-stuck; return nil },
	} {
		w := newWorld(t, func(w *world) {
			w.options = func(o *turn.Options) {
				o.Emitters, o.EmitTimeout = []turn.Emitter{&emitter{do: do}}, 10*time.Millisecond
			}
		})
		if res := w.run("done x"); res.Status != turn.Completed {
			t.Errorf("%s: %+v", name, res)
		}
	}
}

// TestBlockedContentNeverReachesTheModel, and the turn says why it failed.
func TestBlockedContentNeverReachesTheModel(t *testing.T) {
	w := newWorld(t, func(w *world) { w.agents[0].Filter = message.Filter{Patterns: []string{"forbidden"}} })
	res := w.run("done forbidden")
	if res.Status != turn.Unsuccessful || res.Failure.Code != tga.ContentFiltered || sum(w.out.requests) != 0 {
		t.Errorf("%+v", res)
	}
	if res := w.run("done x"); res.Status != turn.Completed || res.TurnNumber != 2 {
		t.Errorf("%+v", res)
	}
}

// TestDamagedJournalIsRefused: any byte of any record is changed, or any record is left out.
func TestDamagedJournalIsRefused(t *testing.T) {
	w := newWorld(t)
	res := w.run("call echo {}")
	records, err := turn.Records(t.Context(), w.db, res.InvocationID)
	if err != nil {
		t.Fatal(err)
	}
	for n := range records {
		for i, damage := range []func([]byte) []byte{
			nil,
			func(b []byte) []byte { b[0] ^= 1; return b },
			func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
			func(b []byte) []byte { return b[:len(b)-1] },
			func(b []byte) []byte { return b[:8] },
			func(b []byte) []byte { // another, valid record for the same place
				text := bytes.Replace(b[32:], []byte(`"ts":"20`), []byte(`"ts":"19`), 1)
				sum := tga.Sum(text)
				return append(sum[:], text...)
			},
		} {
			s := &damaged{Store: w.db, id: res.InvocationID, number: uint64(n + 1), damage: damage}
			if _, err := turn.Records(t.Context(), s, res.InvocationID); n == len(records)-1 && (damage == nil || i == 5) {
				continue // a journal without its last record is a valid journal of a turn that did not end
			} else if tga.CodeOf(err) != tga.StateChecksumMismatch && tga.CodeOf(err) != tga.StateSequenceGap {
				t.Errorf("record %d: %v", n+1, err)
			}
		}
	}
}

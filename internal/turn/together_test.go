package turn_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/internal/turn/message"
	"github.com/tgad/tgad/internal/turn/state"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// TestConcurrentTurns: two turns of one session read a value, wait for each other, and set it.
// The isolation level decides what happens to the second commit (OSSA 0.2.9 §3).
func TestConcurrentTurns(t *testing.T) {
	for _, c := range []struct {
		level  state.Isolation
		failed int
		n      string
	}{
		{state.Serializable, 1, "1"}, {state.RepeatableRead, 1, "1"},
		{state.ReadCommitted, 0, "1"}, // a lost update, which this level permits
	} {
		w := newWorld(t, func(w *world) { w.agents[0].State.Isolation = c.level })
		var mu sync.Mutex
		read := 0
		both := make(chan struct{})
		w.tool("raise", func(ctx context.Context, _ string) (string, error) {
			v, _ := turn.StateFrom(ctx)
			raw, err := v.Get("n")
			if err != nil {
				return "", err
			}
			n := 0
			if raw != nil {
				if err := json.Unmarshal(raw, &n); err != nil {
					return "", err
				}
			}
			mu.Lock()
			if read++; read == 2 {
				close(both)
			}
			mu.Unlock()
			<-both
			return "{}", v.Set("n", json.RawMessage(fmt.Sprint(n+1)), 0)
		})
		var wg sync.WaitGroup
		results := make([]turn.Result, 2)
		for i := range results {
			wg.Go(func() {
				res, err := w.r.Run(context.Background(), turn.Request{Agent: "helper", SessionID: "s", Message: []byte("call raise {}")})
				if err != nil {
					t.Error(err)
				}
				results[i] = res
			})
		}
		wg.Wait()
		failed := 0
		for _, res := range results {
			if res.Status == turn.Unsuccessful {
				failed++
				if res.Failure.Code != tga.GenericStateError || res.Failure.Details["cause"] != string(tga.StateConflict) || len(res.Effects) != 1 {
					t.Errorf("%s: %+v", c.level, res)
				}
			}
		}
		if got := w.read("n"); failed != c.failed || string(got["n"]) != c.n {
			t.Errorf("%s: %d failed, n is %s", c.level, failed, got["n"])
		}
		numbers := map[uint32]bool{}
		for _, res := range results {
			if numbers[res.TurnNumber] {
				t.Errorf("two turns have number %d", res.TurnNumber)
			}
			numbers[res.TurnNumber] = true
		}
	}
}

// stateless is a store whose streams of one state cannot be read while down returns an error.
type stateless struct {
	runtime.Store
	down func(context.Context) error
}

func (s stateless) Attachment(ctx context.Context, kind chain.AttachmentKind, key []byte) ([]byte, error) {
	scope := keyspace.ScopeStream("session", "helper\x00s")
	if bytes.HasPrefix(key, scope[:]) {
		if err := s.down(ctx); err != nil {
			return nil, err
		}
	}
	return s.Store.Attachment(ctx, kind, key)
}

// TestTurnStaysAsItIsWhereItsStateCannotBeReadNow: the store is not at hand when the turn begins to
// make its calls, or the caller has left. The turn goes on when it is resumed.
func TestTurnStaysAsItIsWhereItsStateCannotBeReadNow(t *testing.T) {
	for _, leaves := range []bool{false, true} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		down := false
		w := newWorld(t, func(w *world) {
			w.wrap = func(s runtime.Store) runtime.Store {
				return stateless{s, func(ctx context.Context) error {
					if down && leaves {
						cancel()
						return ctx.Err()
					} else if down {
						return tga.Errorf(tga.StoreUnavailable, "the database is restarted")
					}
					return nil
				}}
			}
		})
		down = true
		id := newID()
		if res, err := w.r.Run(ctx, turn.Request{Agent: "helper", InteractionID: id, SessionID: "s", Message: []byte("call count {}")}); err == nil {
			t.Errorf("leaves %v: %+v", leaves, res)
		}
		down = false
		if res, err := w.r.Resume(t.Context(), id); err != nil || res.Status != turn.Completed || res.Text != `tools said {"n":1}` {
			t.Errorf("leaves %v: %+v, %v", leaves, res, err)
		}
	}
}

// TestWhatNoLongerFitsIsSummarized, once: the summary is a governed question like any other.
func TestWhatNoLongerFitsIsSummarized(t *testing.T) {
	w := newWorld(t, func(w *world) {
		w.agents[0].Memory = message.Memory{Window: 4, Tokens: 200, Strategy: message.Summarize}
		w.options = func(o *turn.Options) { o.Tokens = func(message.Message) int { return 1 } }
	})
	var last turn.Question
	summaries := 0
	w.say = func(q turn.Question) (turn.Answer, error) {
		if strings.HasPrefix(q.System, "Summarize") {
			summaries++
			return turn.Answer{Said: message.TextMessage(message.Assistant, "they counted", message.FromModel, 0), Finish: turn.FinishStop, Usage: turn.Usage{Total: 3}}, nil
		}
		last = q
		return obedient(q)
	}
	for i := range 3 {
		w.run(fmt.Sprint("done ", i))
	}
	var got []string
	for _, m := range last.Messages {
		got = append(got, m.Plain())
	}
	if summaries == 0 || len(got) > 4 || !strings.Contains(strings.Join(got, "|"), "they counted") || got[len(got)-1] != "done 2" {
		t.Errorf("%d summaries, %q", summaries, got)
	}
	before := sum(w.out.requests)
	if res := w.run("done 3"); res.Usage.Total != 18 || sum(w.out.requests) != before+2 {
		t.Errorf("%+v, %d requests more", res.Usage, sum(w.out.requests)-before)
	}
}

// TestFailedTurnRollsItsStateBack: the effects of its tools stand and are listed.
func TestFailedTurnRollsItsStateBack(t *testing.T) {
	w := newWorld(t, func(w *world) {
		w.agents[0].Handlers = []turn.Handler{{Codes: []tga.Code{tga.ToolError}, Strategy: turn.Abort}}
	})
	w.tool("broken", func(context.Context, string) (string, error) { return "", errors.New("no") })
	res := w.run("call count {}\ncall broken {}")
	if res.Status != turn.Unsuccessful || res.Failure.Code != tga.ToolError || len(res.Effects) != 2 || res.Effects[0].Status != turn.ToolSucceeded {
		t.Fatalf("%+v", res)
	}
	if got := w.read("n", "log"); len(got) != 0 {
		t.Errorf("state %s", got)
	}
	// A tool whose failure does not fail the turn leaves none of its own changes.
	w.agents[0].Handlers = nil
	w.tool("half", func(ctx context.Context, args string) (string, error) {
		if _, err := count(ctx, args); err != nil {
			return "", err
		}
		return "", errors.New("no")
	})
	if res := w.run("call half {}\ncall count {}"); res.Status != turn.Completed {
		t.Fatalf("%+v", res)
	}
	if got := w.read("n", "log"); string(got["n"]) != "1" || string(got["log"]) != "[{}]" {
		t.Errorf("state %s", got)
	}
}

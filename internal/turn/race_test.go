package turn_test

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/internal/turn/message"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// beside is a store that runs a function once before it gives a lease.
type beside struct {
	runtime.Store
	id tga.ID
	do func()
}

func (s *beside) Acquire(ctx context.Context, id tga.ID) (chain.Lease, error) {
	if do := s.do; do != nil && id == s.id {
		s.do = nil
		do()
	}
	return s.Store.Acquire(ctx, id)
}

// TestSameTurnAskedForAtOnceIsBegunOnce: the second request finds no turn yet, and gets the lease
// when the first has run the turn. It returns that turn's result and overwrites nothing.
func TestSameTurnAskedForAtOnceIsBegunOnce(t *testing.T) {
	var s *beside
	w := newWorld(t, func(w *world) {
		w.wrap = func(store runtime.Store) runtime.Store { s = &beside{Store: store}; return s }
	})
	q := turn.Request{Agent: "helper", InteractionID: newID(), SessionID: "s", Message: []byte("call count {}")}
	var first turn.Result
	s.id, s.do = q.InteractionID, func() {
		var err error
		if first, err = w.r.Run(t.Context(), q); err != nil {
			t.Error(err)
		}
	}
	second, err := w.r.Run(t.Context(), q)
	if err != nil || second.Text != first.Text || second.Turns != 2 || second.TurnNumber != first.TurnNumber {
		t.Errorf("first %+v, second %+v, %v", first, second, err)
	}
	if sum(w.out.requests) != 2 || sum(w.out.sends) != 1 {
		t.Errorf("%d questions, %d sends", sum(w.out.requests), sum(w.out.sends))
	}
	if records, err := w.r.Records(t.Context(), q.InteractionID); err != nil || len(records) != 8 {
		t.Errorf("%d records, %v", len(records), err)
	}
}

// TestTurnThatAnotherHasEndedIsRead: a turn is resumed twice at once, and the second gets the
// lease when the whole chain is over.
func TestTurnThatAnotherHasEndedIsRead(t *testing.T) {
	var s *beside
	w := newWorld(t, func(w *world) {
		w.supervisor = asks("echo")
		w.wrap = func(store runtime.Store) runtime.Store { s = &beside{Store: store}; return s }
	})
	res := w.run("call echo {}")
	if err := approvals["settle"](w, res.Waiting); err != nil {
		t.Fatal(err)
	}
	s.id, s.do = res.InteractionID, func() {
		if _, err := w.r.Resume(t.Context(), res.InteractionID); err != nil {
			t.Error(err)
		}
	}
	if end, err := w.r.Resume(t.Context(), res.InteractionID); err != nil || end.Turns != 2 || end.Text != "tools said {}" {
		t.Errorf("%+v, %v", end, err)
	}
}

// refusing is a store that refuses one append: the one with a record of PERSIST.
type refusing struct {
	runtime.Store
	mu   sync.Mutex
	done bool
}

func (s *refusing) Append(ctx context.Context, lease chain.Lease, b chain.Batch) (chain.Appended, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range b.Attachments {
		if !s.done && bytes.Contains(a.Value, []byte(`"phase":"persist"`)) {
			s.done = true
			return chain.Appended{}, tga.Errorf(tga.LimitExceeded, "the batch is too large")
		}
	}
	return s.Store.Append(ctx, lease, b)
}

// TestRefusedCommitIsInNoRecord: if the store refuses the turn's state, the turn has failed, and
// no record says that the state was persisted.
func TestRefusedCommitIsInNoRecord(t *testing.T) {
	w := newWorld(t, func(w *world) {
		w.wrap = func(s runtime.Store) runtime.Store { return &refusing{Store: s} }
	})
	res := w.run("call count {}")
	if res.Status != turn.Unsuccessful || res.Failure.Code != tga.GenericStateError || len(res.Effects) != 1 || len(res.Transactions) != 0 {
		t.Errorf("%+v", res)
	}
	records, err := w.r.Records(t.Context(), res.InteractionID)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		if r.Phase == turn.Persist && r.Kind == turn.Done {
			t.Errorf("record %d says that it was persisted: %s", r.Number, r.Body)
		}
	}
	if got := w.read("n"); got["n"] != nil {
		t.Errorf("state %s", got)
	}
}

// TestTokensOfEarlierQuestionsAreCountedAfterACrash: the tokens of a summary, and of a question
// with an unusable answer.
func TestTokensOfEarlierQuestionsAreCountedAfterACrash(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	w := newWorld(t)
	n := 0
	w.say = func(q turn.Question) (turn.Answer, error) {
		switch n++; n {
		case 1:
			a, err := obedient(q)
			a.Said.Role = message.User
			return a, err
		case 2:
			cancel()
			return turn.Answer{}, ctx.Err()
		}
		return obedient(q)
	}
	id := newID()
	if _, err := w.r.Run(ctx, turn.Request{Agent: "helper", InteractionID: id, SessionID: "s", Message: []byte("done x")}); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	w.restart()
	res, err := w.r.Resume(t.Context(), id)
	if err != nil || res.Text != "x" || res.Usage.Total != 30 || n != 3 {
		t.Errorf("%+v, %v, asked %d times", res, err, n)
	}
}

// TestSecondAttemptWaitsForAnApprovalOfItsOwn: the first attempt was approved and failed in a way
// that may be tried again. The turn then names the second attempt as what it waits for.
func TestSecondAttemptWaitsForAnApprovalOfItsOwn(t *testing.T) {
	w := newWorld(t, func(w *world) { w.supervisor = asks("echo") })
	w.fails["echo"] = func(n int) (runtime.Reply, error) {
		if n > 1 {
			return runtime.Reply{}, nil
		}
		return runtime.Reply{Status: tga.StatusFailure, Class: ledger.ClassRetryable, ErrorCode: "TOOL_ERROR", ErrorMessage: "busy"}, nil
	}
	res := w.run("call echo {}")
	first := res.Waiting.TraceID
	if err := approvals["settle"](w, res.Waiting); err != nil {
		t.Fatal(err)
	}
	res, err := w.r.Resume(t.Context(), res.InteractionID)
	if err != nil || res.Status != turn.Waiting || res.Waiting.TraceID == first {
		t.Fatalf("%+v, %+v, %v", res, res.Waiting, err)
	}
	w.restart()
	if err := approvals["settle"](w, res.Waiting); err != nil {
		t.Fatal(err)
	}
	if end, err := w.r.Resume(t.Context(), res.InteractionID); err != nil || end.Text != "tools said {}" || sum(w.out.sends) != 2 {
		t.Errorf("%+v, %v", end, err)
	}
}

// TestWhoWaitsNowIsTold: a delegate waits in one of its turns, and then in the next. The result
// names the turn that waits now.
func TestWhoWaitsNowIsTold(t *testing.T) {
	w := newWorld(t, delegating(turn.Delegation{Type: turn.Supervisor}), func(w *world) {
		w.supervisor = asks("echo")
		w.say = func(q turn.Question) (turn.Answer, error) {
			if last := q.Messages[len(q.Messages)-1]; q.Model == "expert" && last.Plain() == `{"n":1}` {
				q.Messages = []message.Message{message.TextMessage(message.User, "call echo {\"n\":2}", message.FromUser, 0)}
			}
			return obedient(q)
		}
	})
	res := w.run(`call ask {"message":"call echo {\"n\":1}"}`)
	for n := range 2 {
		if res.Status != turn.Waiting || res.Waiting.TraceID.IsZero() {
			t.Fatalf("wait %d: %+v, %+v", n+1, res, res.Waiting)
		}
		w.restart()
		if err := approvals["settle"](w, res.Waiting); err != nil {
			t.Fatalf("wait %d: %v", n+1, err)
		}
		var err error
		if res, err = w.r.Resume(t.Context(), res.InteractionID); err != nil {
			t.Fatal(err)
		}
	}
	if res.Status != turn.Completed || sum(w.out.sends) != 2 {
		t.Errorf("%+v", res)
	}
}

// TestNoTurnFollowsForATurnThatIsOver: the delegate has done its work, and a person is to confirm
// its next turn or has confirmed it. Nobody needs that turn any more.
func TestNoTurnFollowsForATurnThatIsOver(t *testing.T) {
	for _, confirmed := range []bool{false, true} {
		w := newWorld(t, delegating(turn.Delegation{Type: turn.Supervisor}))
		w.agents[1].Chain.Confirm = true
		res := w.run(`call ask {"message":"call echo {}"}`)
		if res.Status != turn.Waiting || res.Waiting.Phase != turn.Emit {
			t.Fatalf("%+v, %+v", res, res.Waiting)
		}
		if confirmed {
			if err := w.r.Decide(t.Context(), res.Waiting.InteractionID, turn.Decision{Who: "ann", Action: turn.Retry}); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.r.Decide(t.Context(), res.InteractionID, turn.Decision{Who: "ann", Action: turn.Abort}); err != nil {
			t.Fatal(err)
		}
		if end, err := w.r.Resume(t.Context(), res.InteractionID); err != nil || end.Status != turn.Unsuccessful {
			t.Fatalf("%+v, %v", end, err)
		}
		asked := sum(w.out.requests)
		if _, err := w.r.Recover(t.Context()); err != nil {
			t.Errorf("confirmed %v: %v", confirmed, err)
		}
		if open, err := w.r.OpenTurns(t.Context()); err != nil || len(open) != 0 || sum(w.out.requests) != asked {
			t.Errorf("confirmed %v: open %v, %v, asked %d times more", confirmed, open, err, sum(w.out.requests)-asked)
		}
	}
}

package runtime_test

import (
	"context"
	"testing"
	"time"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// vouching is a store whose answer to the question before a send the test gives; it is then nil.
type vouching struct {
	runtime.Store
	current func(is bool) bool
}

func (s *vouching) Current(lease chain.Lease) bool {
	is := s.Store.Current(lease)
	if f := s.current; f != nil {
		s.current = nil
		return f(is)
	}
	return is
}

// TestStoreThatCannotAnswerBeforeASend: the store cannot say before a send whether the run still has its lease.
// The run sends nothing and records that, so the same call made again is sent. If an earlier attempt may have
// run, the call stays in doubt because of that attempt alone.
func TestStoreThatCannotAnswerBeforeASend(t *testing.T) {
	for _, attempt := range []int{1, 2} {
		policy := licence(ledger.DedupeArgs)
		policy.Resends = -1
		b := setup(t, policy)
		away := func(bool) bool { return false }
		store := &vouching{Store: b.db, current: away}
		b.store = store
		b.start()
		if attempt == 2 {
			store.current, b.tool.answer = nil, unknown
		}
		res, err := b.call(charge("order-1"))
		if attempt == 2 {
			wantCode(t, err, tga.EffectInDoubt)
			store.current, b.tool.answer = away, nil
			res, err = b.rt.Recover(t.Context(), res.TraceID)
			wantCode(t, err, tga.EffectInDoubt)
			if got := b.wantState(res.TraceID, tga.Executing); got.Attempts != 2 || got.Sent != 1 {
				t.Errorf("%d attempts, %d of them may have been sent", got.Attempts, got.Sent)
			}
		} else if err != nil || res.State != tga.Failed || res.Class != ledger.ClassNotSent {
			t.Errorf("%+v, %v", res, err)
		}
		b.wantSends(attempt - 1)
		b.mustCall(charge("order-1"))
		b.wantSends(attempt)
	}
}

// TestSendWaitsForNoQuestion: the question to the store before a send takes so long that the window of the
// licence, or the deadline of the call, is over. Nothing is sent.
func TestSendWaitsForNoQuestion(t *testing.T) {
	policy := licence(ledger.DedupeKey)
	policy.Resends = -1
	b := setup(t, policy)
	store := &vouching{Store: b.db}
	b.store = store
	b.start()
	b.tool.answer = unknown
	res, err := b.call(charge("window"))
	wantCode(t, err, tga.EffectInDoubt)
	long := func(is bool) bool {
		b.advance(2 * time.Hour)
		return is
	}
	store.current = long
	_, err = b.rt.Recover(context.Background(), res.TraceID)
	wantCode(t, err, tga.EffectInDoubt)
	b.wantSends(1)

	req := charge("deadline")
	req.Deadline = b.clock().Add(time.Hour)
	store.current = long
	res, err = b.call(req)
	if err != nil || res.State != tga.Failed || res.ErrorCode != tga.ToolTimeout || res.Class != ledger.ClassNotSent {
		t.Errorf("%+v, %v", res, err)
	}
	b.wantSends(1)
}

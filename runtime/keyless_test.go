package runtime_test

import (
	"testing"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// TestReadCallOfAToolThatWritesNow: a read call without a key waits for people, or was decided before a crash, and the
// configuration says by now that its tool writes. The call ends and is not sent: a write call needs a key.
func TestReadCallOfAToolThatWritesNow(t *testing.T) {
	for _, crash := range []bool{false, true} {
		now := licence(ledger.ReadOnly)
		b := setup(t, now, needsApproval(1, 0), func(b *bench) {
			b.opts.Policy = func(string, string) runtime.Policy { return now }
		})
		req := charge("")
		req.Risk = tga.RiskRead
		res, err := b.call(req)
		wantCode(t, err, tga.EscalationRequired)
		if crash {
			b.store = &counted{Store: b.db, crashAt: 2}
			b.start()
			_, err = b.rt.Decide(t.Context(), res.TraceID, yes)
			wantCode(t, err, tga.StoreUnavailable)
			b.wantState(res.TraceID, tga.Authorized)
			b.store = b.db
			b.start()
		}
		now = park
		if crash {
			_, err = b.rt.Recover(t.Context(), res.TraceID)
		} else {
			_, err = b.rt.Decide(t.Context(), res.TraceID, yes)
		}
		wantCode(t, err, tga.IdempotencyKeyRequired)
		if got := b.wantState(res.TraceID, tga.Failed); got.ErrorCode != tga.IdempotencyKeyRequired {
			t.Errorf("crash %v: %+v", crash, got)
		}
		b.wantSends(0)
	}
}

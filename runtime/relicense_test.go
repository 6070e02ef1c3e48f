package runtime_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// relicensing is a doubt that was made under one licence, with another in force now.
func relicensing(t *testing.T, then, now ledger.LicenceKind) (*bench, tga.ID) {
	t.Helper()
	policy := licence(then)
	policy.Resends = -1
	b := setup(t, runtime.Policy{}, func(b *bench) {
		b.opts.Policy = func(string, string) runtime.Policy { return policy }
	})
	b.tool.answer = func(n int, _ runtime.Call) (runtime.Reply, error) {
		if n == 1 {
			return runtime.Reply{}, errReset
		}
		return ok(`"paid"`), nil
	}
	res, err := b.call(charge("order-1"))
	wantCode(t, err, tga.EffectInDoubt)
	policy = licence(now)
	policy.Resends = -1
	b.reopen()
	return b, res.TraceID
}

var said = runtime.Relicensing{Who: "ann", Reason: "the provider honours keys"}

func dry(r runtime.Relicensing) runtime.Relicensing {
	r.DryRun = true
	return r
}

// TestRelicensingFollowsTheTable: if the current licence allows more than that of the attempt, it decides
// about the call; otherwise nothing is written. A dry run reports the same and changes nothing.
func TestRelicensingFollowsTheTable(t *testing.T) {
	serial.Test(t)
	allows := map[ledger.LicenceKind]int{ledger.Park: 0, ledger.Probe: 1, ledger.DedupeKey: 2, ledger.DedupeArgs: 2}
	for _, then := range kinds {
		for _, now := range kinds {
			t.Run(fmt.Sprintf("%v,%v", then, now), func(t *testing.T) {
				b, id := relicensing(t, then, now)
				// A call that was made as a read has no licence in the log, and one that was made as a write
				// is not covered by read_only.
				want := ""
				if then != ledger.ReadOnly && allows[now] > allows[then] {
					want = []string{"", "probe", "resend"}[allows[now]]
				}
				before := b.wantState(id, tga.Executing)
				done, err := b.rt.Relicense(t.Context(), id, dry(said))
				if want == "" {
					wantCode(t, err, tga.StateInvalidTransition)
				} else if err != nil || done.Next != want || done.Was == done.Now || done.Was == "" || done.Now == "" {
					t.Errorf("dry run: %+v, %v, want %s", done, err, want)
				}
				if after := b.wantState(id, tga.Executing); after.Attempts != before.Attempts || b.notes(id, tga.NoteLicence) != 0 {
					t.Errorf("a dry run left %+v", after)
				}
				b.wantSends(1)
				done, err = b.rt.Relicense(t.Context(), id, said)
				switch want {
				case "":
					wantCode(t, err, tga.StateInvalidTransition)
					b.wantSends(1)
				case "probe": // nobody can be asked here
					wantCode(t, err, tga.EffectInDoubt)
					b.wantSends(1)
				case "resend":
					if err != nil || done.Result.State != tga.Completed || done.Next != want {
						t.Errorf("%+v, %v", done, err)
					}
					b.wantSends(2)
				}
				if n := b.notes(id, tga.NoteLicence); (n == 1) != (want != "") || n > 1 {
					t.Errorf("%d notes about licences", n)
				}
			})
		}
	}
}

// TestRelicensedDoubtIsSentOnce: the call is sent once, and the log has who decided this, why, and which
// licence it is. The decision also holds for a later attempt: nobody has to repeat it.
func TestRelicensedDoubtIsSentOnce(t *testing.T) {
	b, id := relicensing(t, ledger.Park, ledger.DedupeArgs)
	if _, err := b.rt.Relicense(t.Context(), id, said); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := b.rt.Recover(t.Context(), id); err != nil {
			t.Error(err)
		}
		_, err := b.rt.Relicense(t.Context(), id, said)
		wantCode(t, err, tga.StateInvalidTransition)
	}
	b.wantSends(2)
	for n, err := range b.db.Notes(t.Context(), id, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if n.Kind == tga.NoteLicence && (n.Who != "ann" || string(n.Body) != `{"attempt":1,"licence":"dedupe_args","reason":"the provider honours keys"}`) {
			t.Errorf("note by %s: %s", n.Who, n.Body)
		}
	}

	b, id = relicensing(t, ledger.Park, ledger.DedupeArgs)
	again := b.tool.answer
	b.tool.answer = unknown
	_, err := b.rt.Relicense(t.Context(), id, said)
	wantCode(t, err, tga.EffectInDoubt)
	b.wantSends(2)
	b.tool.answer = again
	b.reopen()
	if res, err := b.rt.Recover(t.Context(), id); err != nil || res.State != tga.Completed {
		t.Errorf("%+v, %v", res, err)
	}
	b.wantSends(3)
}

// TestCrashWhileRelicensing: before the decision is on disk, nobody sends anything. Once it is, the decision
// holds, and a call that was not sent is sent once.
func TestCrashWhileRelicensing(t *testing.T) {
	serial.Test(t)
	for _, c := range []struct {
		append int // note, mark, effect
		after  bool
		sends  int
		end    tga.State
	}{
		{1, false, 1, tga.Executing}, {1, true, 2, tga.Completed}, {2, false, 2, tga.Completed}, {2, true, 2, tga.Completed},
		{3, false, 3, tga.Completed}, // sent, and licensed to be sent again
		{3, true, 2, tga.Completed},
	} {
		t.Run(fmt.Sprintf("append %d,after=%v", c.append, c.after), func(t *testing.T) {
			b, id := relicensing(t, ledger.Park, ledger.DedupeArgs)
			b.store = &counted{Store: b.db, crashAt: c.append, after: c.after}
			b.start()
			if _, err := b.rt.Relicense(t.Context(), id, said); err == nil {
				t.Error("it says that it is done")
			}
			b.store = nil
			b.reopen()
			for range 2 {
				_, err := b.rt.Recover(t.Context(), id)
				if c.end == tga.Executing {
					wantCode(t, err, tga.EffectInDoubt)
				} else if err != nil {
					t.Error(err)
				}
			}
			b.wantState(id, c.end)
			b.wantSends(c.sends)
		})
	}
}

// TestRelicensingIsRefused: it is refused for a call that is not in doubt, that somebody may be sending, or that
// the store may have lost, and without a name or a reason.
func TestRelicensingIsRefused(t *testing.T) {
	b, id := relicensing(t, ledger.Park, ledger.DedupeArgs)
	for reason, taken := range map[string]bool{"": false, "x": true, strings.Repeat("é", 500): true, strings.Repeat("é", 501): false} {
		if _, err := b.rt.Relicense(t.Context(), id, runtime.Relicensing{Who: "ann", Reason: reason, DryRun: true}); (err == nil) != taken {
			t.Errorf("a reason of %d bytes: %v", len(reason), err)
		}
	}
	_, err := b.rt.Relicense(t.Context(), id, runtime.Relicensing{Reason: "x"})
	wantCode(t, err, tga.ValidationError)
	_, err = b.rt.Relicense(t.Context(), newID(), said)
	wantCode(t, err, tga.NotFound)
	done := b.mustCall(charge("done"))
	_, err = b.rt.Relicense(t.Context(), done.TraceID, said)
	wantCode(t, err, tga.StateInvalidTransition)
	lease, err := b.db.Acquire(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.rt.Relicense(t.Context(), id, said)
	wantCode(t, err, tga.StateLockAcquireFailed)
	b.db.Release(lease)
	b.wantSends(2)

	b, id = relicensing(t, ledger.Park, ledger.DedupeArgs)
	b.restore(time.Hour, func() {})
	_, err = b.rt.Relicense(t.Context(), id, said)
	wantCode(t, err, tga.StateInvalidTransition)
	b.wantSends(1)
}

// TestRelicensedCallOfAnExecutor: the daemon sends nothing; the next Begin gets a new attempt. While a permit is
// fresh, relicensing is refused.
func TestRelicensedCallOfAnExecutor(t *testing.T) {
	policy := park
	b := setup(t, runtime.Policy{}, func(b *bench) {
		b.opts.Policy = func(string, string) runtime.Policy { return policy }
	})
	begun := b.begin("order-1", "begin-1")
	id := begun.Result.TraceID
	policy = licence(ledger.DedupeArgs)
	_, err := b.rt.Relicense(t.Context(), id, said)
	wantCode(t, err, tga.StateLockAcquireFailed)
	b.advance(time.Hour)
	b.wantStanding(b.begin("order-1", "begin-2"), runtime.BeginInDoubt)
	done, err := b.rt.Relicense(t.Context(), id, said)
	if err != nil || done.Next != "begin" || done.Result.State != tga.Executing {
		t.Fatalf("%+v, %v", done, err)
	}
	b.wantSends(0)
	next := b.begin("order-1", "begin-3")
	b.wantStanding(next, runtime.BeginSend)
	if next.Attempt != 2 {
		t.Errorf("attempt %d", next.Attempt)
	}
}

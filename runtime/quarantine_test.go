package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// restore backs the store up, goes on, and puts the backup into service. Then everything after
// the backup is lost, as far as this store can tell.
func (b *bench) restore(later time.Duration, lost func()) {
	b.t.Helper()
	ctx := context.Background()
	backup, dir := b.t.TempDir()+"/backup", b.t.TempDir()+"/store"
	if err := b.db.Backup(ctx, backup); err != nil {
		b.t.Fatal(err)
	}
	lost()
	b.close()
	if err := engine.Restore(b.t.Context(), backup, dir, engine.Options{Clock: b.clock}); err != nil {
		b.t.Fatal(err)
	}
	b.dir = dir
	b.advance(later)
	b.open()
	_, err := b.call(charge("while-frozen"))
	wantCode(b.t, err, tga.StoreUnavailable)
	if err := b.db.Unfreeze(ctx, true, "ann"); err != nil {
		b.t.Fatal(err)
	}
}

// TestRestoredStoreSendsNothingItMayHaveSent: the calls that a backup shows as unsent,
// in doubt or never made may all have been made since.
func TestRestoredStoreSendsNothingItMayHaveSent(t *testing.T) {
	serial.Test(t)
	for _, kind := range []ledger.LicenceKind{ledger.Park, ledger.DedupeKey, ledger.DedupeArgs} {
		t.Run(kind.String(), func(t *testing.T) {
			b := setup(t, licence(kind), func(b *bench) { b.sup = &impure{} })
			ctx := context.Background()
			settled := b.mustCall(charge("settled"))

			pending := charge("pending")
			pending.TraceID = newID()
			b.store = &counted{Store: b.db, crashAt: 1, after: true}
			b.start()
			_, err := b.call(pending)
			wantCode(t, err, tga.StoreUnavailable)

			doubtful := charge("in-doubt")
			doubtful.TraceID = newID()
			b.store = &counted{Store: b.db, crashAt: 3}
			b.start()
			_, err = b.call(doubtful)
			wantCode(t, err, tga.StoreUnavailable)
			b.store = b.db
			b.start()

			b.restore(time.Second, func() { b.mustCall(charge("lost")) })
			b.wantSends(3)

			if _, err := b.rt.RecoverAll(ctx, 1); err != nil {
				t.Fatal(err)
			}
			_, err = b.call(charge("lost"))
			wantCode(t, err, tga.EffectInDoubt)
			if again := b.mustCall(charge("settled")); again.ServedFrom != settled.TraceID {
				t.Errorf("settled %+v", again)
			}
			b.wantSends(3)
			b.wantState(doubtful.TraceID, tga.Executing)

			// The caller vouches for a key: only the call with this key is sent.
			fresh := charge("fresh")
			fresh.Fresh = true
			b.mustCall(fresh)
			b.wantSends(4)
			b.reopen()
			if _, err := b.rt.RecoverAll(ctx, 1); err != nil {
				t.Fatal(err)
			}
			b.wantSends(4)

			// The operator ends the quarantine after checking what may have been lost.
			if err := b.db.EndQuarantine(ctx, "ann"); err != nil {
				t.Fatal(err)
			}
			if res, err := b.rt.Recover(ctx, pending.TraceID); err != nil || res.State != tga.Completed {
				t.Errorf("pending %+v, %v", res, err)
			}
			b.wantSends(5)
		})
	}
}

func TestReadCallsGoOnInQuarantine(t *testing.T) {
	b := setup(t, licence(ledger.ReadOnly))
	b.restore(time.Second, func() {})
	if res := b.mustCall(runtime.Request{Server: "payments", Tool: "balance"}); res.State != tga.Completed {
		t.Errorf("%+v", res)
	}
	b.wantSends(1)
}

// TestQuarantineCoversCallsOfTheSameMillisecond is about a bug that random commands which restore
// a backup showed: a call begun in the millisecond of the unfreeze, or by a clock ahead of the
// restoring machine's, counted as begun after the loss and was sent again.
func TestQuarantineCoversCallsOfTheSameMillisecond(t *testing.T) {
	for _, later := range []time.Duration{0, -30 * time.Second} {
		b := setup(t, licence(ledger.DedupeKey))
		b.tool.answer = unknown
		b.opts.Policy = func(string, string) runtime.Policy {
			p := licence(ledger.DedupeKey)
			p.Resends = -1
			return p
		}
		b.start()
		res, err := b.call(charge("k"))
		wantCode(t, err, tga.EffectInDoubt)
		b.restore(later, func() {})
		b.advance(time.Minute)
		_, err = b.rt.Recover(t.Context(), res.TraceID)
		wantCode(t, err, tga.EffectInDoubt)
		b.wantSends(1)
	}
}

// TestNotSentBeforeALossIsNoProof: the log says that nothing was sent under a key, but a later
// attempt may be lost with the rest of the log.
func TestNotSentBeforeALossIsNoProof(t *testing.T) {
	b := setup(t, park)
	b.tool.answer = downUntil(2)
	if failed := b.mustCall(charge("k")); failed.Class != ledger.ClassNotSent {
		t.Fatalf("%+v", failed)
	}
	b.restore(time.Second, func() { b.mustCall(charge("k")) })
	b.wantSends(2)
	_, err := b.call(charge("k"))
	wantCode(t, err, tga.EffectInDoubt)
	b.wantSends(2)
}

// TestFreshCallOfTheFirstMillisecondGoesOn: the quarantine begins after every call that was begun before
// it. So a call of its first millisecond was begun in the quarantine, and does not count as a lost call.
func TestFreshCallOfTheFirstMillisecondGoesOn(t *testing.T) {
	p := licence(ledger.DedupeArgs)
	p.Resends = -1
	b := setup(t, p)
	b.restore(0, func() {})
	b.tool.answer = func(n int, c runtime.Call) (runtime.Reply, error) {
		if n == 1 {
			return unknown(n, c)
		}
		return ok(`1`), nil
	}
	fresh := charge("k")
	fresh.Fresh, fresh.TraceID = true, newID()
	_, err := b.call(fresh)
	wantCode(t, err, tga.EffectInDoubt)
	trace, err := b.db.Load(t.Context(), fresh.TraceID)
	if err != nil {
		t.Fatal(err)
	}
	if since, in := b.db.Quarantined(); !in || trace.Entries[0].TS != since {
		t.Fatalf("begun at %v, the quarantine began at %v", trace.Entries[0].TS, since)
	}
	if res, err := b.rt.Recover(t.Context(), fresh.TraceID); err != nil || res.State != tga.Completed {
		t.Errorf("%+v, %v", res, err)
	}
	b.wantSends(2)
}

// TestUsedKeyIsNotFresh: the log has a call with the key from before the loss, so whoever says that the key was
// never used is mistaken. A key that was first used in the quarantine is known.
func TestUsedKeyIsNotFresh(t *testing.T) {
	b := setup(t, park)
	b.tool.answer = func(n int, _ runtime.Call) (runtime.Reply, error) {
		if n == 2 {
			return ok(`"paid"`), nil
		}
		return runtime.Reply{}, errDial
	}
	b.mustCall(charge("k"))
	b.restore(time.Second, func() { b.mustCall(charge("k")) })
	b.wantSends(2)
	fresh := charge("k")
	fresh.Fresh = true
	_, err := b.call(fresh)
	wantCode(t, err, tga.EffectInDoubt)
	b.wantSends(2)
	fresh.Key = "another"
	for n := range 2 {
		if res := b.mustCall(fresh); res.Class != ledger.ClassNotSent {
			t.Errorf("%+v", res)
		}
		b.wantSends(3 + n)
	}
}

// TestQuarantineHandsOutNoPermitAgain: an executor asks again for an attempt from before a loss. Its permit is still fresh,
// but what became of the attempt may be among what is lost: the permit is not handed out again.
func TestQuarantineHandsOutNoPermitAgain(t *testing.T) {
	lost := map[string]func(*bench, runtime.Begun){
		"restored": func(b *bench, g runtime.Begun) {
			b.restore(time.Second, func() {
				if _, err := b.finish(g, ok(`"paid"`)); err != nil {
					t.Error(err)
				}
			})
		},
		"taken into service": func(b *bench, _ runtime.Begun) {
			if err := errors.Join(b.db.Freeze("the end of the log is gone"), b.db.Unfreeze(t.Context(), true, "ann")); err != nil {
				t.Error(err)
			}
		},
	}
	for how, lose := range lost {
		for _, kind := range []ledger.LicenceKind{ledger.Park, ledger.DedupeArgs} {
			t.Run(fmt.Sprint(how, ", ", kind), func(t *testing.T) {
				policy := licence(kind)
				policy.PermitTime = time.Hour
				b := setup(t, policy)
				lose(b, b.begin("k", "one"))
				b.wantStanding(b.begin("k", "one"), runtime.BeginWait)
				b.advance(policy.PermitTime)
				b.wantStanding(b.begin("k", "one"), runtime.BeginInDoubt)
			})
		}
	}
}

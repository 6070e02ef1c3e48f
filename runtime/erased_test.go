package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// sealing gives a bench a key ring.
func sealing(ring *chaintest.Ring) func(*bench) {
	return func(b *bench) { b.ring = ring }
}

// TestErasedCallIsNeverSentAgain: what its key led to cannot be served any more, whatever the
// licence; another request under the key is a conflict, and what a person asks about the trace is
// refused.
func TestErasedCallIsNeverSentAgain(t *testing.T) {
	serial.Test(t)
	for _, kind := range []ledger.LicenceKind{ledger.Park, ledger.Probe, ledger.DedupeKey, ledger.DedupeArgs, ledger.ReadOnly} {
		for name, change := range map[string][]func(*bench){"plain": nil, "sealed": {sealing(new(chaintest.Ring))}} {
			t.Run(kind.String()+", "+name, func(t *testing.T) {
				b := setup(t, licence(kind), change...)
				first := b.mustCall(charge("order-1"))
				b.mustCall(charge("order-2"))
				if _, err := b.db.Erase(t.Context(), engine.Erasure{Traces: []tga.ID{first.TraceID}, Who: "operator", Reason: "asked for"}); err != nil {
					t.Fatal(err)
				}
				for range 2 {
					_, err := b.call(charge("order-1"))
					wantCode(t, err, tga.IdempotencyKeyExpired)
					other := charge("order-1")
					other.Args = []byte(`{"amount":101}`)
					_, err = b.call(other)
					wantCode(t, err, tga.IdempotencyKeyConflict)
					if res, err := b.rt.Result(context.Background(), first.TraceID); err != nil || res.State != tga.Completed || res.Value != nil {
						t.Errorf("result %+v, %v", res, err)
					}
					if _, err := b.rt.Recover(context.Background(), first.TraceID); err == nil {
						t.Error("recovered")
					}
					b.reopen()
				}
				if again := b.mustCall(charge("order-2")); again.ServedFrom.IsZero() {
					t.Errorf("another call: %+v", again)
				}
				b.wantSends(2)
			})
		}
	}
}

// TestErasedCallThatWasNotSentFreesItsKey: a call that certainly did not run is erased. Its key is as free as before,
// for whoever may use it: any repeat after a call that was not sent, an explicit new attempt after a failure.
func TestErasedCallThatWasNotSentFreesItsKey(t *testing.T) {
	serial.Test(t)
	for class, reply := range map[ledger.Class]func(int, runtime.Call) (runtime.Reply, error){
		ledger.ClassNotSent:   func(int, runtime.Call) (runtime.Reply, error) { return runtime.Reply{}, errDial },
		ledger.ClassRetryable: func(int, runtime.Call) (runtime.Reply, error) { return didNotRun, nil },
	} {
		for name, change := range map[string][]func(*bench){"plain": nil, "sealed": {sealing(new(chaintest.Ring))}} {
			for _, archived := range []bool{false, true} {
				t.Run(fmt.Sprintf("%v, %s, archived %v", class, name, archived), func(t *testing.T) {
					b := setup(t, park, change...)
					b.tool.answer = reply
					first := b.mustCall(charge("order-1"))
					if first.Class != class {
						t.Fatalf("%+v", first)
					}
					if archived {
						b.archive()
					}
					b.erase(first.TraceID)
					b.tool.answer = nil
					b.reopen()
					sends := 1
					if class == ledger.ClassRetryable {
						_, err := b.call(charge("order-1"))
						wantCode(t, err, tga.IdempotencyKeyExpired)
						b.wantSends(sends)
					}
					again := charge("order-1")
					again.Retry = true
					if res := b.mustCall(again); res.State != tga.Completed || !res.ServedFrom.IsZero() {
						t.Errorf("%+v", res)
					}
					sends++
					b.wantSends(sends)
					if served := b.mustCall(charge("order-1")); served.ServedFrom.IsZero() {
						t.Errorf("%+v", served)
					}
					b.wantSends(sends)
				})
			}
		}
	}
}

// TestNothingIsSentWithoutItsKey: of a call in doubt whose key cannot be had, or was destroyed,
// nothing is sent, under a licence that would allow it too.
func TestNothingIsSentWithoutItsKey(t *testing.T) {
	ring := new(chaintest.Ring)
	b := setup(t, licence(ledger.DedupeArgs), sealing(ring))
	b.tool.answer = unknown
	_, err := b.call(charge("order-1"))
	wantCode(t, err, tga.EffectInDoubt)
	sends := b.tool.sends()
	b.tool.answer = func(int, runtime.Call) (runtime.Reply, error) { return ok(`{}`), nil }
	b.reopen()
	ring.Err = tga.Errorf(tga.StoreUnavailable, "the ring is down")
	_, err = b.call(charge("order-1"))
	wantCode(t, err, tga.StoreUnavailable)
	for range 2 {
		for o, err := range b.db.OpenTraces(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if _, err := b.rt.Recover(context.Background(), o.TraceID); err == nil {
				t.Error("recovered")
			}
		}
		b.wantSends(sends)
		ring.Err = nil
		if err := ring.Destroy(1); err != nil {
			t.Fatal(err)
		}
		b.reopen()
	}
	_, err = b.call(charge("order-1"))
	if err == nil {
		t.Error("called")
	}
	b.wantSends(sends)
}

// TestQuestionWhoseKeyCannotBeHad: what people are asked is sealed with its call. While the key
// cannot be had nobody's answer counts, and nothing is sent; once it is destroyed there is no question.
func TestQuestionWhoseKeyCannotBeHad(t *testing.T) {
	ring := new(chaintest.Ring)
	b := setup(t, park, needsApproval(1, 0), sealing(ring))
	ctx := context.Background()
	first, err := b.call(charge("order-1"))
	wantCode(t, err, tga.EscalationRequired)
	second, err := b.call(charge("order-2"))
	wantCode(t, err, tga.EscalationRequired)
	ring.Err = tga.Errorf(tga.StoreUnavailable, "the ring is down")
	_, err = b.rt.Decide(ctx, first.TraceID, vote("ann", true))
	wantCode(t, err, tga.StoreUnavailable)
	_, err = b.rt.Approvals(ctx)
	wantCode(t, err, tga.StoreUnavailable)
	b.wantSends(0)
	ring.Err = nil
	if all, err := b.rt.Approvals(ctx); err != nil || len(all) != 2 {
		t.Errorf("%d questions, %v", len(all), err)
	}
	// One that cannot be read does not hide the other, and is named.
	whose, err := b.db.Load(ctx, first.TraceID)
	if err != nil {
		t.Fatal(err)
	}
	ring.Lost = whose.Key
	all, err := b.rt.Approvals(ctx)
	var unread runtime.UnreadApprovals
	if wantCode(t, err, tga.StoreUnavailable); !errors.As(err, &unread) || len(unread) != 1 || unread[0].TraceID != first.TraceID || len(all) != 1 || all[0].TraceID != second.TraceID {
		t.Errorf("%+v, %v", all, err)
	}
	ring.Lost = 0
	if got, err := b.rt.Decide(ctx, first.TraceID, vote("ann", true)); err != nil || got.State != tga.Completed {
		t.Errorf("%+v, %v", got, err)
	}
	b.wantSends(1)
	trace, err := b.db.Load(ctx, second.TraceID)
	if err != nil {
		t.Fatal(err)
	}
	if err := ring.Destroy(trace.Key); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if all, err := b.rt.Approvals(ctx); err != nil || len(all) != 0 {
			t.Errorf("%d questions, %v", len(all), err)
		}
		if _, err = b.rt.Decide(ctx, second.TraceID, vote("ann", true)); err == nil {
			t.Error("a question that nobody can read was answered")
		}
		b.wantSends(1)
		b.reopen()
	}
}

// TestErasedKeptValues: what an executor keeps about a tool server is sealed under a key of its own, and
// erased for the server as a whole: then nothing is kept, and new values can be. While the key cannot be
// had nothing is read as absent and nothing is changed.
func TestErasedKeptValues(t *testing.T) {
	ring := new(chaintest.Ring)
	b := setup(t, park, sealing(ring))
	pin := runtime.KeepRequest{Server: "files", Name: "pin", Value: []byte("nobody reads this")}
	other := runtime.KeepRequest{Server: "files", Namespace: "tenant", Name: "pin", Value: []byte("this stays")}
	for _, r := range []runtime.KeepRequest{pin, other} {
		if _, changed, err := b.rt.Keep(t.Context(), r); err != nil || !changed {
			t.Fatalf("%v, %v", changed, err)
		}
	}
	kept := func(namespace string) (out []string, err error) {
		for k, err := range b.rt.Kept(t.Context(), namespace, "files", "") {
			if err != nil {
				return out, err
			}
			out = append(out, string(k.Value))
		}
		return out, nil
	}
	ring.Err = tga.Errorf(tga.StoreUnavailable, "the ring is down")
	_, _, err := b.rt.Keep(t.Context(), pin)
	wantCode(t, err, tga.StoreUnavailable)
	_, err = kept("")
	wantCode(t, err, tga.StoreUnavailable)
	ring.Err = nil
	done, err := b.db.Erase(t.Context(), engine.Erasure{Kept: []string{"files"}, Who: "operator", Reason: "asked for"})
	if err != nil || done.Kept != 1 || done.Keys != 1 {
		t.Fatalf("%+v, %v", done, err)
	}
	for range 2 {
		if got, err := kept(""); err != nil || len(got) != 0 {
			t.Errorf("kept: %q, %v", got, err)
		}
		if got, err := kept("tenant"); err != nil || len(got) != 1 || got[0] != "this stays" {
			t.Errorf("kept of another namespace: %q, %v", got, err)
		}
		b.reopen()
	}
	again := pin
	again.Value = []byte("new")
	if now, changed, err := b.rt.Keep(t.Context(), again); err != nil || !changed || string(now.Value) != "new" {
		t.Errorf("%q, %v, %v", now.Value, changed, err)
	}
	if got, err := kept(""); err != nil || len(got) != 1 || got[0] != "new" {
		t.Errorf("kept: %q, %v", got, err)
	}
	// What an executor has removed is erased too: its key is known although nothing says it any more.
	gone := other
	gone.Old, gone.Value = other.Value, nil
	if _, changed, err := b.rt.Keep(t.Context(), gone); err != nil || !changed {
		t.Fatalf("%v, %v", changed, err)
	}
	b.reopen()
	destroyed := len(ring.Destroyed)
	done, err = b.db.Erase(t.Context(), engine.Erasure{Kept: []string{"files"}, Namespace: "tenant", Who: "operator", Reason: "asked for"})
	if err != nil || done.Kept != 1 || done.Keys != 1 || len(ring.Destroyed) != destroyed+1 {
		t.Errorf("%+v, %v, destroyed %v", done, err, ring.Destroyed)
	}
	_, err = b.db.Erase(t.Context(), engine.Erasure{Kept: []string{"files"}, Namespace: "tenant", Who: "operator", Reason: "asked for"})
	wantCode(t, err, tga.NotFound)
}

// TestMissingKeyKeepsNoOther: one call whose data key is missing is told and left as it is, the others are taken up.
// Nothing is sent of it, also where its client asks again, and it goes on once the key is there.
func TestMissingKeyKeepsNoOther(t *testing.T) {
	ring := new(chaintest.Ring)
	b := setup(t, licence(ledger.DedupeArgs), sealing(ring))
	ctx := context.Background()
	b.tool.answer = unknown
	for _, key := range []string{"order-1", "order-2"} {
		_, err := b.call(charge(key))
		wantCode(t, err, tga.EffectInDoubt)
	}
	open, err := b.rt.Classify(ctx)
	if err != nil || len(open) != 2 {
		t.Fatalf("%+v, %v", open, err)
	}
	whose, err := b.db.Load(ctx, open[0].TraceID)
	if err != nil {
		t.Fatal(err)
	}
	lost, other := open[0], open[1]
	b.tool.answer = func(int, runtime.Call) (runtime.Reply, error) { return ok(`{}`), nil }
	b.reopen()
	ring.Lost = whose.Key
	sends := b.tool.sends()
	all, err := b.rt.RecoverAll(ctx, 2)
	if err != nil || len(all) != 2 {
		t.Fatalf("%+v, %v", all, err)
	}
	for _, r := range all {
		switch r.TraceID {
		case lost.TraceID:
			if wantCode(t, r.Err, tga.StoreUnavailable); !errors.Is(r.Classified.Err, chain.ErrKeyMissing) || r.State != tga.Executing || r.InDoubt {
				t.Errorf("%+v", r)
			}
		case other.TraceID:
			if r.Err != nil || r.Result.State != tga.Completed {
				t.Errorf("%+v", r)
			}
		}
	}
	_, err = b.call(charge(lost.Key))
	wantCode(t, err, tga.StoreUnavailable)
	b.wantSends(sends + 1)
	b.mustCall(charge("order-3"))
	ring.Lost = 0
	b.reopen()
	if all, err = b.rt.RecoverAll(ctx, 2); err != nil || len(all) != 1 || all[0].Err != nil || all[0].Result.State != tga.Completed {
		t.Errorf("%+v, %v", all, err)
	}
	b.wantSends(sends + 3)
}

// TestMissingKeyKeepsNoTimer: the timer of a call whose data key is missing is tried again, and the others are served meanwhile.
func TestMissingKeyKeepsNoTimer(t *testing.T) {
	ring := new(chaintest.Ring)
	b := setup(t, park, needsApproval(1, time.Hour), sealing(ring))
	ctx := context.Background()
	ids := make([]tga.ID, 2)
	for i, key := range []string{"order-1", "order-2"} {
		res, err := b.call(charge(key))
		wantCode(t, err, tga.EscalationRequired)
		ids[i] = res.TraceID
	}
	whose, err := b.db.Load(ctx, ids[0])
	if err != nil {
		t.Fatal(err)
	}
	b.reopen()
	ring.Lost = whose.Key
	b.advance(2 * time.Hour)
	if next, err := b.rt.FireTimers(ctx); err != nil || next <= tga.MillisOf(b.clock()) {
		t.Errorf("the next timer is at %v, %v", next, err)
	}
	states := func(want ...tga.State) {
		t.Helper()
		open := map[tga.ID]tga.State{}
		for o, err := range b.db.OpenTraces(ctx) {
			if err != nil {
				t.Fatal(err)
			}
			open[o.TraceID] = o.State
		}
		for i, id := range ids {
			if open[id] != want[i] {
				t.Errorf("trace %d is %s, want %s", i, open[id], want[i])
			}
		}
	}
	states(tga.Pending, tga.None) // the other one has expired
	ring.Lost = 0
	b.advance(time.Minute)
	if _, err := b.rt.FireTimers(ctx); err != nil {
		t.Error(err)
	}
	states(tga.None, tga.None)
	b.wantSends(0)
}

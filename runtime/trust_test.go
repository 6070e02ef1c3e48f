package runtime_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// world is the outside world, which the verifiers look at: resource ids and the finding about
// each.
type world struct {
	mu    sync.Mutex
	finds map[string]runtime.Finding // absent = exists
	fails map[string]error
	looks int
}

func (w *world) Verify(_ context.Context, c tga.StateChange) (runtime.Finding, runtime.Evidence, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looks++
	if err := w.fails[c.ResourceID]; err != nil {
		return runtime.CannotTell, runtime.Evidence{}, err
	}
	f, ok := w.finds[c.ResourceID]
	if !ok {
		f = runtime.Exists
	}
	return f, runtime.Evidence{Source: "look at " + c.ResourceID, Detail: []byte(`{"found":"` + f.String() + `"}`)}, nil
}

func (w *world) set(id string, f runtime.Finding) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.finds[id] = f
}

// changing is a bench whose tool changes the files a and b, and a resource without a
// verifier.
func changing(t *testing.T, p runtime.Policy) (*bench, *world) {
	w := &world{finds: map[string]runtime.Finding{}, fails: map[string]error{}}
	b := setup(t, p, func(b *bench) {
		b.tool.answer = func(int, runtime.Call) (runtime.Reply, error) {
			r := ok(`{"ok":true}`)
			for _, id := range []string{"a", "b"} {
				r.Changes = append(r.Changes, tga.StateChange{ResourceType: "file", ResourceID: id, Operation: "create"})
			}
			r.Changes = append(r.Changes, tga.StateChange{ResourceType: "dream", ResourceID: "c", Operation: "create"})
			return r, nil
		}
		b.opts.Trust.Verifier = func(kind string) runtime.Verifier {
			if kind == "file" {
				return w
			}
			return nil
		}
	})
	return b, w
}

func replay(key string) runtime.Request {
	req := charge(key)
	req.Replay = true
	return req
}

func (b *bench) record(key string) *ledger.Record {
	b.t.Helper()
	r, err := b.db.Record(context.Background(), ledger.Key{Namespace: tga.DefaultNamespace, Server: "payments", Tool: "charge", Key: key})
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

func (b *bench) notes(trace tga.ID, kind tga.NoteKind) int {
	b.t.Helper()
	n := 0
	for note, err := range b.db.Notes(context.Background(), trace, 0) {
		if err != nil {
			b.t.Fatal(err)
		}
		if note.Kind == kind {
			n++
		}
	}
	return n
}

func TestReplayIsConfirmedBeforeItIsServed(t *testing.T) {
	b, w := changing(t, park)
	first := b.mustCall(charge("k"))
	if len(first.Changes) != 3 || first.Confirmation != nil {
		t.Fatalf("first call: %+v", first)
	}
	plain := b.mustCall(charge("k"))
	if w.looks != 0 || plain.ServedFrom != first.TraceID {
		t.Errorf("a plain repeat was confirmed: %d looks, %+v", w.looks, plain)
	}
	b.advance(time.Minute)
	res := b.mustCall(replay("k"))
	c := res.Confirmation
	if c == nil || c.Checked != 2 || c.Unchecked != 1 || len(c.Mismatches) != 0 || c.EvidenceDigest.IsZero() {
		t.Errorf("confirmation %+v", c)
	}
	if r := b.record("k"); r.ConfirmedAt != tga.MillisOf(b.clock()) || r.EvidenceDigest != c.EvidenceDigest || r.Status != ledger.Settled {
		t.Errorf("record %+v", r)
	}
	if n := b.notes(first.TraceID, tga.NoteConfirmation); n != 1 {
		t.Errorf("%d confirmation notes", n)
	}
	// A recovery relies on the record too.
	if _, err := b.rt.Recover(t.Context(), first.TraceID); err != nil || w.looks != 4 {
		t.Errorf("recover: %v, %d looks", err, w.looks)
	}
	b.wantSends(1)
}

func TestMismatchByMode(t *testing.T) {
	strict, warn, human := park, park, park
	warn.Replay, human.Replay = runtime.ReplayWarn, runtime.ReplayHuman
	for name, p := range map[string]runtime.Policy{"strict": strict, "warn": warn, "human": human} {
		t.Run(name, func(t *testing.T) {
			b, w := changing(t, p)
			first := b.mustCall(charge("k"))
			w.set("a", runtime.Gone)
			w.fails["b"] = errors.New("the disk does not answer")
			res, err := b.call(replay("k"))
			switch name {
			case "strict":
				wantCode(t, err, tga.ConfirmationMismatch)
				if res.Value != nil {
					t.Errorf("served %s", res.Value)
				}
			case "warn":
				if err != nil || res.ServedFrom != first.TraceID || len(res.Confirmation.Mismatches) != 2 {
					t.Fatalf("%v, %+v", err, res.Confirmation)
				}
				if m := res.Confirmation.Mismatches; m[0].Finding != runtime.Gone || m[1].Finding != runtime.CannotTell || m[1].Reason == "" {
					t.Errorf("mismatches %+v", m)
				}
			case "human":
				wantCode(t, err, tga.ConfirmationRequired)
				b.wantState(res.TraceID, tga.Authorized)
			}
			if n := b.rt.Stats().Mismatches; n != 2 {
				t.Errorf("%d mismatches counted, want both", n)
			}
			if r := b.record("k"); r.ConfirmedAt != 0 {
				t.Errorf("a record that does not stand is confirmed: %+v", r)
			}
			if n := b.notes(first.TraceID, tga.NoteConfirmation); n != 1 {
				t.Errorf("%d confirmation notes", n)
			}
			b.wantSends(1)
		})
	}
}

// TestPersonAnswersForThisMismatchOnly: a person's answer decides whether the record is
// served, as long as the mismatch is the one that the person saw. The wait survives a restart.
func TestPersonAnswersForThisMismatchOnly(t *testing.T) {
	for _, approve := range []bool{true, false} {
		p := park
		p.Replay = runtime.ReplayHuman
		b, w := changing(t, p)
		first := b.mustCall(charge("k"))
		w.set("a", runtime.Changed)
		waiting, err := b.call(replay("k"))
		wantCode(t, err, tga.ConfirmationRequired)
		b.reopen()
		pending, err := b.rt.Approvals(t.Context())
		if err != nil || len(pending) != 1 || pending[0].Kind != runtime.AskConfirmation || pending[0].TraceID != first.TraceID {
			t.Fatalf("pending %+v, %v", pending, err)
		}
		_, err = b.rt.Decide(t.Context(), first.TraceID, runtime.Vote{Who: "ann", Approve: approve, Rationale: "looked at the file myself"})
		if err != nil {
			t.Fatal(err)
		}
		if approve {
			b.wantState(waiting.TraceID, tga.Completed)
			b.mustCall(replay("k"))
		} else {
			res := b.wantState(waiting.TraceID, tga.Failed)
			if res.ErrorCode != tga.ConfirmationMismatch {
				t.Errorf("rejected: %+v", res)
			}
			_, err = b.call(replay("k"))
			wantCode(t, err, tga.ConfirmationMismatch)
		}
		if pending, err := b.rt.Approvals(t.Context()); err != nil || len(pending) != 0 {
			t.Errorf("pending afterwards %+v, %v", pending, err)
		}
		w.set("a", runtime.Gone) // another mismatch than the one that was answered
		_, err = b.call(replay("k"))
		wantCode(t, err, tga.ConfirmationRequired)
		b.wantSends(1)
	}
}

func TestConfirmationHoldsForAWhile(t *testing.T) {
	p := park
	p.ConfirmAll, p.ConfirmEvery = true, time.Hour
	b, w := changing(t, p)
	b.mustCall(charge("k"))
	b.mustCall(charge("k"))
	looks := w.looks
	w.set("a", runtime.Gone)
	b.advance(time.Hour - time.Millisecond)
	if res := b.mustCall(charge("k")); w.looks != looks || !res.Confirmation.Skipped {
		t.Errorf("asked again within the hour: %+v", res.Confirmation)
	}
	b.advance(time.Millisecond)
	_, err := b.call(charge("k"))
	wantCode(t, err, tga.ConfirmationMismatch)
}

// prober is a tool server that can be asked about a call; answer says what its n-th answer is.
type prober struct {
	mu     sync.Mutex
	answer func(n int, c runtime.Call) (runtime.Probed, error)
	asked  int
}

func (p *prober) Probe(_ context.Context, c runtime.Call) (runtime.Probed, error) {
	p.mu.Lock()
	p.asked++
	n := p.asked
	p.mu.Unlock()
	return p.answer(n, c)
}

func probing(t *testing.T, l ledger.Licence, answer func(n int, c runtime.Call) (runtime.Probed, error)) (*bench, *prober) {
	l.Kind = ledger.Probe
	p := &prober{answer: answer}
	policy := runtime.Policy{Licence: l, LicenceSet: true, SendTimeout: time.Second, Probe: runtime.Backoff{First: time.Minute, Max: time.Hour}}
	b := setup(t, policy, func(b *bench) {
		b.tool.answer = unknown
		b.opts.Trust.Prober = func(string, string) runtime.Prober { return p }
	})
	return b, p
}

var found = runtime.Probed{Answer: ledger.ProbeRan, Reply: ok(`{"charge":"ch_1"}`), Evidence: runtime.Evidence{Source: "GET /charges?key=k", Detail: []byte(`{"id":"ch_1"}`)}}

func TestProbeRecordsWhatRan(t *testing.T) {
	b, _ := probing(t, ledger.Licence{}, func(int, runtime.Call) (runtime.Probed, error) { return found, nil })
	res := b.mustCall(charge("k"))
	if res.State != tga.Completed || string(res.Value) != `{"charge":"ch_1"}` {
		t.Fatalf("%+v", res)
	}
	trace, err := b.db.Load(t.Context(), res.TraceID)
	if err != nil || trace.Effect.Meta.String(tga.MetaResolvedBy) != "probe" || b.notes(res.TraceID, tga.NoteProbe) != 1 {
		t.Errorf("effect %+v, %v", trace.Effect.Meta, err)
	}
	evidence := ""
	for _, d := range trace.Documents {
		if d.Pointer == tga.PointerEvidence {
			evidence = string(d.Data)
		}
	}
	if evidence != `{"id":"ch_1"}` {
		t.Errorf("evidence %q", evidence)
	}
	b.wantSends(1)
	b.mustCall(charge("k"))
	b.wantSends(1)
}

// TestEvidenceOfAProbeIsBounded: evidence of 64 KiB is kept whole, with the effect and in the note.
// Of longer evidence the first 64 KiB are kept.
func TestEvidenceOfAProbeIsBounded(t *testing.T) {
	const most = 64 << 10
	for size, want := range map[int]int{most - 1: most - 1, most: most, most + 1: most} {
		said := found
		said.Evidence.Detail = bytes.Repeat([]byte("e"), size)
		b, _ := probing(t, ledger.Licence{}, func(int, runtime.Call) (runtime.Probed, error) { return said, nil })
		res := b.mustCall(charge("k"))
		trace, err := b.db.Load(t.Context(), res.TraceID)
		if err != nil {
			t.Fatal(err)
		}
		kept := -1
		for _, d := range trace.Documents {
			if d.Pointer == tga.PointerEvidence {
				kept = len(d.Data)
			}
		}
		digest := tga.Sum(said.Evidence.Detail[:want])
		noted, err := b.db.Attachment(t.Context(), chain.AttachBlob, keyspace.EvidenceKey(digest, res.TraceID))
		if kept != want || err != nil || len(noted) != want {
			t.Errorf("of %d bytes the effect keeps %d and the note %d, want %d; %v", size, kept, len(noted), want, err)
		}
	}
}

// TestNotRanIsSentAgainOnlyFenced: "did not run" may become false a moment later, unless
// the server refuses the old attempt from now on.
func TestNotRanIsSentAgainOnlyFenced(t *testing.T) {
	for _, fenced := range []bool{false, true} {
		b, p := probing(t, ledger.Licence{}, func(int, runtime.Call) (runtime.Probed, error) {
			return runtime.Probed{Answer: ledger.ProbeNotRan, Fenced: fenced}, nil
		})
		b.tool.answer = func(n int, _ runtime.Call) (runtime.Reply, error) {
			if n == 1 {
				return runtime.Reply{}, errReset
			}
			return ok(`{}`), nil
		}
		res, err := b.call(charge("k"))
		if fenced {
			if err != nil || res.State != tga.Completed || res.Attempts != 2 {
				t.Errorf("fenced: %+v, %v", res, err)
			}
			b.wantSends(2)
			continue
		}
		wantCode(t, err, tga.EffectInDoubt)
		b.wantSends(1)
		// Time does not fence it either: the operator attests no bound.
		for range 5 {
			b.advance(2 * time.Hour)
			if _, err := b.rt.FireTimers(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		b.reopen()
		b.advance(24 * time.Hour)
		if _, err := b.rt.FireTimers(t.Context()); err != nil {
			t.Fatal(err)
		}
		if p.asked < 7 {
			t.Errorf("asked %d times", p.asked)
		}
		b.wantSends(1)
		b.wantState(res.TraceID, tga.Executing)
	}
}

// TestNotRanIsFencedByTimeAfterItsSender: if the operator attests max_in_flight, "did not run"
// counts if the question came later than max_in_flight after the sender was known to be gone.
func TestNotRanIsFencedByTimeAfterItsSender(t *testing.T) {
	for _, restart := range []bool{false, true} {
		b, _ := probing(t, ledger.Licence{MaxInFlight: 10 * time.Minute}, func(int, runtime.Call) (runtime.Probed, error) {
			return runtime.Probed{Answer: ledger.ProbeNotRan}, nil
		})
		res, err := b.call(charge("k"))
		wantCode(t, err, tga.EffectInDoubt)
		b.tool.answer = nil
		if restart {
			b.advance(time.Hour) // nothing was known of the sender while nobody ran
			b.reopen()
			_, err := b.rt.Recover(t.Context(), res.TraceID)
			if first := b.notes(res.TraceID, tga.NoteProbe); first != 2 {
				t.Errorf("%d probe notes, %v", first, err)
			}
			b.wantSends(1)
		}
		b.advance(10 * time.Minute)
		_, err = b.rt.Recover(t.Context(), res.TraceID)
		wantCode(t, err, tga.EffectInDoubt) // exactly max_in_flight is not later
		b.wantSends(1)
		b.advance(time.Millisecond)
		if res, err := b.rt.Recover(t.Context(), res.TraceID); err != nil || res.State != tga.Completed {
			t.Errorf("restart %v: %+v, %v", restart, res, err)
		}
		b.wantSends(2)
	}
}

// TestResolverAsksUntilItKnows: in spite of delayed visibility, failing probes and a restart, the
// call ends with one effect and without a second send.
func TestResolverAsksUntilItKnows(t *testing.T) {
	b, p := probing(t, ledger.Licence{}, func(n int, _ runtime.Call) (runtime.Probed, error) {
		switch {
		case n == 1:
			return runtime.Probed{}, errors.New("timeout")
		case n < 4:
			return runtime.Probed{Answer: ledger.ProbeNotRan}, nil // not visible yet
		}
		return found, nil
	})
	res, err := b.call(charge("k"))
	wantCode(t, err, tga.EffectInDoubt)
	for i := 0; p.asked < 4 && i < 20; i++ {
		if i == 2 {
			b.reopen()
		}
		next, err := b.rt.FireTimers(t.Context())
		if err != nil || next == 0 && p.asked < 4 {
			t.Fatalf("after %d questions: next timer at %v, %v", p.asked, next, err)
		}
		b.advance(max(next.Time().Sub(b.clock()), 0))
	}
	b.wantState(res.TraceID, tga.Completed)
	b.wantSends(1)
	if next, err := b.rt.FireTimers(t.Context()); err != nil || next != 0 {
		t.Errorf("a timer is left: %v, %v", next, err)
	}
	if s := b.rt.Stats(); s.ResolvedByProbe != 1 {
		t.Errorf("stats %+v", s)
	}
}

// TestProbeOfARemoteAttempt: if a probe says that a remote executor's call ran, the call ends. If it
// says no, nothing is sent, fenced or not, because only a remote executor may send the call.
func TestProbeOfARemoteAttempt(t *testing.T) {
	ran := false
	b, _ := probing(t, ledger.Licence{MaxInFlight: time.Minute}, func(int, runtime.Call) (runtime.Probed, error) {
		if ran {
			return found, nil
		}
		return runtime.Probed{Answer: ledger.ProbeNotRan, Fenced: true}, nil
	})
	begun, err := b.rt.Begin(t.Context(), runtime.BeginRequest{Request: charge("k"), BeginID: "one"})
	if err != nil || begun.Standing != runtime.BeginSend {
		t.Fatal(begun, err)
	}
	b.advance(time.Hour)
	b.reopen()
	_, err = b.rt.Recover(t.Context(), begun.Result.TraceID)
	wantCode(t, err, tga.EffectInDoubt)
	b.wantSends(0)
	// Its own executor may be given it anew.
	again, err := b.rt.Begin(t.Context(), runtime.BeginRequest{Request: charge("k"), BeginID: "two"})
	if err != nil || again.Standing != runtime.BeginSend || again.Attempt != 2 {
		t.Fatalf("%+v, %v", again, err)
	}
	b.advance(time.Hour)
	ran = true
	if res, err := b.rt.Recover(t.Context(), begun.Result.TraceID); err != nil || res.State != tga.Completed {
		t.Errorf("%+v, %v", res, err)
	}
	b.wantSends(0)
	if _, err := b.rt.Finish(t.Context(), begun.Result.TraceID, again.Permit, runtime.Finished{Reply: found.Reply}); err != nil {
		t.Errorf("the same answer by the executor: %v", err)
	}
	_, err = b.rt.Finish(t.Context(), begun.Result.TraceID, again.Permit, runtime.Finished{Reply: ok(`{"charge":"ch_2"}`)})
	wantCode(t, err, tga.StateInvalidTransition)
	if b.notes(begun.Result.TraceID, tga.NoteLateReply) != 1 {
		t.Error("the second answer is not kept")
	}
}

// TestOutcomeRules: rules set class and changes. If a rule cannot be applied, the effect is
// recorded and notes that.
func TestOutcomeRules(t *testing.T) {
	for _, c := range []struct {
		name  string
		rule  func(runtime.Call, *runtime.Reply) error
		reply runtime.Reply
		class ledger.Class
		noted string
	}{
		{"class", func(_ runtime.Call, r *runtime.Reply) error { r.Class = ledger.ClassRetryable; return nil }, runtime.Reply{Status: tga.StatusFailure}, ledger.ClassRetryable, ""},
		{"class that contradicts the status", func(_ runtime.Call, r *runtime.Reply) error { r.Class = ledger.ClassRetryable; return nil }, ok(`{}`), ledger.ClassCommitted, "retryable_failure"},
		{"rule that fails", func(runtime.Call, *runtime.Reply) error { return errors.New("no /id in the result") }, ok(`{}`), ledger.ClassCommitted, "no /id"},
		{"changes over the limits", func(_ runtime.Call, r *runtime.Reply) error {
			r.Changes = []tga.StateChange{{ResourceType: "x", ResourceID: "y"}}
			return nil
		}, ok(`{}`), ledger.ClassCommitted, "operation"},
		{"result that a rule tries to change", func(_ runtime.Call, r *runtime.Reply) error { r.Result = []byte("other"); return nil }, ok(`{}`), ledger.ClassCommitted, ""},
		{"success that a rule calls a failure", func(_ runtime.Call, r *runtime.Reply) error {
			r.Status, r.Class = tga.StatusFailure, ledger.ClassPermanent
			return nil
		}, ok(`{"ok":false}`), ledger.ClassPermanent, ""},
		{"failure that a rule calls a success", func(_ runtime.Call, r *runtime.Reply) error {
			r.Status, r.Class = tga.StatusSuccess, ledger.ClassCommitted
			return nil
		}, runtime.Reply{Status: tga.StatusFailure}, ledger.ClassPermanent, "side_effect_committed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := setup(t, park, func(b *bench) {
				b.tool.answer = func(int, runtime.Call) (runtime.Reply, error) { return c.reply, nil }
				b.opts.Trust.Outcome = c.rule
			})
			res := b.mustCall(charge("k"))
			if res.Class != c.class || string(res.Value) != string(c.reply.Result) {
				t.Errorf("%+v", res)
			}
			trace, err := b.db.Load(t.Context(), res.TraceID)
			if err != nil {
				t.Fatal(err)
			}
			if noted := trace.Effect.Meta.String(tga.MetaOutcomeError); (noted == "") != (c.noted == "") || !strings.Contains(noted, c.noted) {
				t.Errorf("noted %q, want %q", noted, c.noted)
			}
		})
	}
}

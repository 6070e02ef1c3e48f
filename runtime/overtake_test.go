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

func evidence(r runtime.Reply) runtime.Resolution {
	return runtime.Resolution{Reply: r, Who: "ada", Evidence: []byte(`"statement line 7"`)}
}

var didNotRun = runtime.Reply{Status: tga.StatusFailure, Class: ledger.ClassRetryable, ErrorCode: "TOOL_ERROR", ErrorMessage: "it never arrived"}

// TestPersonsWordOvertakesTheSender: while this process waits for the tool, resolve ("it ran") and
// abandon end the call at once, and "it did not run" is refused. A note keeps the tool's later
// answer, its caller gets what is recorded, and nothing is sent again.
func TestPersonsWordOvertakesTheSender(t *testing.T) {
	for name, settle := range map[string]func(*bench, tga.ID) (runtime.Result, error){
		"ran": func(b *bench, id tga.ID) (runtime.Result, error) {
			return b.rt.Resolve(context.Background(), id, evidence(ok(`"seen"`)))
		},
		"abandon": func(b *bench, id tga.ID) (runtime.Result, error) {
			return b.rt.Abandon(context.Background(), id, "ada", "the provider cannot tell")
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t, runtime.Policy{Licence: ledger.Licence{Kind: ledger.DedupeArgs}, LicenceSet: true})
			sent, goOn := make(chan tga.ID), make(chan struct{})
			b.tool.answer = func(_ int, c runtime.Call) (runtime.Reply, error) {
				sent <- c.TraceID
				<-goOn
				return ok(`"late"`), nil
			}
			type answer struct {
				res runtime.Result
				err error
			}
			told := make(chan answer)
			go func() {
				res, err := b.rt.Call(context.Background(), charge("order-1"))
				told <- answer{res, err}
			}()
			id := <-sent
			if _, err := b.rt.Resolve(context.Background(), id, evidence(didNotRun)); tga.CodeOf(err) != tga.StateLockAcquireFailed {
				t.Errorf("it did not run, while it is being sent: %v", err)
			}
			ended, err := settle(b, id)
			if err != nil || !ended.State.Terminal() {
				t.Fatalf("%+v %v", ended, err)
			}
			close(goOn)
			got := <-told
			if got.err != nil || got.res.Digest != ended.Digest || string(got.res.Value) == `"late"` {
				t.Errorf("its caller is told %+v %v, recorded is %+v", got.res, got.err, ended)
			}
			tr, err := b.db.Load(context.Background(), id)
			if err != nil {
				t.Fatal(err)
			}
			if n := len(tr.Notes); n != 1 || tr.Notes[0].Kind != tga.NoteLateReply {
				t.Errorf("notes %+v", tr.Notes)
			}
			if by, who, _ := runtime.EndedBy(tr); by != runtime.ByPerson || who != "ada" {
				t.Errorf("ended by %v %q", by, who)
			}
			b.wantSends(1)
		})
	}
}

// TestOvertakenAttemptIsNotSent: an attempt that is in hand when a person ends the call is
// not sent any more.
func TestOvertakenAttemptIsNotSent(t *testing.T) {
	b := setup(t, park)
	hook := &afterAppend{Store: b.db}
	b.store = hook
	b.start()
	hook.then = func(lease chain.Lease, batch chain.Batch) {
		for _, a := range batch.Artifacts {
			if a.Artifact.Type == tga.CallType {
				if _, err := b.rt.Abandon(context.Background(), lease.TraceID, "ada", "not this one"); err != nil {
					t.Error(err)
				}
			}
		}
	}
	res, err := b.rt.Call(context.Background(), charge("order-1"))
	if err != nil || res.State != tga.Failed || res.ErrorCode != tga.EffectInDoubt {
		t.Errorf("%+v %v", res, err)
	}
	b.wantSends(0)
}

// afterAppend calls then when an append has returned.
type afterAppend struct {
	runtime.Store
	then func(chain.Lease, chain.Batch)
}

func (s *afterAppend) Append(ctx context.Context, l chain.Lease, b chain.Batch) (chain.Appended, error) {
	done, err := s.Store.Append(ctx, l, b)
	if err == nil && s.then != nil {
		s.then(l, b)
	}
	return done, err
}

// TestNotRunWaitsForThePermit: "did not run" about a begun call is refused while its permit is
// fresh, up to the limit. It is accepted when the permit is stale or the executor gave up.
func TestNotRunWaitsForThePermit(t *testing.T) {
	const permit = time.Minute
	for _, x := range []struct {
		after time.Duration
		gives bool
		taken bool
	}{{0, false, false}, {permit - time.Millisecond, false, false}, {permit, false, true}, {0, true, true}} {
		b := setup(t, runtime.Policy{PermitTime: permit})
		begun := b.begin("order-1", "begin-1")
		b.advance(x.after)
		if x.gives {
			if err := b.rt.GiveUp(context.Background(), begun.Result.TraceID, begun.Permit, "", 0); err != nil {
				t.Fatal(err)
			}
		}
		_, err := b.rt.Resolve(context.Background(), begun.Result.TraceID, evidence(didNotRun))
		if x.taken != (err == nil) || err != nil && tga.CodeOf(err) != tga.StateLockAcquireFailed {
			t.Errorf("after %v, given up %v: %v", x.after, x.gives, err)
		}
		if x.taken {
			continue
		}
		// "It ran" is accepted at once, and the executor's own answer then becomes a note.
		if res, err := b.rt.Resolve(context.Background(), begun.Result.TraceID, evidence(ok(`"seen"`))); err != nil || res.State != tga.Completed {
			t.Errorf("%+v %v", res, err)
		}
		if _, err := b.finish(begun, ok(`"other"`)); tga.CodeOf(err) != tga.StateInvalidTransition {
			t.Errorf("finished after the end: %v", err)
		}
	}
}

// TestWhatIsNotInDoubtIsNotOvertaken: if a person settles a call that is not executing, its run is
// not overtaken.
func TestWhatIsNotInDoubtIsNotOvertaken(t *testing.T) {
	b := setup(t, park)
	lease, err := b.db.Acquire(context.Background(), newID())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.rt.Abandon(context.Background(), lease.TraceID, "ada", ""); tga.CodeOf(err) != tga.NotFound {
		t.Errorf("%v", err)
	}
	if !b.db.Current(lease) {
		t.Error("the lease was overtaken")
	}
	b.db.Release(lease)
}

// refusingSettlements refuses the appends of effects that a person vouches for, as a store does whose limit they exceed.
type refusingSettlements struct{ runtime.Store }

func (s refusingSettlements) Append(ctx context.Context, l chain.Lease, b chain.Batch) (chain.Appended, error) {
	for _, a := range b.Artifacts {
		if a.Artifact.Meta[tga.MetaResolver] != nil {
			return chain.Appended{}, tga.Errorf(tga.LimitExceeded, "the evidence is too long")
		}
	}
	return s.Store.Append(ctx, l, b)
}

// TestAnswerEndsACallThatNobodyHasEnded: a person's word overtakes the sender and is not recorded then. The tool's
// answer is not lost: it ends the call, which is still open, unless somebody has sent the call again and the answer
// says that it did not run.
func TestAnswerEndsACallThatNobodyHasEnded(t *testing.T) {
	for name, x := range map[string]struct {
		answer func() (runtime.Reply, error)
		again  bool // the call is sent again before the answer comes
		state  tga.State
		class  ledger.Class
		notes  int // about a late answer
	}{
		"answered":                        {func() (runtime.Reply, error) { return ok(`"late"`), nil }, false, tga.Completed, ledger.ClassCommitted, 0},
		"not sent":                        {func() (runtime.Reply, error) { return runtime.Reply{}, errDial }, false, tga.Failed, ledger.ClassNotSent, 0},
		"did not run":                     {func() (runtime.Reply, error) { return didNotRun, nil }, false, tga.Failed, ledger.ClassRetryable, 0},
		"answered, sent again":            {func() (runtime.Reply, error) { return ok(`"late"`), nil }, true, tga.Completed, ledger.ClassCommitted, 0},
		"did not run, but was sent again": {func() (runtime.Reply, error) { return didNotRun, nil }, true, tga.Executing, ledger.ClassNone, 1},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t, runtime.Policy{Licence: ledger.Licence{Kind: ledger.DedupeArgs}, LicenceSet: true, Resends: -1})
			b.store = refusingSettlements{b.db}
			b.start()
			sent, goOn := make(chan tga.ID), make(chan struct{})
			b.tool.answer = func(n int, c runtime.Call) (runtime.Reply, error) {
				if n > 1 {
					return runtime.Reply{}, errReset
				}
				sent <- c.TraceID
				<-goOn
				return x.answer()
			}
			type told struct {
				res runtime.Result
				err error
			}
			first := make(chan told)
			go func() {
				res, err := b.rt.Call(context.Background(), charge("order-1"))
				first <- told{res, err}
			}()
			id := <-sent
			_, err := b.rt.Resolve(context.Background(), id, evidence(ok(`"seen"`)))
			wantCode(t, err, tga.LimitExceeded)
			if x.again {
				_, err := b.rt.Recover(context.Background(), id)
				wantCode(t, err, tga.EffectInDoubt)
			}
			close(goOn)
			got := <-first
			if ended := x.state.Terminal(); ended != (got.err == nil) || ended && (got.res.State != x.state || got.res.Class != x.class) {
				t.Errorf("its caller is told %+v, %v", got.res, got.err)
			}
			if res := b.wantState(id, x.state); res.Class != x.class {
				t.Errorf("recorded: %+v", res)
			}
			if n := b.notes(id, tga.NoteLateReply); n != x.notes {
				t.Errorf("%d notes, want %d", n, x.notes)
			}
		})
	}
}

package runtime_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

const insteadKey = "order 7"

func keyed(r *runtime.BeginRequest) { r.Key = insteadKey }

// saidAgain is a call with a key, after its person has let the call of a trace run again.
func saidAgain(trace tga.ID) func(*runtime.BeginRequest) {
	return func(r *runtime.BeginRequest) { r.Key, r.Connection.Again = insteadKey, trace }
}

// TestPersonLetsAKeyRunAgain: a person can let the call of a key run again only if that call is in doubt
// and parked.
func TestPersonLetsAKeyRunAgain(t *testing.T) {
	for _, row := range []struct {
		name   string
		kind   ledger.LicenceKind
		before func(c *clients, first runtime.Begun)
		want   runtime.Standing
		runs   bool // a call of its own
	}{
		{"under way", ledger.Park, func(*clients, runtime.Begun) {}, runtime.BeginWait, false},
		{"in doubt", ledger.Park, giveUp, runtime.BeginSend, true},
		{"executor dead", ledger.Park, func(c *clients, _ runtime.Begun) { c.die("A") }, runtime.BeginSend, true},
		{"in doubt, licensed", ledger.DedupeArgs, giveUp, runtime.BeginSend, false}, // the licence sends the same call again
		{"answered", ledger.Park, func(c *clients, g runtime.Begun) { c.answer(g) }, runtime.BeginServe, false},
		{"abandoned", ledger.Park, abandon, runtime.BeginInDoubt, false},
		{"settled as not run", ledger.Park, notRun, runtime.BeginServe, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			policy := licence(row.kind)
			policy.PermitTime = time.Hour
			c := withClients(t, policy)
			c.come("A")
			c.come("B")
			first := c.beginAs("A", keyed)
			c.wantStanding(first, runtime.BeginSend)
			row.before(c, first)
			asked := c.beginAs("B", keyed, func(r *runtime.BeginRequest) { r.Connection.Asks = true })
			if asked.Ask != row.runs { // a person is asked only if the answer counts
				t.Errorf("the person is asked: %v, want %v", asked.Ask, row.runs)
			}
			if asked.Standing == runtime.BeginSend {
				giveUp(c, asked)
			}
			again := c.beginAs("B", saidAgain(first.Result.TraceID))
			c.wantStanding(again, row.want)
			if got := again.Standing == runtime.BeginSend && again.Key != first.Key; got != row.runs {
				t.Errorf("a call of its own: %v, want %v", got, row.runs)
			}
		})
	}
}

// TestKeyStandsForTheCallThatRanInstead: later callers with the key get the replacement, also after
// a restart, and also if the first call is settled as one that did not run.
func TestKeyStandsForTheCallThatRanInstead(t *testing.T) {
	policy := licence(ledger.Park)
	policy.PermitTime = time.Hour
	c := withClients(t, policy)
	for _, name := range []string{"A", "B", "C"} {
		c.come(name)
	}
	first := c.beginAs("A", keyed)
	c.die("A")
	doubt := c.beginAs("B", keyed)
	c.wantStanding(doubt, runtime.BeginInDoubt)
	if doubt.Since == 0 {
		t.Error("it does not say when the call in doubt was last heard of")
	}
	c.wantStanding(c.beginAs("B", saidAgain(tga.ID{1})), runtime.BeginInDoubt)
	c.wantConflicts(first.Result.TraceID)
	c.wantStanding(c.beginAs("B", keyed), runtime.BeginInDoubt)
	second := c.beginAs("B", saidAgain(first.Result.TraceID))
	c.wantStanding(second, runtime.BeginSend)
	tr, err := c.db.Load(context.Background(), second.Result.TraceID)
	if err != nil || tr.Request.Meta.String(tga.MetaAgainOf) != first.Result.TraceID.String() {
		t.Errorf("the request does not name the call that it repeats: %v", err)
	}
	c.wantState(first.Result.TraceID, tga.Executing) // a person can still settle it
	c.wantStanding(c.beginAs("C", keyed), runtime.BeginWait)
	c.reopen()
	resolve(c, first, tga.StatusFailure, ledger.ClassRetryable)
	anew := func(r *runtime.BeginRequest) { r.Key, r.Retry = insteadKey, true }
	c.wantStanding(c.beginAs("C", anew), runtime.BeginWait) // otherwise it would run besides the second
	// A call that this process would send itself waits for the second too.
	call := func(retry bool, trace tga.ID) (runtime.Result, error) {
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		r := runtime.BeginRequest{Request: charge("")}
		keyed(&r)
		r.Retry, r.TraceID = retry, trace
		r.Args = []byte(`{ "amount" : 100 }`)
		return c.rt.Call(ctx, r.Request)
	}
	for _, retry := range []bool{false, true} {
		if _, err := call(retry, tga.ID{}); tga.CodeOf(err) != tga.IdempotencyKeyInFlight {
			t.Errorf("retry %t beside the call that runs instead: %v", retry, err)
		}
	}
	c.answer(second)
	for _, retry := range []bool{false, true} {
		if res, err := call(retry, tga.ID{}); err != nil || res.ServedFrom != second.Result.TraceID {
			t.Errorf("retry %t is answered from %s: %v", retry, res.ServedFrom, err)
		}
	}
	if res, err := call(true, first.Result.TraceID); err != nil || res.TraceID != first.Result.TraceID || res.State != tga.Failed {
		t.Errorf("the first call itself: %+v, %v", res, err)
	}
	for _, how := range []func(*runtime.BeginRequest){keyed, anew, saidAgain(first.Result.TraceID)} {
		served := c.beginAs("C", how)
		c.wantStanding(served, runtime.BeginServe)
		if served.Result.ServedFrom != second.Result.TraceID {
			t.Error("the key does not stand for the call that ran instead")
		}
	}
	c.wantConflicts(first.Result.TraceID)
}

// wantConflicts: the key is another request's, or another user's, whatever their persons say.
func (c *clients) wantConflicts(again tga.ID) {
	c.t.Helper()
	for name, other := range map[string]func(*runtime.BeginRequest){
		"arguments": func(r *runtime.BeginRequest) { r.Args = []byte(`{"amount":101}`) },
		"a user":    func(r *runtime.BeginRequest) { r.Connection.Subject = "mallory" },
	} {
		if got := c.beginAs("C", saidAgain(again), other); got.Standing != runtime.BeginConflict {
			c.t.Errorf("other %s: %s, want a conflict", name, got.Standing)
		}
	}
}

// TestDoubtAfterDoubtIsAskedAboutByItsOwnTrace: a yes permits one run. The replacement may come into doubt
// as well, and then a person must be asked about the replacement.
func TestDoubtAfterDoubtIsAskedAboutByItsOwnTrace(t *testing.T) {
	policy := licence(ledger.Park)
	policy.PermitTime = time.Hour
	c := withClients(t, policy)
	c.come("A")
	first := c.beginAs("A", keyed)
	c.die("A")
	c.come("B")
	second := c.beginAs("B", saidAgain(first.Result.TraceID))
	c.die("B")
	c.come("C")
	old := c.beginAs("C", saidAgain(first.Result.TraceID))
	c.wantStanding(old, runtime.BeginInDoubt)
	if old.Result.TraceID != second.Result.TraceID {
		t.Error("the doubt is not the second call's")
	}
	third := c.beginAs("C", saidAgain(second.Result.TraceID))
	c.wantStanding(third, runtime.BeginSend)
	if third.Key == second.Key || third.Key == first.Key {
		t.Errorf("the key %q is one of an earlier call", third.Key)
	}
}

// TestTwoPersonsLetAKeyRunAgainAtOnce: one of the calls is sent.
func TestTwoPersonsLetAKeyRunAgainAtOnce(t *testing.T) {
	policy := licence(ledger.Park)
	policy.PermitTime = time.Hour
	c := withClients(t, policy)
	c.come("A")
	first := c.beginAs("A", keyed)
	c.die("A")
	var all [4]runtime.Begun
	var errs [4]error
	var wg sync.WaitGroup
	for i := range all {
		name := fmt.Sprint("client ", i)
		c.come(name)
		req := runtime.BeginRequest{Request: charge(insteadKey), BeginID: name, Connection: runtime.Connection{ID: name, Lock: name, Executor: name, Again: first.Result.TraceID}}
		wg.Go(func() { all[i], errs[i] = c.rt.Begin(context.Background(), req) })
	}
	wg.Wait()
	sends := 0
	for i, b := range all {
		if b.Standing == runtime.BeginSend {
			sends++
		} else if b.Standing != runtime.BeginWait || errs[i] != nil {
			t.Errorf("%s, %v; want wait", b.Standing, errs[i])
		}
	}
	if sends != 1 {
		t.Errorf("%d sends, want 1", sends)
	}
}

// TestReplacedCallIsNotSentBesides: a person let another call run instead of a call in doubt. A licence that
// is given to the tool later, and a person who relicenses the first call, have it sent no more: the two
// calls have different keys, so the tool server does not take them for one.
func TestReplacedCallIsNotSentBesides(t *testing.T) {
	for _, kind := range []ledger.LicenceKind{ledger.Probe, ledger.DedupeKey, ledger.DedupeArgs} {
		policy := licence(ledger.Park)
		c := withClients(t, runtime.Policy{}, func(b *bench) {
			b.opts.Policy = func(string, string) runtime.Policy { p := policy; p.PermitTime = time.Hour; return p }
		})
		c.come("A")
		c.come("B")
		named := func(r *runtime.BeginRequest) { r.BeginID = "the same" }
		first := c.beginAs("A", keyed, named)
		c.die("A")
		second := c.beginAs("B", saidAgain(first.Result.TraceID))
		c.wantStanding(second, runtime.BeginSend)
		c.answer(second)
		policy = licence(kind)
		_, err := c.rt.Relicense(t.Context(), first.Result.TraceID, said)
		wantCode(t, err, tga.StateInvalidTransition)
		c.wantStanding(c.beginAs("A", keyed, named), runtime.BeginInDoubt)
		c.come("A") // whoever has taken the lock
		c.wantStanding(c.beginAs("A", keyed, named), runtime.BeginWait)
		if n := c.notes(first.Result.TraceID, tga.NoteLicence) + c.notes(first.Result.TraceID, tga.NoteAttempt); n != 0 {
			t.Errorf("%v: %d notes about a licence or an attempt", kind, n)
		}
		c.wantStanding(c.beginAs("B", keyed), runtime.BeginServe)
	}
}

package runtime_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// locks simulates the lock files of the clients on this machine. A path that is not in it
// cannot be seen.
type locks struct {
	mu   sync.Mutex
	held map[string]bool
}

func (l *locks) look(path string) ledger.Liveness {
	l.mu.Lock()
	defer l.mu.Unlock()
	held, known := l.held[path]
	switch {
	case !known:
		return ledger.HolderUnknown
	case held:
		return ledger.HolderAlive
	}
	return ledger.HolderGone
}

func (l *locks) set(path string, held bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held[path] = held
}

// clients is a bench whose calls come from clients that hold locks.
type clients struct {
	*bench
	locks *locks
	n     int
}

func withClients(t *testing.T, policy runtime.Policy, change ...func(*bench)) *clients {
	c := &clients{locks: &locks{held: map[string]bool{}}}
	c.bench = setup(t, policy, append(change, func(b *bench) { b.opts.Lock = c.locks.look })...)
	return c
}

// come lets a client take its lock, and die lets it lose the lock, as when it is killed.
func (c *clients) come(name string) { c.locks.set(name, true) }
func (c *clients) die(name string)  { c.locks.set(name, false) }

func (c *clients) beginAs(name string, change ...func(*runtime.BeginRequest)) runtime.Begun {
	c.t.Helper()
	c.n++
	req := runtime.BeginRequest{
		Request: charge(""), BeginID: fmt.Sprint("begin ", c.n),
		Connection: runtime.Connection{ID: "connection of " + name, Lock: name, Executor: name},
	}
	for _, f := range change {
		f(&req)
	}
	b, err := c.rt.Begin(context.Background(), req)
	if err != nil {
		c.t.Fatal(err)
	}
	return b
}

func (c *clients) answer(g runtime.Begun) {
	c.t.Helper()
	if _, err := c.finish(g, ok(`"paid"`)); err != nil {
		c.t.Fatal(err)
	}
}

func (c *clients) deliver(g runtime.Begun) {
	c.t.Helper()
	if err := c.rt.Delivered(context.Background(), g.Result.TraceID); err != nil {
		c.t.Fatal(err)
	}
}

// TestRepeatsAreToldFromNewCalls tests the rule of package call on a real store, row by row.
// Each row begins a call as client A, brings it into some state, and makes the identical call.
func TestRepeatsAreToldFromNewCalls(t *testing.T) {
	serial.Test(t)
	const window = time.Minute
	for _, row := range []struct {
		name   string
		kind   ledger.LicenceKind
		before func(c *clients, first runtime.Begun)
		again  string // who makes the identical call
		want   runtime.Standing
		same   bool // it is the first call
	}{
		{"delivered", ledger.Park, func(c *clients, g runtime.Begun) { c.answer(g); c.deliver(g) }, "A", runtime.BeginSend, false},
		{"delivered, client gone", ledger.Park, func(c *clients, g runtime.Begun) { c.answer(g); c.deliver(g); c.die("A") }, "B", runtime.BeginSend, false},
		{"open, same client", ledger.Park, func(*clients, runtime.Begun) {}, "A", runtime.BeginWait, true},
		{"in doubt, same client", ledger.Park, giveUp, "A", runtime.BeginInDoubt, true},
		{"in doubt, same client, licensed", ledger.DedupeArgs, giveUp, "A", runtime.BeginSend, true},
		{"answered, same client", ledger.Park, func(c *clients, g runtime.Begun) { c.answer(g) }, "A", runtime.BeginServe, true},
		{"answered long ago, same client", ledger.Park, func(c *clients, g runtime.Begun) { c.answer(g); c.advance(window + time.Millisecond) }, "A", runtime.BeginServe, true},
		{"open, another client", ledger.Park, func(*clients, runtime.Begun) {}, "B", runtime.BeginSend, false},
		{"in doubt, another client", ledger.Park, giveUp, "B", runtime.BeginSend, false},
		{"answered, another client", ledger.Park, func(c *clients, g runtime.Begun) { c.answer(g) }, "B", runtime.BeginSend, false},
		{"answered, client gone", ledger.Park, func(c *clients, g runtime.Begun) { c.answer(g); c.die("A") }, "B", runtime.BeginServe, true},
		{"answered, client gone, at the window", ledger.Park, func(c *clients, g runtime.Begun) { c.answer(g); c.die("A"); c.advance(window) }, "B", runtime.BeginServe, true},
		{"answered, client gone, past the window", ledger.Park, func(c *clients, g runtime.Begun) { c.answer(g); c.die("A"); c.advance(window + time.Millisecond) }, "B", runtime.BeginStale, true},
		{"executor dead", ledger.Park, func(c *clients, _ runtime.Begun) { c.die("A") }, "B", runtime.BeginInDoubt, true},
		{"executor dead, licensed", ledger.DedupeArgs, func(c *clients, _ runtime.Begun) { c.die("A") }, "B", runtime.BeginSend, true},
		{"abandoned", ledger.Park, abandon, "B", runtime.BeginServe, true},
		{"abandoned long ago", ledger.Park, func(c *clients, g runtime.Begun) { abandon(c, g); c.advance(window + time.Millisecond) }, "B", runtime.BeginSend, false},
		{"settled as not run", ledger.Park, notRun, "B", runtime.BeginSend, false},
		{"settled as run", ledger.Park, func(c *clients, g runtime.Begun) { c.die("A"); resolve(c, g, tga.StatusSuccess, ledger.ClassNone) }, "B", runtime.BeginServe, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			policy := licence(row.kind)
			policy.PermitTime, policy.RepeatWindow = time.Hour, window
			c := withClients(t, policy)
			c.come("A")
			c.come("B")
			first := c.beginAs("A")
			c.wantStanding(first, runtime.BeginSend)
			row.before(c, first)
			c.reopen() // what decides is in the store
			again := c.beginAs(row.again)
			c.wantStanding(again, row.want)
			if got := again.Result.TraceID == first.Result.TraceID; got != row.same {
				t.Errorf("is the first call: %v, want %v", got, row.same)
			}
			c.wantSends(0)
		})
	}
}

func giveUp(c *clients, g runtime.Begun) {
	// Its tool server died; the process lives. In memory only, so the permit's time is over
	// as well: the test opens the store again.
	c.advance(2 * time.Hour)
	if err := c.rt.GiveUp(context.Background(), g.Result.TraceID, g.Permit, "", 0); err != nil {
		c.t.Fatal(err)
	}
}

func abandon(c *clients, g runtime.Begun) {
	c.die("A")
	if _, err := c.rt.Abandon(context.Background(), g.Result.TraceID, "test", "nobody knows"); err != nil {
		c.t.Fatal(err)
	}
}

func notRun(c *clients, g runtime.Begun) {
	c.die("A")
	resolve(c, g, tga.StatusFailure, ledger.ClassRetryable)
}

func resolve(c *clients, g runtime.Begun, status string, class ledger.Class) {
	_, err := c.rt.Resolve(context.Background(), g.Result.TraceID, runtime.Resolution{
		Reply: runtime.Reply{Status: status, Class: class}, Who: "test", Evidence: []byte("seen"),
	})
	if err != nil {
		c.t.Fatal(err)
	}
}

// TestRepeatWindowIsOfTheTimeThatPasses sets the wall clock after a call has ended. That does not
// extend the time in which an answer is served to a repeat, and a call that was given up does not
// run again sooner.
func TestRepeatWindowIsOfTheTimeThatPasses(t *testing.T) {
	const window = time.Minute
	for _, row := range []struct {
		name   string
		end    func(c *clients, first runtime.Begun)
		set    time.Duration
		passes time.Duration
		want   runtime.Standing
	}{
		{"answered, within it, set back", (*clients).answer, -24 * time.Hour, window - time.Second, runtime.BeginServe},
		{"answered, past it, set back", (*clients).answer, -24 * time.Hour, window + time.Second, runtime.BeginStale},
		{"answered, set ahead", (*clients).answer, time.Hour, 0, runtime.BeginStale},
		{"abandoned, set ahead", abandon, time.Hour, window - time.Second, runtime.BeginServe},
		{"abandoned, past it, set ahead", abandon, time.Hour, window + time.Second, runtime.BeginSend},
		{"abandoned, within it, set back", abandon, -24 * time.Hour, window - time.Second, runtime.BeginServe},
		{"abandoned, past it, set back", abandon, -24 * time.Hour, window + time.Second, runtime.BeginSend},
	} {
		t.Run(row.name, func(t *testing.T) {
			policy := licence(ledger.Park)
			policy.PermitTime, policy.RepeatWindow = time.Hour, window
			c := withClients(t, policy, func(b *bench) { b.opts.Monotonic = b.monotonic })
			c.come("A")
			c.come("B")
			first := c.beginAs("A")
			c.wantStanding(first, runtime.BeginSend)
			row.end(c, first)
			c.die("A")
			c.jump(row.set)
			c.advance(row.passes)
			c.wantStanding(c.beginAs("B"), row.want)
		})
	}
}

// TestTwoRepeatsDoNotTakeTheSameCall: two clients repeat a call whose answer a third client lost.
// One takes the call over, and the other makes a new call; also if the first dies in between.
func TestTwoRepeatsDoNotTakeTheSameCall(t *testing.T) {
	policy := licence(ledger.Park)
	policy.PermitTime = time.Hour
	c := withClients(t, policy)
	for _, name := range []string{"A", "B", "C", "D"} {
		c.come(name)
	}
	first := c.beginAs("A")
	c.answer(first)
	c.die("A")
	var all [2]runtime.Begun
	var wg sync.WaitGroup
	for i, name := range []string{"B", "C"} {
		req := runtime.BeginRequest{Request: charge(""), BeginID: name, Connection: runtime.Connection{ID: name, Lock: name, Executor: name}}
		wg.Go(func() { all[i], _ = c.rt.Begin(context.Background(), req) })
	}
	wg.Wait()
	took := 0
	for _, b := range all {
		if b.Result.TraceID == first.Result.TraceID {
			took++
		} else {
			c.wantStanding(b, runtime.BeginSend)
		}
	}
	if took != 1 {
		t.Fatalf("%d clients took the call over: %+v", took, all)
	}
	// Who took it over dies before it has the answer: the next one takes it.
	for i, name := range []string{"B", "C"} {
		if all[i].Result.TraceID == first.Result.TraceID {
			c.die(name)
		}
	}
	c.reopen()
	next := c.beginAs("D")
	c.wantStanding(next, runtime.BeginServe)
	if next.Result.TraceID != first.Result.TraceID {
		t.Errorf("the call was lost: %+v", next)
	}
}

// TestCallsBegunAtOnceAreAllRemembered: clients that make identical calls at the same moment get a
// call each. If all clients die, none of these calls is forgotten.
func TestCallsBegunAtOnceAreAllRemembered(t *testing.T) {
	const n = 24
	policy := licence(ledger.Park)
	policy.PermitTime = time.Hour
	c := withClients(t, policy)
	all := make([]runtime.Begun, n)
	var wg sync.WaitGroup
	for i := range n {
		name := fmt.Sprint("client ", i)
		c.come(name)
		wg.Go(func() {
			all[i], _ = c.rt.Begin(context.Background(), runtime.BeginRequest{
				Request: charge(""), BeginID: name, Connection: runtime.Connection{ID: name, Lock: name, Executor: name},
			})
		})
	}
	wg.Wait()
	begun := map[tga.ID]bool{}
	for i, b := range all {
		c.wantStanding(b, runtime.BeginSend)
		begun[b.Result.TraceID] = true
		c.answer(b)
		c.die(fmt.Sprint("client ", i))
	}
	if len(begun) != n {
		t.Fatalf("%d calls of %d clients", len(begun), n)
	}
	for i := range n {
		name := fmt.Sprint("next client ", i)
		c.come(name)
		b := c.beginAs(name)
		c.wantStanding(b, runtime.BeginServe)
		delete(begun, b.Result.TraceID)
	}
	if len(begun) != 0 {
		t.Errorf("%d calls were forgotten", len(begun))
	}
}

// TestLivingClientDoesNotHideALostCall: a repeat finds the lost call, although a living client has an
// older identical call, which is not taken over.
func TestLivingClientDoesNotHideALostCall(t *testing.T) {
	policy := licence(ledger.Park)
	policy.PermitTime = time.Hour
	c := withClients(t, policy)
	for _, name := range []string{"A", "B", "C"} {
		c.come(name)
	}
	c.beginAs("A")
	lost := c.beginAs("B")
	c.die("B")
	again := c.beginAs("C")
	c.wantStanding(again, runtime.BeginInDoubt)
	if again.Result.TraceID != lost.Result.TraceID {
		t.Errorf("compared with %s, want %s", again.Result.TraceID, lost.Result.TraceID)
	}
}

// TestClientThatCannotBeSeenIsWaitedFor: if no lock can be seen, nothing is known about the client
// until the permit is stale. Before that the call does not run again, and it is not lost either.
func TestClientThatCannotBeSeenIsWaitedFor(t *testing.T) {
	policy := licence(ledger.Park)
	policy.PermitTime = time.Minute
	c := withClients(t, policy)
	first := c.beginAs("far")
	c.advance(time.Minute - time.Millisecond)
	c.wantStanding(c.beginAs("farther"), runtime.BeginWait)
	c.advance(time.Millisecond)
	doubt := c.beginAs("farther")
	c.wantStanding(doubt, runtime.BeginInDoubt)
	if doubt.Result.TraceID != first.Result.TraceID {
		t.Error("it is another call")
	}
	c.answer(first)
	c.deliver(first)
	c.wantStanding(c.beginAs("farther"), runtime.BeginSend)
}

// TestIdentityOfACall: what differs in any part is another call.
func TestIdentityOfACall(t *testing.T) {
	for name, change := range map[string]func(*runtime.BeginRequest){
		"arguments": func(r *runtime.BeginRequest) { r.Args = []byte(`{"amount":43}`) },
		"tool":      func(r *runtime.BeginRequest) { r.Tool = "refund" },
		"server":    func(r *runtime.BeginRequest) { r.Server = "other" },
		"namespace": func(r *runtime.BeginRequest) { r.Namespace = "tenant" },
		"peer":      func(r *runtime.BeginRequest) { r.Submitter = "uid:2" },
		"subject":   func(r *runtime.BeginRequest) { r.Connection.Subject = "alice" },
		"scope":     func(r *runtime.BeginRequest) { r.Scope = "conversation 2" },
		"key":       func(r *runtime.BeginRequest) { r.Key = "order-1" },
	} {
		t.Run(name, func(t *testing.T) {
			c := withClients(t, licence(ledger.Park))
			c.come("A")
			c.come("B")
			first := c.beginAs("A")
			c.die("A")
			other := c.beginAs("B", change)
			c.wantStanding(other, runtime.BeginSend)
			if other.Result.TraceID == first.Result.TraceID {
				t.Error("it is taken for the first call")
			}
			// Only the spelling of the arguments makes no difference.
			same := c.beginAs("B", func(r *runtime.BeginRequest) { r.Args = append([]byte(" "), r.Args...) })
			c.wantStanding(same, runtime.BeginInDoubt)
		})
	}
}

// TestPersonLetsACallRunAgain: the new call runs instead of only that trace which the person was
// asked about, and names it.
func TestPersonLetsACallRunAgain(t *testing.T) {
	policy := licence(ledger.Park)
	policy.PermitTime = time.Hour
	c := withClients(t, policy)
	c.come("A")
	c.come("B")
	first := c.beginAs("A")
	c.die("A")
	asks := func(r *runtime.BeginRequest) { r.Connection.Asks = true }
	asked := c.beginAs("B", asks)
	c.wantStanding(asked, runtime.BeginInDoubt)
	if !asked.Ask || asked.Since == 0 {
		t.Errorf("the person is not asked: %+v", asked)
	}
	other := c.beginAs("B", func(r *runtime.BeginRequest) { r.Connection.Again = tga.ID{1} })
	c.wantStanding(other, runtime.BeginInDoubt)
	again := c.beginAs("B", func(r *runtime.BeginRequest) { r.Connection.Again = first.Result.TraceID })
	c.wantStanding(again, runtime.BeginSend)
	if again.Result.TraceID == first.Result.TraceID {
		t.Error("the call in doubt itself was sent again")
	}
	tr, err := c.db.Load(context.Background(), again.Result.TraceID)
	if err != nil || tr.Request.Meta.String(tga.MetaAgainOf) != first.Result.TraceID.String() {
		t.Errorf("the request does not name the call that it repeats: %v", err)
	}
	// The doubt itself stands, for who settles it.
	c.wantState(first.Result.TraceID, tga.Executing)
}

// TestUndeliveredCallsAreBounded: at the limit, and one past it.
func TestUndeliveredCallsAreBounded(t *testing.T) {
	serial.Test(t)
	c := withClients(t, licence(ledger.Park))
	var last runtime.Begun
	for i := range runtime.MaxUndelivered {
		name := fmt.Sprint("client ", i)
		c.come(name)
		last = c.beginAs(name)
	}
	c.wantStanding(last, runtime.BeginSend)
	c.come("one more")
	_, err := c.rt.Begin(context.Background(), runtime.BeginRequest{
		Request: charge(""), BeginID: "more", Connection: runtime.Connection{ID: "more", Lock: "one more"},
	})
	wantCode(t, err, tga.LimitExceeded)
	for at, bad := range map[string]runtime.Connection{
		"/connection/id":       {ID: string(make([]byte, runtime.MaxConnection+1))},
		"/connection/subject":  {ID: "x", Subject: string(make([]byte, runtime.MaxConnection+1))},
		"/connection/lock":     {ID: "x", Lock: string(make([]byte, runtime.MaxLockPath+1))},
		"/connection/executor": {ID: "x", Executor: string(make([]byte, runtime.MaxLockPath+1))},
	} {
		_, err := c.rt.Begin(context.Background(), runtime.BeginRequest{Request: charge(""), BeginID: "x", Connection: bad})
		wantCode(t, err, tga.ValidationError)
		if e, ok := err.(*tga.Error); !ok || e.Pointer != at {
			t.Errorf("%v, want %s", err, at)
		}
	}
}

// TestDeadExecutorsPermitIsStaleAtOnce: for a call with a key of its own too.
func TestDeadExecutorsPermitIsStaleAtOnce(t *testing.T) {
	for _, kind := range []ledger.LicenceKind{ledger.Park, ledger.DedupeArgs} {
		policy := licence(kind)
		policy.PermitTime = time.Hour
		c := withClients(t, policy)
		c.come("A")
		c.come("B")
		keyed := func(r *runtime.BeginRequest) { r.Key = "order-1" }
		first := c.beginAs("A", keyed)
		c.wantStanding(c.beginAs("B", keyed), runtime.BeginWait)
		c.die("A")
		c.reopen()
		want := runtime.BeginInDoubt
		if kind == ledger.DedupeArgs {
			want = runtime.BeginSend
		}
		again := c.beginAs("B", keyed)
		c.wantStanding(again, want)
		if kind == ledger.DedupeArgs {
			// The new attempt has an executor of its own, which lives.
			c.wantStanding(c.beginAs("C", keyed), runtime.BeginWait)
		}
		c.answer(first) // a dead executor's answer still counts
		c.wantSends(0)
	}
}

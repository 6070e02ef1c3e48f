package runtime_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/memstore"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// begins is a daemon in front of remote executors, with people who approve. Its store is in
// memory: it is opened very often.
type begins struct {
	t     *testing.T
	disk  memstore.Disk
	store *memstore.Store
	rt    *runtime.Runtime
}

func (b *begins) open() {
	b.t.Helper()
	b.store = memstore.Open(&b.disk, time.Now)
	rt, err := runtime.New(b.store, runtime.DispatcherFunc(func(context.Context, runtime.Call) (runtime.Reply, error) {
		b.t.Error("the daemon sent a begun call")
		return runtime.Reply{}, nil
	}), runtime.Rules{Rules: []runtime.Rule{{Decision: tga.NeedsApproval}}}, runtime.Options{
		Policy: func(string, string) runtime.Policy { return park },
	})
	if err != nil {
		b.t.Fatal(err)
	}
	b.rt = rt
}

func (b *begins) begin(who string, change ...func(*runtime.BeginRequest)) runtime.Begun {
	b.t.Helper()
	req := runtime.BeginRequest{Request: charge("order-1"), BeginID: "begin-1"}
	req.Submitter = who
	for _, f := range change {
		f(&req)
	}
	begun, err := b.rt.Begin(b.t.Context(), req)
	if err != nil {
		b.t.Fatal(err)
	}
	return begun
}

func (b *begins) vote(trace tga.ID, approve bool) {
	b.t.Helper()
	if _, err := b.rt.Decide(b.t.Context(), trace, runtime.Vote{Who: "ann", Approve: approve, Rationale: "asked the customer"}); err != nil {
		b.t.Fatal(err)
	}
}

// rows counts what a begin may leave behind: begin ids, questions and open traces.
func (b *begins) rows() string {
	b.t.Helper()
	count := func(kind chain.AttachmentKind) (n int) {
		for _, err := range b.store.Attachments(b.t.Context(), kind, nil) {
			if n++; err != nil {
				b.t.Fatal(err)
			}
		}
		return n
	}
	open := 0
	for _, err := range b.store.OpenTraces(b.t.Context()) {
		if open++; err != nil {
			b.t.Fatal(err)
		}
	}
	return fmt.Sprintf("%d begin ids, %d questions, %d open traces", count(chain.AttachBeginID), count(chain.AttachApproval), open)
}

// TestRepeatedBeginFindsItsTrace: in every state of its trace, before and after a restart, a
// begin that its submitter repeats gets that trace and makes nothing new. Another request
// under the id is refused. The same id of another submitter is a different id.
func TestRepeatedBeginFindsItsTrace(t *testing.T) {
	ctx := context.Background()
	sent := func(b *begins, trace tga.ID) runtime.Begun {
		b.vote(trace, true)
		begun := b.begin("uid:1000")
		if begun.Standing != runtime.BeginSend {
			b.t.Fatalf("the first begin after the approval: %s (%v)", begun.Standing, begun.Cause)
		}
		return begun
	}
	states := []struct {
		name  string
		reach func(b *begins, trace tga.ID)
		state tga.State
		want  runtime.Standing
	}{
		{"waiting for people", func(*begins, tga.ID) {}, tga.Pending, runtime.BeginNeedsApproval},
		{"approved", func(b *begins, trace tga.ID) { b.vote(trace, true) }, tga.Authorized, runtime.BeginSend},
		{"denied", func(b *begins, trace tga.ID) { b.vote(trace, false) }, tga.Denied, runtime.BeginDenied},
		{"sent", func(b *begins, trace tga.ID) { sent(b, trace) }, tga.Executing, runtime.BeginSend},
		{"finished", func(b *begins, trace tga.ID) {
			g := sent(b, trace)
			if _, err := b.rt.Finish(ctx, trace, g.Permit, runtime.Finished{Reply: ok(`"paid"`)}); err != nil {
				b.t.Fatal(err)
			}
		}, tga.Completed, runtime.BeginServe},
		{"taken back", func(b *begins, trace tga.ID) {
			g := sent(b, trace)
			if _, err := b.rt.NotSent(ctx, trace, g.Permit, "no route", 0); err != nil {
				b.t.Fatal(err)
			}
		}, tga.Failed, runtime.BeginServe},
		{"abandoned", func(b *begins, trace tga.ID) {
			sent(b, trace)
			if _, err := b.rt.Abandon(ctx, trace, "ann", "nobody knows"); err != nil {
				b.t.Fatal(err)
			}
		}, tga.Failed, runtime.BeginServe},
	}
	// What another request under the same id may differ in.
	others := map[string]func(*runtime.BeginRequest){
		"arguments": func(r *runtime.BeginRequest) { r.Args = []byte(`{"amount":200}`) },
		"tool":      func(r *runtime.BeginRequest) { r.Tool = "refund" },
		"server":    func(r *runtime.BeginRequest) { r.Server = "other" },
		"key":       func(r *runtime.BeginRequest) { r.Key = "order-2" },
		"no key":    func(r *runtime.BeginRequest) { r.Key, r.Scope = "", "job" },
	}
	for _, s := range states {
		for _, restart := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, restart %v", s.name, restart), func(t *testing.T) {
				b := &begins{t: t}
				b.open()
				first := b.begin("uid:1000")
				trace := first.Result.TraceID
				if first.Standing != runtime.BeginNeedsApproval {
					t.Fatalf("first %+v", first)
				}
				s.reach(b, trace)
				if restart {
					b.open()
				}
				res, err := b.rt.Result(ctx, trace)
				if err != nil || res.State != s.state {
					t.Fatalf("the trace is %v (%v), want %v", res.State, err, s.state)
				}
				before := b.rows()
				for name, change := range others {
					if g := b.begin("uid:1000", change); g.Standing != runtime.BeginConflict || g.Permit != (runtime.Permit{}) || g.Result.TraceID != trace {
						t.Errorf("with another %s: %+v", name, g)
					}
				}
				if now := b.rows(); now != before {
					t.Errorf("refused begins left %s, before %s", now, before)
				}
				var permit runtime.Permit
				for n := range 2 {
					g := b.begin("uid:1000", func(r *runtime.BeginRequest) { r.Args = []byte(` {"amount": 1e2}`) }) // the same, canonically
					if g.Standing != s.want || g.Result.TraceID != trace {
						t.Fatalf("the same begin again: %s of trace %s (%v), want %s of %s", g.Standing, g.Result.TraceID, g.Cause, s.want, trace)
					}
					if n > 0 && g.Permit != permit {
						t.Errorf("permit %s, then %s", permit, g.Permit)
					}
					permit = g.Permit
				}
				if now := b.rows(); now != before {
					t.Errorf("a repeated begin left %s, before %s", now, before)
				}
				// Another's same id, with the same request and with a key of its own.
				for name, change := range map[string]func(*runtime.BeginRequest){
					"same": func(*runtime.BeginRequest) {}, "other": func(r *runtime.BeginRequest) { r.Key = "order-3" },
				} {
					g := b.begin("uid:1001", change)
					if g.Standing == runtime.BeginSend || g.Permit != (runtime.Permit{}) {
						t.Errorf("another submitter, %s request: %+v", name, g)
					}
					if name == "other" && g.Result.TraceID == trace {
						t.Errorf("another submitter's begin is taken for the first's: %+v", g)
					}
				}
			})
		}
	}
}

// TestBeginsOfOneIDAtOnceAreOne: the first Begin makes the trace, and the others find it.
func TestBeginsOfOneIDAtOnceAreOne(t *testing.T) {
	b := &begins{t: t}
	b.open()
	var all [8]runtime.Begun
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() { all[i] = b.begin("uid:1000") })
	}
	wg.Wait()
	for _, g := range all {
		if g.Result.TraceID != all[0].Result.TraceID || g.Standing != runtime.BeginNeedsApproval {
			t.Errorf("%+v, first %+v", g, all[0])
		}
	}
	if got, want := b.rows(), "1 begin ids, 1 questions, 1 open traces"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestRefusedBeginLeavesNoID: a Begin that was refused and wrote nothing leaves its id free.
func TestRefusedBeginLeavesNoID(t *testing.T) {
	b := &begins{t: t}
	b.open()
	_, err := b.rt.Begin(t.Context(), runtime.BeginRequest{Request: charge(""), BeginID: "begin-1"}) // a write call without a key
	wantCode(t, err, tga.IdempotencyKeyRequired)
	if g := b.begin(""); g.Standing != runtime.BeginNeedsApproval {
		t.Errorf("%+v", g)
	}
}

// TestBeginOfALaterAttemptFindsItsTrace: a begin that got its attempt on the trace of another
// begin finds that trace also after the trace has ended.
func TestBeginOfALaterAttemptFindsItsTrace(t *testing.T) {
	policy := licence(ledger.DedupeArgs)
	policy.PermitTime = time.Minute
	b := setup(t, policy)
	first := b.begin("order-1", "begin-1")
	b.advance(time.Minute)
	second := b.begin("order-1", "begin-2")
	b.wantStanding(second, runtime.BeginSend)
	if _, err := b.finish(second, ok(`"paid"`)); err != nil {
		t.Fatal(err)
	}
	b.reopen()
	for _, id := range []string{"begin-1", "begin-2"} {
		again := b.begin("order-1", id)
		b.wantStanding(again, runtime.BeginServe)
		if again.Result.TraceID != first.Result.TraceID || !again.Result.Replayed || !again.Result.ServedFrom.IsZero() {
			t.Errorf("%s again: %+v", id, again.Result)
		}
	}
}

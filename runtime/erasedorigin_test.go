package runtime_test

import (
	"context"
	"testing"
	"time"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// TestErasedOriginOfAServedCall: the trace whose effect another trace was served is erased alone. Then
// nobody can confirm the changes any more, and the answer is gone. Whoever relies on it is told so: on a
// recovery, on a repeat or a replay by the served trace's id, under confirm_all too, and on a repeated Begin.
// A success without the answer would look like one whose tool said nothing. Whoever reads gets what is left.
func TestErasedOriginOfAServedCall(t *testing.T) {
	b, w := changing(t, park)
	origin := b.mustCall(charge("k"))
	served, begun := b.mustCall(charge("k")), b.begin("k", "begin-1")
	if served.ServedFrom != origin.TraceID || begun.Result.ServedFrom != origin.TraceID {
		t.Fatalf("%+v, %+v", served, begun)
	}
	b.erase(origin.TraceID)
	told := func(how string, res runtime.Result, err error) {
		t.Helper()
		if tga.CodeOf(err) != tga.IdempotencyKeyExpired || res.State != tga.Completed || res.Value != nil || res.Confirmation != nil {
			t.Errorf("%s: %+v, %v", how, res, err)
		}
	}
	again := charge("k")
	again.TraceID = served.TraceID
	for _, all := range []bool{false, true} {
		p := park
		p.ConfirmAll = all
		b.opts.Policy = func(string, string) runtime.Policy { return p }
		b.start()
		res, err := b.rt.Recover(t.Context(), served.TraceID)
		told("recovered", res, err)
		for _, again.Replay = range []bool{false, true} {
			res, err = b.call(again)
			told("repeated", res, err)
		}
		g, err := b.rt.Begin(t.Context(), runtime.BeginRequest{Request: charge("k"), BeginID: "begin-1"})
		told("begun", g.Result, err)
		if res, err = b.rt.Result(t.Context(), served.TraceID); err != nil || res.Status != tga.StatusSuccess || res.ServedFrom != origin.TraceID {
			t.Errorf("read: %+v, %v", res, err)
		}
	}
	if b.wantSends(1); w.looks != 0 {
		t.Errorf("%d looks at changes that are erased", w.looks)
	}
}

// TestRepeatOfAnErasedCall: retention erases ended calls every day, and their callers repeat. Each repeat is answered
// that the answer is gone, whichever way it names the call. None is told that the log is damaged, or that the call was
// never made. Another request, another namespace and another key learn nothing of the erased call.
func TestRepeatOfAnErasedCall(t *testing.T) {
	for name, change := range map[string][]func(*bench){"plain": nil, "sealed": {sealing(new(chaintest.Ring))}} {
		b := setup(t, park, change...)
		called, begun := b.mustCall(charge("called")), b.begin("begun", "begin-1")
		if _, err := b.finish(begun, ok(`"paid"`)); err != nil {
			t.Fatal(err)
		}
		b.erase(called.TraceID)
		b.erase(begun.Result.TraceID)
		call := func(change func(*runtime.Request)) func() error {
			req := charge("called")
			req.TraceID = called.TraceID
			change(&req)
			return func() error { _, err := b.call(req); return err }
		}
		begin := func(id string) func() error {
			return func() error {
				_, err := b.rt.Begin(t.Context(), runtime.BeginRequest{Request: charge("begun"), BeginID: id})
				return err
			}
		}
		for how, c := range map[string]struct {
			do   func() error
			want tga.Code
		}{
			"its trace id":      {call(func(*runtime.Request) {}), tga.IdempotencyKeyExpired},
			"its key":           {call(func(r *runtime.Request) { r.TraceID = tga.ID{} }), tga.IdempotencyKeyExpired},
			"a replay":          {call(func(r *runtime.Request) { r.Replay = true }), tga.IdempotencyKeyExpired},
			"other arguments":   {call(func(r *runtime.Request) { r.Args = []byte(`{"amount":101}`) }), tga.IdempotencyKeyConflict},
			"another namespace": {call(func(r *runtime.Request) { r.Namespace = "acme" }), tga.NotFound},
			"another key":       {call(func(r *runtime.Request) { r.Key = "begun" }), tga.NotFound},
			"its begin id":      {begin("begin-1"), tga.IdempotencyKeyExpired},
			"a further begin":   {begin("begin-2"), tga.IdempotencyKeyExpired},
			"its permit":        {func() error { _, err := b.finish(begun, ok(`"paid"`)); return err }, tga.IdempotencyKeyExpired},
			"its permit, unsent": {func() error {
				_, err := b.rt.NotSent(t.Context(), begun.Result.TraceID, begun.Permit, "away", 0)
				return err
			}, tga.IdempotencyKeyExpired},
			"a recovery": {func() error { _, err := b.rt.Recover(t.Context(), called.TraceID); return err }, tga.IdempotencyKeyExpired},
			"a delivery": {func() error { return b.rt.Delivered(t.Context(), called.TraceID) }, tga.IdempotencyKeyExpired},
		} {
			if err := c.do(); tga.CodeOf(err) != c.want {
				t.Errorf("%s, %s: %v, want %s", name, how, err, c.want)
			}
		}
		b.wantSends(1)
	}
}

func (b *bench) erase(trace tga.ID) {
	b.t.Helper()
	if _, err := b.db.Erase(context.Background(), engine.Erasure{Traces: []tga.ID{trace}, Who: "operator", Reason: "asked for"}); err != nil {
		b.t.Fatal(err)
	}
}

// TestTimerOfAnErasedTrace: a backup of a store is restored after the data key of a failed call was
// destroyed, and the call's timer is due. Nothing is sent, and the timer ends.
func TestTimerOfAnErasedTrace(t *testing.T) {
	for _, class := range []ledger.Class{ledger.ClassRetryable, ledger.ClassCompensatable} {
		ring := new(chaintest.Ring)
		p := park
		p.Retry, p.AutoCompensate = runtime.Backoff{First: time.Minute, Attempts: 3}, true
		b := setup(t, p, sealing(ring))
		b.tool.answer = func(int, runtime.Call) (runtime.Reply, error) {
			return runtime.Reply{Status: tga.StatusFailure, Class: class}, nil
		}
		res := b.mustCall(charge("k"))
		trace, err := b.db.Load(t.Context(), res.TraceID)
		if err != nil {
			t.Fatal(err)
		}
		if err := ring.Destroy(trace.Key); err != nil {
			t.Fatal(err)
		}
		b.reopen()
		b.fireAll()
		b.wantSends(1)
		for a, err := range b.db.Attachments(t.Context(), chain.AttachTimer, nil) {
			t.Errorf("%v: timer %s is left (%v)", class, a.Value, err)
		}
	}
}

// loads calls do before the load of a trace with number at, counted from 1. An error of do is that of the load.
type loads struct {
	runtime.Store
	trace tga.ID
	n, at int
	do    func() error
}

func (s *loads) Load(ctx context.Context, id tga.ID) (*chain.Trace, error) {
	if id == s.trace {
		if s.n++; s.n == s.at {
			if err := s.do(); err != nil {
				return nil, err
			}
		}
	}
	return s.Store.Load(ctx, id)
}

// TestErasedWhileItsDeliveryIsNoted: a trace whose delivery a Begin notes is erased before any load of it.
// The Begin is refused or answered.
func TestErasedWhileItsDeliveryIsNoted(t *testing.T) {
	for at := 1; ; at++ {
		c := withClients(t, licence(ledger.Park))
		c.come("A")
		done := c.beginAs("A")
		c.answer(done)
		s := &loads{Store: c.db, trace: done.Result.TraceID, at: at, do: func() error { c.erase(done.Result.TraceID); return nil }}
		c.store = s
		c.start()
		req := runtime.BeginRequest{Request: charge(""), BeginID: "next", Delivered: []tga.ID{done.Result.TraceID}}
		req.Connection = runtime.Connection{ID: "connection of A"}
		req.Args = []byte(`{"amount":7}`)
		b, err := c.rt.Begin(t.Context(), req)
		if s.n < at {
			if at < 3 {
				t.Errorf("only %d loads", at-1)
			}
			return
		}
		if at == 1 {
			wantCode(t, err, tga.NotFound)
		} else if err != nil || b.Standing != runtime.BeginSend {
			t.Errorf("erased before load %d: %v, %v", at, b.Standing, err)
		}
	}
}

// TestDamagedOriginIsNoOutage: if the trace whose effect is served cannot be read, the caller learns whether it
// is damaged or the store is unavailable, at whichever load that shows.
func TestDamagedOriginIsNoOutage(t *testing.T) {
	for _, want := range []tga.Code{tga.StateRecoveryFailed, tga.StoreUnavailable} {
		cause := tga.Errorf(want, "the load fails")
		b := setup(t, park)
		origin := b.mustCall(charge("k"))
		served := b.mustCall(charge("k"))
		at := 1
		for ; ; at++ {
			s := &loads{Store: b.db, trace: origin.TraceID, at: at, do: func() error { return cause }}
			b.store = s
			b.start()
			_, err := b.call(charge("k"))
			if s.n < at {
				break
			}
			if tga.CodeOf(err) != want {
				t.Errorf("load %d: %v, want %s", at, err, want)
			}
		}
		if at < 3 {
			t.Errorf("only %d loads", at-1)
		}
		b.store = &loads{Store: b.db, trace: origin.TraceID, at: 1, do: func() error { return cause }}
		b.start()
		_, err := b.rt.Result(t.Context(), served.TraceID)
		if tga.CodeOf(err) != want {
			t.Errorf("the result: %v, want %s", err, want)
		}
	}
}

// TestErasedCallBlocksNoRepeat: a call without a key is erased before its answer was delivered. If it did not run, the
// identical call is a new call. If it may have run, the client is told so or its person is asked, and after the window
// the identical call is a new one.
func TestErasedCallBlocksNoRepeat(t *testing.T) {
	const window = time.Minute
	for name, end := range map[string]struct {
		end func(*clients, runtime.Begun)
		ran bool
	}{
		"answered": {(*clients).answer, true},
		"failed": {func(c *clients, g runtime.Begun) {
			if _, err := c.finish(g, runtime.Reply{Status: tga.StatusFailure}); err != nil {
				t.Fatal(err)
			}
		}, true},
		"abandoned": {func(c *clients, g runtime.Begun) {
			if _, err := c.rt.Abandon(t.Context(), g.Result.TraceID, "ann", ""); err != nil {
				t.Fatal(err)
			}
		}, true},
		"did not run": {func(c *clients, g runtime.Begun) {
			if _, err := c.finish(g, didNotRun); err != nil {
				t.Fatal(err)
			}
		}, false},
		"not sent": {func(c *clients, g runtime.Begun) {
			if _, err := c.rt.NotSent(t.Context(), g.Result.TraceID, g.Permit, "refused", 0); err != nil {
				t.Fatal(err)
			}
		}, false},
	} {
		for _, who := range []string{"A", "B"} {
			p := licence(ledger.Park)
			p.RepeatWindow = window
			c := withClients(t, p)
			c.come("A")
			c.come("B")
			first := c.beginAs("A")
			end.end(c, first)
			if who != "A" {
				c.die("A")
			}
			c.erase(first.Result.TraceID)
			c.reopen()
			if !end.ran {
				again := c.beginAs(who)
				if c.wantStanding(again, runtime.BeginSend); again.Result.TraceID == first.Result.TraceID {
					t.Errorf("%s, %s: it is the first call", name, who)
				}
				continue
			}
			told := c.beginAs(who)
			c.wantStanding(told, runtime.BeginInDoubt)
			wantCode(t, told.Cause, tga.EffectInDoubt)
			asked := c.beginAs(who, func(r *runtime.BeginRequest) { r.Connection.Asks = true })
			if c.wantStanding(asked, runtime.BeginInDoubt); !asked.Ask || told.Ask || asked.Result.TraceID != first.Result.TraceID {
				t.Errorf("%s, %s: asked %v of %s, told %v", name, who, asked.Ask, asked.Result.TraceID, told.Ask)
			}
			if who == "A" {
				c.wantStanding(c.beginAs(who, func(r *runtime.BeginRequest) { r.Connection.Again = first.Result.TraceID }), runtime.BeginSend)
				continue
			}
			c.advance(window + time.Millisecond)
			c.wantStanding(c.beginAs(who), runtime.BeginSend)
		}
	}
}

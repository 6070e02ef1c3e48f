package runtime_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

var errHTTP = tga.Errorf(tga.ToolError, "HTTP 500: the call may have run")

// TestCauseOfADoubtIsDurable: the reason why a send has no certain answer is on disk. It costs one
// append if the call is left in doubt, none if another append follows, and none if the call is
// answered.
func TestCauseOfADoubtIsDurable(t *testing.T) {
	for _, c := range []struct {
		name    string
		policy  runtime.Policy
		answer  func(int, runtime.Call) (runtime.Reply, error)
		appends int // of request, decision and call; cause; mark; effect
		cause   string
	}{
		{"answered", park, nil, 2, ""},
		{"parked", park, func(int, runtime.Call) (runtime.Reply, error) { return runtime.Reply{}, errHTTP }, 2, "HTTP 500"},
		{"sent again", licence(ledger.DedupeArgs), func(n int, _ runtime.Call) (runtime.Reply, error) {
			if n == 1 {
				return runtime.Reply{}, errHTTP
			}
			return ok(`1`), nil
		}, 3, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var events []runtime.Event
			b := setup(t, c.policy, func(b *bench) {
				b.opts.Observe = func(e runtime.Event) {
					if e.Kind != runtime.EventSettled {
						events = append(events, e)
					}
				}
			})
			store := &counted{Store: b.db}
			b.store = store
			b.start()
			b.tool.answer = c.answer
			res, err := b.call(charge("order-1"))
			if store.appends != c.appends {
				t.Errorf("%d appends, want %d", store.appends, c.appends)
			}
			notes := 0
			trace, lerr := b.db.Load(context.Background(), res.TraceID)
			if lerr != nil {
				t.Fatal(lerr)
			}
			for _, n := range trace.Notes {
				if n.Kind == tga.NoteDoubt {
					notes++
				}
			}
			if doubts := min(1, b.tool.sends()*len(events)); notes != doubts || len(events) != doubts {
				t.Errorf("%d notes of %d events", notes, len(events))
			}
			for _, e := range events {
				if e.Kind != runtime.EventDoubt || e.Tool != "charge" || e.Server != "payments" || e.Code != tga.ToolError || e.Attempt != 1 || !strings.Contains(e.Cause, "HTTP 500") {
					t.Errorf("event %+v", e)
				}
			}
			if c.cause == "" {
				if err != nil || runtime.DoubtCause(trace) != "" {
					t.Errorf("%v, cause %q", err, runtime.DoubtCause(trace))
				}
				return
			}
			// The answer has it now, to a repeat, and after a restart.
			for n := range 3 {
				wantCode(t, err, tga.EffectInDoubt)
				if !strings.Contains(err.Error(), c.cause) {
					t.Errorf("answer %d: %v", n, err)
				}
				if n == 1 {
					b.store = nil
					b.reopen()
				}
				if n == 0 {
					_, err = b.call(charge("order-1"))
				} else {
					_, err = b.rt.Recover(context.Background(), res.TraceID)
				}
			}
		})
	}
}

// TestCauseIsOfTheNewestAttempt: the cause of an earlier attempt is not given for a newer attempt
// that a crash cut off.
func TestCauseIsOfTheNewestAttempt(t *testing.T) {
	b := setup(t, licence(ledger.DedupeArgs))
	b.tool.answer = func(n int, _ runtime.Call) (runtime.Reply, error) {
		if n == 1 {
			return runtime.Reply{}, errHTTP
		}
		return ok(`1`), nil
	}
	b.store = &counted{Store: b.db, crashAt: 3}
	b.start()
	res, _ := b.call(charge("order-1"))
	b.reopen()
	trace, err := b.db.Load(context.Background(), res.TraceID)
	if err != nil || len(trace.Notes) != 2 || runtime.DoubtCause(trace) != "" {
		t.Errorf("%d notes, cause %q, %v", len(trace.Notes), runtime.DoubtCause(trace), err)
	}
}

// TestAttemptsAgree: the numbers of attempts in an answer agree with those in the ledger and in
// the list of calls in doubt.
func TestAttemptsAgree(t *testing.T) {
	ctx := context.Background()
	for name, c := range map[string]struct {
		policy       runtime.Policy
		answer       func(int, runtime.Call) (runtime.Reply, error)
		marked, sent uint32
	}{
		"answered":           {park, nil, 1, 1},
		"in doubt":           {park, unknown, 1, 1},
		"not sent":           {park, downUntil(9), 1, 0},
		"sent again, failed": {licence(ledger.DedupeArgs), unknown, 1 + runtime.DefaultResends, 1 + runtime.DefaultResends},
		"lost, then not sent": {licence(ledger.DedupeArgs), func(n int, _ runtime.Call) (runtime.Reply, error) {
			if n == 1 {
				return runtime.Reply{}, errReset
			}
			return runtime.Reply{}, errDial
		}, 2, 1},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t, c.policy)
			b.tool.answer = c.answer
			res, _ := b.call(charge("order-1"))
			if res.Attempts != c.marked || res.Sent != c.sent {
				t.Errorf("the answer says %d attempts, %d sent, want %d and %d", res.Attempts, res.Sent, c.marked, c.sent)
			}
			record, err := b.db.Record(ctx, ledger.Key{Namespace: tga.DefaultNamespace, Server: "payments", Tool: "charge", Key: "order-1"})
			if err != nil || record.Attempts.Count != res.Attempts || record.Attempts.Count-record.Attempts.Unsent != res.Sent {
				t.Errorf("the record says %+v, %v", record.Attempts, err)
			}
			list, err := b.rt.InDoubt(ctx)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range list {
				if d.Record.Attempts.Count != res.Attempts {
					t.Errorf("the list of doubt says %d", d.Record.Attempts.Count)
				}
			}
			later, err := b.rt.Result(ctx, res.TraceID)
			if err != nil || later.Attempts != res.Attempts || later.Sent != res.Sent {
				t.Errorf("read again: %+v, %v", later, err)
			}
		})
	}
}

// TestDoubtThatCannotBeNotedIsTold: the store fails when the cause is written. The answer is
// still doubt, and has both errors.
func TestDoubtThatCannotBeNotedIsTold(t *testing.T) {
	b := setup(t, park)
	b.tool.answer = func(int, runtime.Call) (runtime.Reply, error) { return runtime.Reply{}, errHTTP }
	b.store = &counted{Store: b.db, crashAt: 2}
	b.start()
	_, err := b.call(charge("order-1"))
	wantCode(t, err, tga.EffectInDoubt)
	if !errors.Is(err, tga.StoreUnavailable) || !strings.Contains(err.Error(), "HTTP 500") {
		t.Errorf("%v", err)
	}
}

// TestEndOfADoubtIsTold: the end of a doubt is reported once, with the time since the first send without
// an answer. This holds for a call that is sent again, also by another process, for one that a person
// settles, and for one whose executor died. For a call that was never in doubt nothing is reported.
func TestEndOfADoubtIsTold(t *testing.T) {
	ctx := context.Background()
	resolve := func(b *bench, trace tga.ID) error {
		_, err := b.rt.Resolve(ctx, trace, runtime.Resolution{Reply: ok(`1`), Who: "ann", Evidence: []byte(`{}`)})
		return err
	}
	for _, c := range []struct {
		name   string
		policy runtime.Policy
		first  func(b *bench) tga.ID
		end    func(b *bench, trace tga.ID) error
		told   int
	}{
		{"never", park, func(b *bench) tga.ID {
			b.tool.answer = nil
			return b.mustCall(charge("k")).TraceID
		}, func(*bench, tga.ID) error { return nil }, 0},
		{"by a person", park, func(b *bench) tga.ID {
			res, err := b.call(charge("k"))
			wantCode(t, err, tga.EffectInDoubt)
			return res.TraceID
		}, resolve, 1},
		{"sent again after a restart", runtime.Policy{Licence: ledger.Licence{Kind: ledger.DedupeArgs}, LicenceSet: true, Resends: -1}, func(b *bench) tga.ID {
			res, err := b.call(charge("k"))
			wantCode(t, err, tga.EffectInDoubt)
			b.reopen()
			return res.TraceID
		}, func(b *bench, trace tga.ID) error {
			b.tool.answer = nil
			_, err := b.rt.Recover(ctx, trace)
			return err
		}, 1},
		{"in doubt twice", runtime.Policy{Licence: ledger.Licence{Kind: ledger.DedupeArgs}, LicenceSet: true, Resends: -1}, func(b *bench) tga.ID {
			res, err := b.call(charge("k"))
			wantCode(t, err, tga.EffectInDoubt)
			return res.TraceID
		}, func(b *bench, trace tga.ID) error {
			_, err := b.rt.Recover(ctx, trace)
			wantCode(t, err, tga.EffectInDoubt)
			b.tool.answer = nil
			_, err = b.rt.Recover(ctx, trace)
			return err
		}, 1},
		{"of an executor that died", park, func(b *bench) tga.ID {
			begun, err := b.rt.Begin(ctx, runtime.BeginRequest{Request: charge("k"), BeginID: "b"})
			if err != nil || begun.Standing != runtime.BeginSend {
				t.Fatal(begun.Standing, err)
			}
			return begun.Result.TraceID
		}, resolve, 1},
	} {
		var events []runtime.Event
		b := setup(t, c.policy, func(b *bench) {
			b.tool.answer = unknown
			b.opts.Observe = func(e runtime.Event) {
				if e.Kind == runtime.EventSettled {
					events = append(events, e)
				}
			}
		})
		trace := c.first(b)
		b.advance(time.Minute)
		if err := c.end(b, trace); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		b.wantState(trace, tga.Completed)
		if len(events) != c.told || c.told == 1 && (events[0].After != time.Minute || events[0].TraceID != trace || events[0].Tool != "charge") {
			t.Errorf("%s: told %+v", c.name, events)
		}
		b.close()
	}
}

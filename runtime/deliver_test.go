package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

func other(amount int) func(*runtime.BeginRequest) {
	return func(r *runtime.BeginRequest) { r.Args = fmt.Appendf(nil, `{"amount":%d}`, amount) }
}

func noting(all ...runtime.Begun) func(*runtime.BeginRequest) {
	return func(r *runtime.BeginRequest) {
		for _, g := range all {
			r.Delivered = append(r.Delivered, g.Result.TraceID)
		}
	}
}

// TestBeginNotesWhatWasDelivered: whatever the answer of a Begin is, the deliveries that it names
// are noted once it is answered, and an identical call is a new call, also after a restart.
func TestBeginNotesWhatWasDelivered(t *testing.T) {
	for _, row := range []struct {
		name   string
		change []func(*runtime.BeginRequest)
		want   runtime.Standing
	}{
		{"another call", []func(*runtime.BeginRequest){other(1)}, runtime.BeginSend},
		{"the same call", nil, runtime.BeginSend},
		{"a call with a key", []func(*runtime.BeginRequest){other(1), func(r *runtime.BeginRequest) { r.Key = "k" }}, runtime.BeginSend},
		{"a call of the same key", []func(*runtime.BeginRequest){other(2), func(r *runtime.BeginRequest) { r.Key = "taken" }}, runtime.BeginConflict},
		{"the same begin again", []func(*runtime.BeginRequest){other(3), func(r *runtime.BeginRequest) { r.BeginID = "begin 3" }}, runtime.BeginSend},
		{"a call in doubt", []func(*runtime.BeginRequest){other(4)}, runtime.BeginInDoubt},
		{"a call that is answered", []func(*runtime.BeginRequest){other(5)}, runtime.BeginServe},
	} {
		t.Run(row.name, func(t *testing.T) {
			policy := licence(ledger.Park)
			policy.PermitTime = time.Hour
			c := withClients(t, policy)
			c.come("A")
			first := c.beginAs("A")
			c.answer(first)
			giveUp(c, c.beginAs("A", other(4)))
			c.beginAs("A", other(3)) // open, with a fresh permit
			c.beginAs("A", other(1), func(r *runtime.BeginRequest) { r.Key = "taken" })
			c.answer(c.beginAs("A", other(5)))
			// The identical call is a repeat of first until first is delivered.
			b := c.beginAs("A", append(row.change, noting(first))...)
			c.wantStanding(b, row.want)
			if row.name == "the same call" {
				c.answer(b)
				c.deliver(b)
			}
			c.reopen()
			again := c.beginAs("A")
			c.wantStanding(again, runtime.BeginSend)
			if again.Result.TraceID == first.Result.TraceID {
				t.Error("the identical call is a repeat of one whose answer was delivered")
			}
		})
	}
}

// TestBeginNotesInItsOwnAppend counts appends: the delivery notes cost no append of their own.
func TestBeginNotesInItsOwnAppend(t *testing.T) {
	c := withClients(t, licence(ledger.Park))
	c.come("A")
	var all []runtime.Begun
	for i := range runtime.MaxDelivered {
		g := c.beginAs("A", other(i))
		c.answer(g)
		all = append(all, g)
	}
	before := c.db.Stats().Appends
	c.wantStanding(c.beginAs("A", other(-1), noting(all...)), runtime.BeginSend)
	if n := c.db.Stats().Appends - before; n != 1 {
		t.Errorf("%d appends for a begin with %d notes, want 1", n, len(all))
	}
	for i := range all {
		if b := c.beginAs("A", other(i)); b.Result.TraceID == all[i].Result.TraceID {
			t.Fatalf("answer %d was not noted as delivered", i)
		}
	}
}

// TestBeginRefusesWhatWasNotDelivered: the refusal comes before anything is written.
func TestBeginRefusesWhatWasNotDelivered(t *testing.T) {
	c := withClients(t, licence(ledger.Park))
	c.come("A")
	open := c.beginAs("A", other(1))
	done := c.beginAs("A", other(2))
	c.answer(done)
	none, err := tga.ParseID("01936a8b-4c2d-7000-8000-000000000001")
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := c.rt.Begin(context.Background(), runtime.BeginRequest{Request: func() runtime.Request {
		r := charge("k")
		r.Namespace = "other"
		return r
	}(), BeginID: "foreign"})
	if err != nil {
		t.Fatal(err)
	}
	c.answer(foreign)
	for _, row := range []struct {
		name string
		ids  []tga.ID
		want error
	}{
		{"an open call", []tga.ID{done.Result.TraceID, open.Result.TraceID}, tga.StateInvalidTransition},
		{"no such call", []tga.ID{none}, tga.NotFound},
		{"another namespace's", []tga.ID{foreign.Result.TraceID}, tga.NotFound},
		{"too many", slices.Repeat([]tga.ID{done.Result.TraceID}, runtime.MaxDelivered+1), tga.ValidationError},
		{"as many as may be", slices.Repeat([]tga.ID{done.Result.TraceID}, runtime.MaxDelivered), nil},
	} {
		appends := c.db.Stats().Appends
		_, err := c.rt.Begin(context.Background(), runtime.BeginRequest{Request: charge("of " + row.name), BeginID: row.name, Delivered: row.ids})
		if row.want == nil && err != nil || row.want != nil && !errors.Is(err, row.want) {
			t.Errorf("%s: %v, want %v", row.name, err, row.want)
		}
		if row.want != nil && c.db.Stats().Appends != appends {
			t.Errorf("%s: something was written", row.name)
		}
	}
}

// TestBeginsThatNoteEachOthersIdentity: neither waits for the other.
func TestBeginsThatNoteEachOthersIdentity(t *testing.T) {
	c := withClients(t, licence(ledger.Park))
	c.come("A")
	c.come("B")
	done := map[string]runtime.Begun{}
	for round := range 20 {
		var wg sync.WaitGroup
		var mu sync.Mutex
		next := map[string]runtime.Begun{}
		for i, name := range []string{"A", "B"} {
			req := runtime.BeginRequest{
				Request: charge(""), BeginID: fmt.Sprint(name, round),
				Connection: runtime.Connection{ID: "connection of " + name, Lock: name, Executor: name},
			}
			other((i + round) % 2)(&req)
			if g, ok := done[name]; ok {
				noting(g)(&req)
			}
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
				defer cancel()
				b, err := c.rt.Begin(ctx, req)
				if err != nil || b.Standing != runtime.BeginSend {
					t.Errorf("round %d, %s: %v %v", round, name, b.Standing, err)
					return
				}
				if _, err := c.finish(b, ok(`"paid"`)); err != nil {
					t.Error(err)
				}
				mu.Lock()
				next[name] = b
				mu.Unlock()
			})
		}
		wg.Wait()
		if t.Failed() {
			return
		}
		done = next
	}
}

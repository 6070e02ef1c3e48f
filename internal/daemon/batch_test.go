package daemon

import (
	"fmt"
	"testing"
	"time"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
	"github.com/tgad/tgad/wal/chain"
)

// TestBatchIsItsAppendsInTheirOrder: items of many traces are under way at the same time, a later item of
// a trace sees the earlier one, a refused item does not affect the others, and the store has every
// append that was answered.
func TestBatchIsItsAppendsInTheirOrder(t *testing.T) {
	b := start(t, "")
	ctx := t.Context()
	const traces = 8
	chains, leases := make([]callChain, traces), make([]wire.Lease, traces)
	var items []wire.BatchItem
	var want []string // state of the answer, or code of the refusal
	add := func(c callChain, r wire.AppendRequest, answer string) {
		items = append(items, wire.BatchItem{TraceID: c.trace, AppendRequest: r})
		want = append(want, answer)
	}
	for i := range chains {
		chains[i] = mintChain(t, fmt.Sprint("k", i), nil)
		var err error
		if leases[i], err = b.client.Lease(ctx, chains[i].trace, time.Minute); err != nil {
			t.Fatal(err)
		}
		add(chains[i], chains[i].begin(leases[i].Lease), "EXECUTING")
	}
	rival := mintChain(t, "k0", nil) // the key that the first item takes
	lease, err := b.client.Lease(ctx, rival.trace, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	add(rival, rival.begin(lease.Lease), string(tga.IdempotencyKeyInFlight))
	add(chains[0], chains[0].end(leases[0].Lease), "COMPLETED")
	add(chains[1], chains[1].end("no lease"), string(tga.StateLockAcquireFailed))
	add(chains[1], wire.AppendRequest{Lease: leases[1].Lease}, string(tga.ValidationError))
	add(chains[1], chains[1].end(leases[1].Lease), "COMPLETED")
	add(chains[0], chains[0].end(leases[0].Lease), "COMPLETED") // again: it is there

	answers, err := b.client.AppendBatch(ctx, items)
	if err != nil || len(answers) != len(items) {
		t.Fatalf("%d answers: %v", len(answers), err)
	}
	for i, a := range answers {
		got := ""
		switch {
		case (a.Appended == nil) == (a.Problem == nil):
			t.Errorf("item %d: an answer and a problem, or neither: %+v", i, a)
		case a.Problem != nil:
			got = string(a.Problem.Code)
		default:
			got = a.Appended.Head.State
		}
		if got != want[i] {
			t.Errorf("item %d: %s, want %s: %+v", i, got, want[i], a.Problem)
		}
		if last := i == len(answers)-1; a.Appended != nil && a.Appended.Replayed != last {
			t.Errorf("item %d: replayed %v", i, a.Appended.Replayed)
		}
	}
	for i, c := range chains {
		state := "EXECUTING"
		if i < 2 {
			state = "COMPLETED"
		}
		if s, err := b.client.State(ctx, c.trace); err != nil || s.Current.String() != state {
			t.Errorf("trace %d: %+v %v, want %s", i, s, err, state)
		}
	}
}

// TestBatchCannotSlipADecisionPastItsRequest: a decision is checked together with its request, also if
// the request is the item before it and not on disk yet. Without the request, the check would not
// require a signature.
func TestBatchCannotSlipADecisionPastItsRequest(t *testing.T) {
	b := start(t, "")
	c := mintChain(t, "k", nil).decided(t, tga.Approve, "")
	lease, err := b.client.Lease(t.Context(), c.trace, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	answers, err := b.client.AppendBatch(t.Context(), []wire.BatchItem{
		{TraceID: c.trace, AppendRequest: appending(lease.Lease, c.request)},
		{TraceID: c.trace, AppendRequest: appending(lease.Lease, c.decision)},
	})
	if err != nil || answers[0].Appended == nil || answers[1].Problem == nil || answers[1].Problem.Code != tga.CapabilityInvalid {
		t.Errorf("%+v, %v", answers, err)
	}
	if s, err := b.client.State(t.Context(), c.trace); err != nil || s.Current != tga.Pending {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestAppendCannotSlipADecisionPastItsRequest: likewise if the request is another append, which the store
// takes after the daemon has read the trace for the check of the decision. The peer made the entry of the
// request itself, so it knows the head that the decision expects.
func TestAppendCannotSlipADecisionPastItsRequest(t *testing.T) {
	b, s := startShared(t, "")
	c := mintChain(t, "k", nil).decided(t, tga.Approve, "")
	lease, err := b.client.Lease(t.Context(), c.trace, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	fold, entry := chain.NewTrace(c.trace), chain.Entry{Artifact: c.request}
	if err := fold.Extend(&entry, c.request.TS); err != nil {
		t.Fatal(err)
	}
	request, decision := appending(lease.Lease, c.request), appending(lease.Lease, c.decision)
	request.Artifacts[0].Entry = entry.AppendCanonical(nil)
	decision.Expect = &wire.Expect{Seq: fold.Head.Seq, Digest: fold.Head.Digest}
	s.mu.Lock()
	s.loaded = func() {
		if _, err := b.client.Append(t.Context(), c.trace, request); err != nil {
			t.Error(err)
		}
	}
	s.mu.Unlock()
	_, err = b.client.Append(t.Context(), c.trace, decision)
	wantCode(t, err, tga.StateSequenceGap)
	if s, err := b.client.State(t.Context(), c.trace); err != nil || s.Current != tga.Pending {
		t.Errorf("%+v, %v", s, err)
	}
	_, err = b.client.Append(t.Context(), c.trace, decision)
	wantCode(t, err, tga.CapabilityInvalid)
}

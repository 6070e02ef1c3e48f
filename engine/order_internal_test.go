package engine

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal"
	"github.com/tgad/tgad/wal/chain"
)

// TestLeavesAreWithoutGaps: a page of the order has every leaf that was asked for, or is refused: where
// the log ends before the last one, and where it is read from behind the first one.
func TestLeavesAreWithoutGaps(t *testing.T) {
	db := inMemory(t)
	for i := range uint64(4) {
		id := numbered(1, i)
		id[6], id[8] = 0x70, 0x80 // version 7
		lease, err := db.Acquire(context.Background(), id)
		if err != nil {
			t.Fatal(err)
		}
		a := requestOf(t, id)
		if _, err := db.Append(context.Background(), lease, chain.Batch{Artifacts: []chain.NewArtifact{{Artifact: a}}}); err != nil {
			t.Fatal(err)
		}
	}
	list, at, err := db.index.leaves(wal.Position{}, 1, 4)
	if err != nil || len(list) != 4 {
		t.Fatalf("%v, %v", list, err)
	}
	for what, read := range map[string]func() ([]Leaf, wal.Position, error){
		"2 leaves from 3, want 3": func() ([]Leaf, wal.Position, error) { return db.index.leaves(wal.Position{}, 3, 5) },
		"leaf 4 follows 1":        func() ([]Leaf, wal.Position, error) { return db.index.leaves(at, 2, 4) },
	} {
		if _, _, err := read(); tga.CodeOf(err) != tga.StateChecksumMismatch || !strings.Contains(err.Error(), what) {
			t.Errorf("want %q: %v", what, err)
		}
	}
}

func requestOf(t *testing.T, trace tga.ID) *tga.Artifact {
	t.Helper()
	a := &tga.Artifact{Type: tga.RequestType, ID: trace, TraceID: trace, PlanID: trace, TS: 1, Meta: tga.Meta{tga.MetaNonce: trace.String()}}
	a.Request = &tga.ActionRequest{
		AgentID: trace, RiskLevel: tga.RiskWrite, Intent: "try the order",
		Resources: []tga.Resource{{Kind: "service", ID: "payments"}}, IdempotencyKey: trace.String(),
		Proposal: tga.Proposal{ToolServer: "payments", ToolName: "charge", Args: []byte(`{}`)},
	}
	if err := a.Seal(); err != nil {
		t.Fatal(err)
	}
	return a
}

// begun is a store with the lease of a trace, and the first batch of it.
func begun(t *testing.T) (*DB, chain.Lease, chain.Batch) {
	t.Helper()
	db := inMemory(t)
	id := numbered(1, 1)
	id[6], id[8] = 0x70, 0x80 // version 7
	lease, err := db.Acquire(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return db, lease, chain.Batch{Artifacts: []chain.NewArtifact{{Artifact: requestOf(t, id)}}}
}

// TestFollowFromBehindAPage: whoever goes on behind more leaves than a page has, or from the start, gets
// all that follow, in order, over the ends of pages.
func TestFollowFromBehindAPage(t *testing.T) {
	db, lease, b := begun(t)
	id := lease.TraceID
	var last Ticket
	const n = 2*leafPage + 3
	for range n {
		var err error
		if last, err = db.Submit(t.Context(), lease, b); err != nil {
			t.Fatal(err)
		}
		b = chain.Batch{Attachments: []chain.Attachment{{Kind: chain.AttachApproval, Key: id[:], Value: []byte("yes")}}}
	}
	if _, err := last.Wait(); err != nil {
		t.Fatal(err)
	}
	for _, after := range []uint64{0, 1, leafPage, leafPage + 6, n - 1} {
		next := after
		for l, err := range db.Follow(t.Context(), after) {
			if err != nil || l.Index != next+1 {
				t.Fatalf("after %d: leaf %d behind leaf %d, %v", after, l.Index, next, err)
			}
			if next++; next == n {
				break
			}
		}
	}
	ended, end := context.WithCancel(t.Context())
	end()
	for l, err := range db.Follow(ended, n) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("after the last one: leaf %d, %v", l.Index, err)
		}
	}
}

// TestRecentLeavesAreThoseOfTheLog: who keeps up gets from memory what the log has, and nothing from
// there that is not durable, was overwritten, or came before anybody followed.
func TestRecentLeavesAreThoseOfTheLog(t *testing.T) {
	serial.Test(t)
	db, lease, b := begun(t)
	id := lease.TraceID
	grow := func(to uint64) {
		t.Helper()
		for last := db.Cursor(); last < to; last++ {
			ticket, err := db.Submit(t.Context(), lease, b)
			if err == nil && last+1 == to {
				_, err = ticket.Wait()
			}
			if err != nil {
				t.Fatal(err)
			}
			b = chain.Batch{Attachments: []chain.Attachment{{Kind: chain.AttachApproval, Key: id[:], Value: []byte("yes")}}}
		}
	}
	const before = 3
	const end = before + recentLeaves + 10
	grow(before)
	if got := db.order.remembered(1, before, make([]Leaf, recentLeaves)); got != nil {
		t.Errorf("nobody followed: %d leaves in memory", len(got))
	}
	for range db.Follow(t.Context(), 0) {
		break
	}
	grow(before + 5)
	for _, first := range []uint64{before, before + 1} {
		if got := db.order.remembered(first, before+5, make([]Leaf, recentLeaves)); (got != nil) != (first > before) {
			t.Errorf("from %d: %d leaves in memory, the first one is %d", first, len(got), before+1)
		}
	}
	grow(end)
	const oldest = end - recentLeaves + 1
	for _, first := range []uint64{oldest - 1, oldest} {
		if got := db.order.remembered(first, first+2, make([]Leaf, recentLeaves)); (got != nil) != (first == oldest) {
			t.Errorf("from %d: %d leaves in memory, the oldest one is %d", first, len(got), oldest)
		}
	}
	want, _, err := db.index.leaves(wal.Position{}, oldest, end)
	if err != nil {
		t.Fatal(err)
	}
	if got := db.order.remembered(oldest, end, make([]Leaf, recentLeaves)); !slices.Equal(got, want) {
		t.Errorf("memory has %d leaves, the log %d, and they differ", len(got), len(want))
	}
	db.order.place(Leaf{})
	if got := db.order.remembered(end, end+1, make([]Leaf, recentLeaves)); got != nil {
		t.Errorf("%d leaves, one of which is not durable", len(got))
	}
}

// TestNewestLandmarkNotBehindAnIndex: the one of the index itself counts, that of the next one does not,
// and before the first one the log is read from its start.
func TestNewestLandmarkNotBehindAnIndex(t *testing.T) {
	db := inMemory(t)
	place := func(n uint64) wal.Position { return wal.Position{Segment: 1, Group: n} }
	lower, upper := keyspace.GlobalBounds()
	if err := db.index.p.DeleteRange(lower, upper, pebble.NoSync); err != nil {
		t.Fatal(err)
	}
	for _, n := range []uint64{5, 6, 9} {
		db.PutRow(keyspace.AppendGlobal(nil, n), appendPlace([]byte{rowValue, tga.StoreValueVersion}, place(n)))
	}
	for index, want := range map[uint64]wal.Position{4: {}, 5: place(5), 6: place(6), 7: place(6), 8: place(6), 9: place(9), 100: place(9)} {
		if at, err := db.index.landmark(index); err != nil || at != want {
			t.Errorf("for leaf %d: %+v, %v", index, at, err)
		}
	}
	db.PutRow(keyspace.AppendGlobal(nil, 9), []byte{rowValue, tga.StoreValueVersion})
	if at, err := db.index.landmark(9); at != (wal.Position{}) || tga.CodeOf(err) != tga.StateChecksumMismatch {
		t.Errorf("of a row that is none: %+v, %v", at, err)
	}
}

// TestOrderWakesWhenItGrows, and not for what was durable before.
func TestOrderWakesWhenItGrows(t *testing.T) {
	var o order
	o.init(5)
	last, grown := o.wait()
	woken := func() bool {
		select {
		case <-grown:
			return true
		default:
			return false
		}
	}
	for _, to := range []uint64{0, 4, 5} {
		if o.grow(to); woken() || o.durable() != 5 || last != 5 {
			t.Errorf("grown to %d: woken %v, %d are durable", to, woken(), o.durable())
		}
	}
	if o.grow(6); !woken() || o.durable() != 6 {
		t.Errorf("grown to 6: woken %v, %d are durable", woken(), o.durable())
	}
	o.grow(7) // nobody waits
	if last, _ := o.wait(); last != 7 {
		t.Errorf("%d are durable", last)
	}
}

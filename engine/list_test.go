package engine_test

import (
	"context"
	"slices"
	"testing"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
)

// TestListOfAllTraces: every trace is in the list once and in order, wherever it is kept, and
// however many pages that takes; one that cannot be read is there with the reason.
func TestListOfAllTraces(t *testing.T) {
	serial.Test(t)
	// Most are archived, or few: a page of either kind may end before one of the other.
	for _, archived := range [][]uint64{{1, 2, 3, 5, 6}, {1, 2, 3}} {
		listOfAll(t, archived)
	}
}

func listOfAll(t *testing.T, archived []uint64) {
	db := mem(t)
	ctx := context.Background()
	const n = 1200 // over two pages
	want := map[tga.ID]tga.State{}
	denied := func(rests ...uint64) {
		for i := uint64(1); i <= n; i++ {
			if !slices.Contains(rests, i%8) {
				continue
			}
			m := spec{trace: id(i), verdict: tga.Deny}.make(t)
			lease := acquire(t, db, id(i))
			append_(t, db, lease, m.batch(m.request, m.decision))
			db.Release(lease)
			want[id(i)] = tga.Denied
		}
	}
	denied(archived...)
	if done, err := db.SealTraces(ctx, start+1); err != nil || done.Traces != n/8*len(archived) {
		t.Fatalf("%+v, %v", done, err)
	}
	for rest := range uint64(7) {
		if rest++; !slices.Contains(archived, rest) {
			denied(rest)
		}
	}
	for i := uint64(8); i <= n; i += 8 {
		append_(t, db, acquire(t, db, id(i)), spec{trace: id(i)}.make(t).begin())
		want[id(i)] = tga.Executing
	}
	list := func(after tga.ID) (all []engine.Listed) {
		t.Helper()
		for l, err := range db.Traces(ctx, after) {
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, l)
		}
		return all
	}
	all := list(tga.ID{})
	if len(all) != n || !slices.IsSortedFunc(all, func(a, b engine.Listed) int { return slices.Compare(a.TraceID[:], b.TraceID[:]) }) {
		t.Fatalf("%d traces, want %d in order", len(all), n)
	}
	for i, l := range all {
		tr, err := db.Load(ctx, l.TraceID)
		if err != nil || l.Err != nil || l.Listing != tr.Listing() || l.State != want[l.TraceID] || l.Tool == "" || l.Key == "" || l.Since != start {
			t.Fatalf("trace %d: %+v, %v", i, l, err)
		}
		if l.ToolCallID.IsZero() != (l.State == tga.Denied) {
			t.Errorf("%s: tool call %s", l.State, l.ToolCallID)
		}
	}
	for _, at := range []int{0, 255, 256, 409, 683, n - 2, n - 1} {
		if rest := list(all[at].TraceID); !slices.Equal(rest, all[at+1:]) {
			t.Errorf("after trace %d there are %d", at, len(rest))
		}
	}
	for l, err := range db.Traces(ctx, tga.ID{}) {
		if l.TraceID != all[0].TraceID || err != nil {
			t.Errorf("%+v, %v", l, err)
		}
		break
	}
	stopped, cancel := context.WithCancel(ctx)
	cancel()
	for _, err := range db.Traces(stopped, tga.ID{}) {
		if err != context.Canceled {
			t.Errorf("%v", err)
		}
	}

	// While a trace is being archived it has both, for a moment.
	stone := keyspace.AppendTombstone(nil, all[3].TraceID)
	db.PutRow(stone, []byte("a tombstone"))
	if again := list(tga.ID{}); !slices.Equal(again, all) {
		t.Errorf("%d traces with one that has entries and a tombstone", len(again))
	}
	db.PutRow(stone, nil)

	key := keyspace.AppendEntry(nil, all[3].TraceID, 1)
	row := []byte(db.Rows()[string(key)])
	db.PutRow(key, []byte("no row"))
	db.DropCaches()
	broken := list(tga.ID{})
	if len(broken) != n || tga.CodeOf(broken[3].Err) != tga.StateRecoveryFailed || broken[3].TraceID != all[3].TraceID || !slices.Equal(broken[4:], all[4:]) {
		t.Errorf("%d traces, the fourth is %+v", len(broken), broken[3])
	}
	db.PutRow(key, row)
}

package engine_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// A follower that begins anywhere gets every append after its cursor, once, in order,
// and is woken for those to come.
func TestFollowYieldsEveryAppendOnce(t *testing.T) {
	db := mem(t)
	const writers, each = 8, 50
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var followers, appends sync.WaitGroup
	for range 4 {
		followers.Go(func() {
			next := uint64(1)
			entries := 0
			for leaf, err := range db.Follow(ctx, 0) {
				if err != nil {
					t.Error(err)
					return
				}
				if leaf.Index != next {
					t.Errorf("leaf %d, want %d", leaf.Index, next)
					return
				}
				st, err := db.State(ctx, leaf.TraceID)
				if err != nil || st.LastSeq < leaf.FirstSeq+uint64(leaf.Entries)-1 {
					t.Errorf("leaf %d shown before its entries: %+v, %v", leaf.Index, st, err)
				}
				next++
				if entries += int(leaf.Entries); entries == writers*each*4 {
					return
				}
			}
		})
	}
	for w := range uint64(writers) {
		appends.Go(func() {
			for i := range uint64(each) {
				run(t, db, spec{trace: id(1 + w*1000 + i)})
			}
		})
	}
	appends.Wait()
	followers.Wait()
	if got := db.Cursor(); got != 2*writers*each {
		t.Errorf("cursor %d", got)
	}
	after := db.Cursor() - 3
	for leaf, err := range db.Follow(ctx, after) {
		if after++; err != nil || leaf.Index != after {
			t.Errorf("leaf %d after %d, %v", leaf.Index, after-1, err)
		}
		if after == db.Cursor() {
			break
		}
	}
	short, stop := context.WithCancel(ctx)
	stop()
	for _, err := range db.Follow(short, after) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("a follower whose context ended got %v", err)
		}
	}
}

// NewestTS does not go back when the clock does, nor over a restart, and no ts the
// store makes does.
func TestTimeDoesNotGoBack(t *testing.T) {
	fs := vfs.NewMem()
	now := start.Time()
	o := options(fs)
	o.Clock = func() time.Time { return now }
	db, err := engine.Open("store", o)
	if err != nil {
		t.Fatal(err)
	}
	m := spec{trace: id(1)}.make(t)
	lease := acquire(t, db, id(1))
	append_(t, db, lease, m.begin())
	now = now.Add(-time.Hour)
	out := append_(t, db, lease, m.end())
	if out.Entries[0].TS != start || db.NewestTS() != start {
		t.Errorf("ts %s, newest %s", out.Entries[0].TS, db.NewestTS())
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	db = open(t, "store", o)
	if db.NewestTS() != start {
		t.Errorf("newest after reopening is %s", db.NewestTS())
	}
	run(t, db, spec{trace: id(2)})
	for e, err := range db.Entries(context.Background(), id(2), 0) {
		if err != nil || e.TS != start || e.Committed != start {
			t.Errorf("entry %d: ts %s, committed %s, %v", e.Seq, e.TS, e.Committed, err)
		}
	}
}

// A caller's own entry may be ahead of the clock: the rest of its trace follows, the
// store's clock does not.
func TestCallersTimeStaysInItsTrace(t *testing.T) {
	db := mem(t)
	m := spec{trace: id(1)}.make(t)
	far := start + 60_000 // the most that is taken
	tr := chain.NewTrace(id(1))
	e, err := tr.Link(m.request, far)
	if err != nil {
		t.Fatal(err)
	}
	lease := acquire(t, db, id(1))
	append_(t, db, lease, chain.Batch{Artifacts: []chain.NewArtifact{{Artifact: m.request, Entry: &e}}})
	out := append_(t, db, lease, m.batch(m.decision))
	if out.Entries[0].TS != far || db.NewestTS() != far {
		t.Errorf("ts %s, newest %s", out.Entries[0].TS, db.NewestTS())
	}
	out = append_(t, db, acquire(t, db, id(2)), spec{trace: id(2)}.make(t).begin())
	if out.Entries[0].TS != start {
		t.Errorf("ts of another trace is %s", out.Entries[0].TS)
	}
}

// TestFollowerEndsWithItsContext: also one that is still far behind.
func TestFollowerEndsWithItsContext(t *testing.T) {
	db := mem(t)
	for n := range uint64(100) {
		run(t, db, spec{trace: id(n + 1)})
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	got := 0
	var end error
	for _, err := range db.Follow(ctx, 0) {
		if end = err; err == nil {
			got++
		}
		cancel()
	}
	if !errors.Is(end, context.Canceled) || got >= 100 {
		t.Errorf("%d leaves, then %v", got, end)
	}
}

// TestEachRangeBeginsAnew: a list or an order may be ranged over again, also if the range before was broken off.
func TestEachRangeBeginsAnew(t *testing.T) {
	db := mem(t)
	for n := range uint64(3) {
		run(t, db, spec{trace: id(n + 1)})
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	leaves, traces := db.Follow(ctx, 1), db.Traces(ctx, id(1))
	for range 2 {
		var indexes []uint64
		for l, err := range leaves {
			if err != nil {
				t.Fatal(err)
			}
			if indexes = append(indexes, l.Index); len(indexes) == 3 {
				break
			}
		}
		var ids []tga.ID
		for l, err := range traces {
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, l.TraceID)
		}
		if !slices.Equal(indexes, []uint64{2, 3, 4}) || !slices.Equal(ids, []tga.ID{id(2), id(3)}) {
			t.Errorf("leaves %v, traces %v", indexes, ids)
		}
	}
}

func TestOpenTracesAreThoseNotTerminal(t *testing.T) {
	serial.Test(t)
	db := mem(t)
	ctx := context.Background()
	want := map[tga.ID]tga.State{}
	const n = 1300 // more than two pages
	for _, i := range rand.New(rand.NewPCG(1, 2)).Perm(n) {
		s := spec{trace: id(uint64(i + 1)), namespace: "tenant"}
		m := s.make(t)
		lease := acquire(t, db, s.trace)
		switch i % 4 {
		case 0:
			append_(t, db, lease, m.batch(m.request))
			want[s.trace] = tga.Pending
		case 1:
			append_(t, db, lease, m.batch(m.request))
			append_(t, db, lease, m.batch(m.decision))
			want[s.trace] = tga.Authorized
		case 2:
			append_(t, db, lease, m.begin())
			want[s.trace] = tga.Executing
		case 3:
			append_(t, db, lease, m.begin())
			append_(t, db, lease, m.end())
		}
		db.Release(lease)
	}
	var last tga.ID
	got := 0
	for o, err := range db.OpenTraces(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if string(o.TraceID[:]) <= string(last[:]) {
			t.Fatalf("%s after %s", o.TraceID, last)
		}
		if want[o.TraceID] != o.State || o.Namespace != "tenant" || o.Since != start {
			t.Errorf("%+v, want state %s", o, want[o.TraceID])
		}
		last = o.TraceID
		got++
	}
	if got != len(want) {
		t.Errorf("%d open traces, want %d", got, len(want))
	}
}

package runtime_test

import (
	"context"
	"encoding/binary"
	"iter"
	"slices"
	"testing"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// listing is a store with a number of open traces, each with its number as id. Some of them cannot
// be read.
type listing struct {
	runtime.Store
	n    uint64
	errs map[uint64]error
}

func numbered(n uint64) (id tga.ID) {
	binary.BigEndian.PutUint64(id[8:], n)
	return id
}

func (l listing) OpenTraces(context.Context) iter.Seq2[chain.OpenTrace, error] {
	return func(yield func(chain.OpenTrace, error) bool) {
		for i := range l.n {
			if !yield(chain.OpenTrace{TraceID: numbered(i + 1)}, nil) {
				return
			}
		}
	}
}

func (l listing) Load(_ context.Context, id tga.ID) (*chain.Trace, error) {
	if err := l.errs[binary.BigEndian.Uint64(id[8:])]; err != nil {
		return nil, err
	}
	t := chain.NewTrace(id)
	t.Head.State = tga.Pending
	return t, nil
}

// TestClassifyIsInOrder: open traces are classified concurrently and listed in order, page after page.
// The list omits traces that have ended, has the error of each damaged trace, and stops at the first
// trace that the store could not read.
func TestClassifyIsInOrder(t *testing.T) {
	b := setup(t, runtime.Policy{})
	gone, broken, down := tga.Errorf(tga.NotFound, "it ended"), tga.Errorf(tga.StateRecoveryFailed, "damaged"), tga.Errorf(tga.StoreUnavailable, "stopped")
	for _, c := range []struct {
		n, want uint64
		errs    map[uint64]error
	}{
		{0, 0, nil}, {1, 1, nil}, {1023, 1023, nil}, {1024, 1024, nil}, {1025, 1025, nil}, {3000, 3000, nil},
		{3000, 2998, map[uint64]error{1: gone, 1024: broken, 1025: gone, 3000: broken}},
		{3000, 2048, map[uint64]error{2049: down, 2060: gone, 2700: down}},
		{3000, 1998, map[uint64]error{7: gone, 8: broken, 2000: down}},
		{2, 0, map[uint64]error{1: down}},
	} {
		rt, err := runtime.New(listing{b.db, c.n, c.errs}, b.tool, b.sup, b.opts)
		if err != nil {
			t.Fatal(err)
		}
		all, err := rt.Classify(t.Context())
		var stops error
		for i := uint64(1); i <= c.n && stops == nil; i++ {
			if c.errs[i] == down {
				stops = down
			}
		}
		if uint64(len(all)) != c.want || tga.CodeOf(err) != tga.CodeOf(stops) {
			t.Fatalf("%d of %d traces, %v; want %d", len(all), c.n, err, c.want)
		}
		next := uint64(1)
		for _, x := range all {
			for c.errs[next] == gone {
				next++
			}
			if x.TraceID != numbered(next) || x.Err != c.errs[next] || x.Err == nil && x.Window != runtime.W1 {
				t.Fatalf("trace %d: %+v", next, x)
			}
			next++
		}
	}
}

// TestLookingAtADoubtDoesNotHideIt: recovery holds the lease of each trace that an ended process left, as
// long as the tool's probe takes, and so does every repeat of the call. If the list omitted these traces, it
// would say that nothing is in doubt. A call that this process is sending is not in doubt.
func TestLookingAtADoubtDoesNotHideIt(t *testing.T) {
	b := setup(t, park)
	list := func(want ...tga.ID) {
		t.Helper()
		doubt, err := b.rt.InDoubt(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var got []tga.ID
		for _, c := range doubt {
			got = append(got, c.TraceID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("in doubt %v, want %v", got, want)
		}
	}
	b.tool.answer = func(n int, _ runtime.Call) (runtime.Reply, error) {
		list() // it is on its way
		return runtime.Reply{}, errReset
	}
	res, err := b.call(charge("order-1"))
	wantCode(t, err, tga.EffectInDoubt)
	list(res.TraceID)
	b.reopen()
	lease, err := b.db.Acquire(t.Context(), res.TraceID)
	if err != nil {
		t.Fatal(err)
	}
	list(res.TraceID)
	b.db.Release(lease)
	list(res.TraceID)
}

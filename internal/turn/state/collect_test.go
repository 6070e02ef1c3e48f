package state_test

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/internal/turn/state"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/wal/chain"
)

// TestNothingIsKeptForNobody: the store has one version of each key unless somebody reads an
// older one, and nothing of a deleted key. Only the scope's head stays.
func TestNothingIsKeptForNobody(t *testing.T) {
	w := newWorld(t)
	for i := range 5 {
		w.begin(session, "").set("k", fmt.Sprint(i)).add("list", "1").commit()
		if got := w.items(); got != 5 { // head, two values, two lists of keys
			t.Fatalf("%d items after commit %d", got, i)
		}
	}
	w.begin(session, "").del("k").del("list").del("never").commit()
	if got := w.items(); got != 1 {
		t.Errorf("%d items after both keys are deleted", got)
	}
}

// TestSnapshotOutlivesCommitsAndCollection: a transaction reads what was committed when it began,
// whatever is set, deleted, expired and collected meanwhile. The next commit or collection after
// it drops those versions.
func TestSnapshotOutlivesCommitsAndCollection(t *testing.T) {
	w := newWorld(t)
	collect := func(want int) {
		t.Helper()
		if got, err := w.space.Collect(bg, session); err != nil || got != want {
			t.Errorf("collected %d, %v, want %d", got, err, want)
		}
	}
	w.begin(session, "").set("a", "1").set("b", "1").setFor("c", "1", time.Second).commit()
	old := w.begin(session, state.RepeatableRead)
	old.wants("c", "1")
	w.begin(session, "").set("a", "2").del("b").commit()
	middle := w.begin(session, state.Serializable)
	w.begin(session, "").setFor("a", "3", time.Second).set("b", "3").commit()
	w.begin(session, "").del("b").commit()
	w.advance(time.Second)
	// a 1 2 3, expired; b 1, deleted, 3, deleted; c 1, expired
	for range 2 {
		collect(0)
		old.wants("a", "1")
		old.wants("b", "1")
		old.wants("c", "1")
		middle.wants("a", "2")
		middle.wants("b", "")
		w.stored("a", "")
		w.stored("b", "")
		w.stored("c", "")
	}
	middle.Discard()
	// The middle versions are gone: b's third was dropped when it was deleted.
	collect(2)
	old.wants("a", "1")
	old.wants("b", "1")
	w.stored("a", "")
	w.stored("b", "")
	old.Discard()
	collect(5)
	collect(0)
	if got := w.items(); got != 1 {
		t.Errorf("%d items after everything expired or was deleted", got)
	}
}

// TestCollectAfterACrash: versions that were kept for a transaction of a dead process are
// dropped, and keys that share a list stay apart.
func TestCollectAfterACrash(t *testing.T) {
	w := newWorld(t)
	state.ShareLists(w.space)
	a := w.begin(session, "")
	for i := range 300 {
		a.set(fmt.Sprint(i), "1")
	}
	a.commit()
	parked := w.begin(session, "")
	b := w.begin(session, "")
	for i := range 300 {
		if b.set(fmt.Sprint(i), "2"); i%2 == 0 {
			b.del(fmt.Sprint(i))
		}
	}
	b.commit()
	if keys, err := parked.Keys(); err != nil || len(keys) != 300 {
		t.Errorf("%d keys, %v", len(keys), err)
	}
	w.reopen()
	state.ShareLists(w.space)
	if got, err := w.space.Collect(bg, session); err != nil || got != 300+150 {
		t.Errorf("collected %d, %v", got, err)
	}
	c := w.begin(session, "")
	defer c.Discard()
	if keys, err := c.Keys(); err != nil || len(keys) != 150 {
		t.Errorf("%d keys, %v", len(keys), err)
	}
	c.wants("1", "2")
	c.wants("2", "")
	if got := w.items(); got != 1+1+150 {
		t.Errorf("%d items", got)
	}
	if got, err := w.space.Collect(bg, state.Scope{Mode: state.None}); err != nil || got != 0 {
		t.Errorf("collected %d of nothing, %v", got, err)
	}
}

// TestCollectSomeIsBoundedAndReachesAll: after some calls everything is collected. Each call
// drops and reads no more than its limits. Unexpired values stay.
func TestCollectSomeIsBoundedAndReachesAll(t *testing.T) {
	serial.Test(t)
	const most = 8
	for _, c := range []struct{ alive, ends int }{{1, 0}, {1, most - 1}, {1, most}, {400, 800}} {
		n := c.alive + c.ends
		w := newWorld(t)
		a := w.begin(session, "")
		for i := range n {
			if i < c.alive {
				a.set(fmt.Sprint(i), "1")
			} else {
				a.setFor(fmt.Sprint(i), "1", time.Second)
			}
		}
		a.commit()
		w.advance(time.Second)
		reads := &counting{Store: w.store}
		w.use(reads)
		random := rand.New(rand.NewPCG(1, uint64(n)))
		state.PickBy(w.space, random.IntN)
		calls := 0
		for dropped := 0; dropped < c.ends; calls++ {
			reads.n = 0
			got, err := w.space.CollectSome(bg, session, most)
			if err != nil || got > most || calls > 20*n {
				t.Fatalf("%d of %d keys after %d calls, now %d, %v", dropped, c.ends, calls, got, err)
			}
			if reads.n > 3000 {
				t.Errorf("%d items read for %d keys", reads.n, most)
			}
			dropped += got
		}
		if (n <= most) != (calls <= 1) {
			t.Errorf("%d keys: %d calls", n, calls)
		}
		if got, err := w.space.Collect(bg, session); got != 0 || err != nil {
			t.Errorf("%d keys: %d are left, %v", n, got, err)
		}
		if got := w.items(); got != 1+2*c.alive { // the head, and a list and a value for each key
			t.Errorf("%d keys: %d items are left", n, got)
		}
	}
}

// counting counts the items that are read.
type counting struct {
	runtime.Store
	n int
}

func (c *counting) Attachments(ctx context.Context, kind chain.AttachmentKind, prefix []byte) iter.Seq2[chain.Attachment, error] {
	return func(yield func(chain.Attachment, error) bool) {
		for a, err := range c.Store.Attachments(ctx, kind, prefix) {
			if c.n++; !yield(a, err) {
				return
			}
		}
	}
}

// TestCollectionsDoNotWaitForEachOther: while one collection is under way, another does nothing.
func TestCollectionsDoNotWaitForEachOther(t *testing.T) {
	w := newWorld(t)
	w.begin(session, "").setFor("k", "1", time.Second).commit()
	w.advance(time.Second)
	var inner int
	var innerErr error
	w.use(&onAppend{Store: w.store, do: func() { inner, innerErr = w.space.CollectSome(bg, session, 1) }})
	if got, err := w.space.CollectSome(bg, session, 1); got != 1 || err != nil {
		t.Errorf("%d, %v", got, err)
	}
	if inner != 0 || innerErr != nil {
		t.Errorf("the other: %d, %v", inner, innerErr)
	}
}

// onAppend is a store that runs a function once before an append.
type onAppend struct {
	runtime.Store
	do func()
}

func (s *onAppend) Append(ctx context.Context, lease chain.Lease, b chain.Batch) (chain.Appended, error) {
	if do := s.do; do != nil {
		s.do = nil
		do()
	}
	return s.Store.Append(ctx, lease, b)
}

// TestScopesTakeNoMemoryWhenIdle: a scope without a transaction takes no memory.
func TestScopesTakeNoMemoryWhenIdle(t *testing.T) {
	w := newWorld(t)
	for i := range 10 {
		s := state.Scope{Mode: state.Persistent, ID: fmt.Sprint(i)}
		a, b := w.begin(s, "").set("k", "1"), w.begin(s, state.ReadUncommitted)
		if got := state.Scopes(w.space); got != 1 {
			t.Errorf("%d scopes in memory", got)
		}
		a.commit()
		if got := state.OpenTransactions(b.Tx); got != 1 {
			t.Errorf("%d transactions in memory, one is open", got)
		}
		b.Discard()
		if _, err := w.space.Collect(bg, s); err != nil {
			t.Error(err)
		}
	}
	_, err := w.space.Begin(bg, session, "x")
	if got := state.Scopes(w.space); got != 0 || err == nil {
		t.Errorf("%d scopes in memory, %v", got, err)
	}
}

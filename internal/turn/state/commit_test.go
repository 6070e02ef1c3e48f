package state_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/tgad/tgad/internal/turn/state"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

var errNo = errors.New("no")

// TestCommitIsSeenOnlyWhenDurable: until the function that appends has returned, nobody sees the
// changes. If it returns an error, nothing is changed, and the commit can be tried again.
func TestCommitIsSeenOnlyWhenDurable(t *testing.T) {
	w := newWorld(t)
	w.begin(session, "").set("k", "1").commit()
	for _, level := range allLevels {
		a := w.begin(session, level).set("k", `"`+string(level)+`"`)
		before, at := w.begin(session, state.Serializable), w.items()
		err := a.Commit(bg, func(context.Context, []chain.Attachment) error {
			before.wants("k", w.value())
			return errNo
		})
		if !errors.Is(err, errNo) || a.Status() != state.Pending {
			t.Errorf("%v, status %s", err, a.Status())
		}
		w.stored("k", w.value())
		if got := w.items(); got != at {
			t.Errorf("%d items after a commit that came to nothing, %d before", got, at)
		}
		a.commit()
		before.Discard()
		w.stored("k", `"`+string(level)+`"`)
		w.reopen()
		w.stored("k", `"`+string(level)+`"`)
	}
}

// value returns the committed value of k, read from the store.
func (w *world) value() string {
	b := state.Open(w.db, state.Options{Clock: w.clock})
	t, err := b.Begin(bg, session, "")
	must(w, err)
	defer t.Discard()
	v, err := t.Get("k")
	must(w, err)
	return string(v)
}

// TestReadersWaitForTheCommitOnly: a read of committed values and a begin wait for the append of
// a commit, and see it. Nobody waits for an open, parked transaction. A caller that waits can
// give up.
func TestReadersWaitForTheCommitOnly(t *testing.T) {
	w := newWorld(t)
	w.begin(session, "").set("k", "1").commit()
	parked := w.begin(session, "").set("k", "2").set("other", "1")
	parked.wants("k", "2")
	reader := w.begin(session, state.ReadCommitted)
	defer reader.Discard()
	reader.wants("k", "1")

	a := w.begin(session, "").set("k", "3")
	var got [2]string
	var wg sync.WaitGroup
	must(t, a.Commit(bg, func(ctx context.Context, list []chain.Attachment) error {
		gone, cancel := context.WithCancel(bg)
		cancel()
		if _, err := w.space.Begin(gone, session, ""); !errors.Is(err, context.Canceled) {
			t.Errorf("a begin that gave up: %v", err)
		}
		wg.Add(2)
		go func() {
			defer wg.Done()
			v, err := reader.Get("k")
			got[0] = fmt.Sprint(string(v), err)
		}()
		go func() {
			defer wg.Done()
			b, err := w.space.Begin(bg, session, "")
			if err == nil {
				defer b.Discard()
				var v json.RawMessage
				v, err = b.Get("k")
				got[1] = string(v)
			}
			got[1] = fmt.Sprint(got[1], err)
		}()
		return w.append(ctx, list)
	}))
	wg.Wait()
	if got != [2]string{"3<nil>", "3<nil>"} {
		t.Errorf("read %q", got)
	}
	parked.Discard()
}

// TestHeadDecidesNotTheCallback: a commit happened if and only if the store has it, whatever the
// function that appends returns.
func TestHeadDecidesNotTheCallback(t *testing.T) {
	w := newWorld(t)
	w.begin(session, "").set("k", "1").commit()

	a := w.begin(session, "").set("k", "2")
	err := a.Commit(bg, func(ctx context.Context, list []chain.Attachment) error {
		must(t, w.append(ctx, list))
		return errNo
	})
	if !errors.Is(err, errNo) || a.Status() != state.Committed {
		t.Errorf("failed but persisted: %v, status %s", err, a.Status())
	}
	w.stored("k", "2")

	b := w.begin(session, "").set("k", "3")
	err = b.Commit(bg, func(context.Context, []chain.Attachment) error { return nil })
	wantCode(t, err, tga.GenericStateError)
	if b.Status() != state.Pending {
		t.Errorf("not persisted, and no error: status %s", b.Status())
	}
	w.stored("k", "2")
	b.commit()
	w.stored("k", "3")

	for name, happens := range map[string]bool{"before": false, "after": true} {
		c := w.begin(session, "").set("k", `"panic"`)
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic is gone")
				}
			}()
			_ = c.Commit(bg, func(ctx context.Context, list []chain.Attachment) error { // it panics
				if happens {
					must(t, w.append(ctx, list))
				}
				panic("oh")
			})
		}()
		if got := c.Status() == state.Committed; got != happens {
			t.Errorf("panic %s the append: committed %v", name, got)
		}
		c.Discard()
		want := map[bool]string{false: "3", true: `"panic"`}[happens]
		w.stored("k", want)
		w.begin(session, "").set("k", "3").commit()
	}

	// For a commit without changes the result of the function decides, not the store.
	d := w.begin(session, "")
	wantErr := d.Commit(bg, func(_ context.Context, list []chain.Attachment) error {
		if len(list) != 0 {
			t.Errorf("%d attachments", len(list))
		}
		return errNo
	})
	if !errors.Is(wantErr, errNo) || d.Status() != state.Pending {
		t.Errorf("%v, status %s", wantErr, d.Status())
	}
	d.Discard()
}

// broken is a store whose reads fail when the test says so.
type broken struct {
	runtime.Store
	mu  sync.Mutex
	err error
}

func (b *broken) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
}

func (b *broken) Attachment(ctx context.Context, kind chain.AttachmentKind, key []byte) ([]byte, error) {
	b.mu.Lock()
	err := b.err
	b.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return b.Store.Attachment(ctx, kind, key)
}

// TestUnknownFateEndsTheSpace: after STORE_UNAVAILABLE, or if the store cannot say whether a
// commit happened, everything is refused until the store is opened again. Then the commit is
// there completely or not at all.
func TestUnknownFateEndsTheSpace(t *testing.T) {
	unavailable := tga.Errorf(tga.StoreUnavailable, "append: the disk is gone")
	for name, c := range map[string]struct {
		appends bool
		err     error
		unread  bool
	}{
		"failed, not persisted": {false, unavailable, false},
		"failed but persisted":  {true, unavailable, false},
		"the head is unread":    {true, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.begin(session, "").set("k", "1").commit()
			b := &broken{Store: w.db}
			w.use(b)
			other := w.begin(session, state.ReadCommitted)
			a := w.begin(session, "").set("k", "2").set("l", "2")
			err := a.Commit(bg, func(ctx context.Context, list []chain.Attachment) error {
				if c.appends {
					must(t, w.append(ctx, list))
				}
				if c.unread {
					b.fail(errNo)
				}
				return c.err
			})
			wantCode(t, err, tga.StoreUnavailable)
			b.fail(nil)
			_, err = w.space.Begin(bg, session, "")
			wantCode(t, err, tga.StoreUnavailable)
			_, err = w.space.Begin(bg, state.Scope{Mode: state.None}, "")
			wantCode(t, err, tga.StoreUnavailable)
			_, err = other.Get("k")
			wantCode(t, err, tga.StoreUnavailable)
			_, err = w.space.Collect(bg, session)
			wantCode(t, err, tga.StoreUnavailable)
			for _, err := range []error{other.Set("k", raw("1"), 0), other.Append("k", raw("1")), other.try(), a.try()} {
				wantCode(t, err, tga.StoreUnavailable)
			}
			a.Discard()
			other.Discard()
			w.reopen()
			want := map[bool]string{false: "1", true: "2"}[c.appends]
			w.stored("k", want)
			w.stored("l", map[bool]string{true: "2"}[c.appends])
		})
	}
}

// TestSecondSpaceIsNoticed: a commit of another space is not overwritten.
func TestSecondSpaceIsNoticed(t *testing.T) {
	w := newWorld(t)
	a := w.begin(session, "").set("k", "1")
	first := w.space
	w.use(w.db)
	w.begin(session, "").set("k", "2").commit()
	wantCode(t, a.try(), tga.GenericStateError)
	a.Discard()
	w.space = first
	w.stored("k", "2")
}

// TestOneCommitAtATime: commits of many goroutines to one scope are atomic and ordered; a counter
// that all of them increase loses nothing.
func TestOneCommitAtATime(t *testing.T) {
	w := newWorld(t)
	const goroutines, each = 8, 10
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for i := range each {
				for {
					a, err := w.space.Begin(bg, session, "")
					if err != nil {
						t.Error(err)
						return
					}
					v, err := a.Get("n")
					n := 0
					if v != nil {
						err = errors.Join(err, json.Unmarshal(v, &n))
					}
					err = errors.Join(err, a.Set("n", raw(fmt.Sprint(n+1)), 0), a.Append("log", raw(fmt.Sprint(g*each+i))))
					if err == nil {
						err = a.Commit(bg, w.append)
					}
					a.Discard()
					if err == nil {
						break
					}
					if !errors.Is(err, tga.StateConflict) {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	w.stored("n", fmt.Sprint(goroutines*each))
	a := w.begin(session, "")
	defer a.Discard()
	var log []int
	must(t, json.Unmarshal([]byte(a.get("log")), &log))
	seen := map[int]bool{}
	for _, n := range log {
		seen[n] = true
	}
	if len(log) != goroutines*each || len(seen) != len(log) {
		t.Errorf("%d appends, %d of them different, want %d", len(log), len(seen), goroutines*each)
	}
}

// TestDiscardDuringCommit waits for nothing: the commit decides.
func TestDiscardDuringCommit(t *testing.T) {
	w := newWorld(t)
	for _, fails := range []bool{true, false} {
		a := w.begin(session, "").set("k", "1")
		err := a.Commit(bg, func(ctx context.Context, list []chain.Attachment) error {
			a.Discard()
			wantCode(t, a.Set("k", raw("2"), 0), tga.StateInvalidTransition)
			if r, err := a.Transaction(); err != nil || r.Status != state.Committed || len(r.Changes) != 1 {
				t.Errorf("%+v, %v", r, err)
			}
			if fails {
				return errNo
			}
			return w.append(ctx, list)
		})
		want := state.Committed
		if fails {
			want = state.RolledBack
		}
		if (err != nil) != fails || a.Status() != want {
			t.Errorf("%v, status %s, want %s", err, a.Status(), want)
		}
	}
}

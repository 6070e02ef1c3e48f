package workstate_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/tgad/tgad/internal/workstate"
	"github.com/tgad/tgad/internal/workstate/memfs"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// hooked is a store that calls a function before it appends an effect.
type hooked struct {
	runtime.Store
	before func() error
}

func (s hooked) Append(ctx context.Context, l chain.Lease, b chain.Batch) (chain.Appended, error) {
	for _, a := range b.Artifacts {
		if a.Artifact.Type == tga.EffectType && s.before != nil {
			if err := s.before(); err != nil {
				return chain.Appended{}, err
			}
		}
	}
	return s.Store.Append(ctx, l, b)
}

// onStore makes a new state and runtime of the world on a store that wraps its own.
func (w *world) onStore(around func(runtime.Store) runtime.Store) {
	w.Helper()
	w.state.Close()
	m := w.machine
	w.parts = newParts(w)
	w.registry, w.machine = &workstate.Registry{}, m
	must(w, workstate.Add(w.registry, memfs.New()), workstate.Add(w.registry, workstate.NewKV()),
		workstate.Add(w.registry, workstate.NewBudget(workstate.Usage{Tokens: 1000, Calls: 100})), workstate.Add(w.registry, m))
	var err error
	w.state, err = workstate.Open(bg, around(w.db), w.id, w.session, w.registry, w.opts)
	must(w, err)
	w.sent = workstate.Transact(w.next, w.state)
	w.rt, err = runtime.New(w.state.Store(), w.sent, runtime.AllowAll, runtime.Options{})
	must(w, err)
}

// TestUndurableCommitIsNotShown: between a tool's answer and the sync of its effect
// nobody can look at the state.
func TestUndurableCommitIsNotShown(t *testing.T) {
	w := inStore(t, workstate.Options{})
	looked := false
	w.onStore(func(s runtime.Store) runtime.Store {
		return hooked{s, func() error {
			gone, cancel := context.WithCancel(bg)
			cancel()
			looked = true
			wantCode(t, w.state.View(gone, func(*workstate.Tx) error {
				t.Error("a commit that is not durable is shown")
				return nil
			}), tga.StateLockAcquireFailed)
			return nil
		}}
	})
	w.do("good", `{"text":"a"}`, tga.StatusSuccess)
	if !looked {
		t.Error("nobody looked")
	}
}

// TestCommitThatIsNotRecordedIsTakenBack: an effect that the store refuses leaves the
// state as before, in memory and on the machine, and the next call runs.
func TestCommitThatIsNotRecordedIsTakenBack(t *testing.T) {
	w := inStore(t, workstate.Options{})
	refuse := true
	w.onStore(func(s runtime.Store) runtime.Store {
		return hooked{s, func() error {
			if refuse {
				return tga.Errorf(tga.LimitExceeded, "too much")
			}
			return nil
		}}
	})
	_, _, err := w.call(bg, "good", `{"text":"a"}`)
	wantCode(t, err, tga.LimitExceeded)
	w.want(untouched)
	refuse = false
	w.do("good", `{"text":"b"}`, tga.StatusSuccess)
	want := after("b", 1, 1, workstate.Usage{Calls: 1})
	w.want(want)
	w.reopen()
	w.want(want)
	for _, c := range w.state.List() {
		if c.Open {
			t.Errorf("a boundary is open: %+v", c)
		}
	}
}

// TestRuntimeMustBeMadeOnTheStatesStore: otherwise the state would not know what is durable.
func TestRuntimeMustBeMadeOnTheStatesStore(t *testing.T) {
	w := inStore(t, workstate.Options{})
	var err error
	w.rt, err = runtime.New(w.db, w.sent, runtime.AllowAll, runtime.Options{})
	must(t, err)
	_, _, err = w.call(bg, "good", `{"text":"a"}`)
	wantCode(t, err, tga.GenericStateError)
	w.want(untouched)
}

// TestOneStateHasAnID: only one state in a store has an id at a time.
func TestOneStateHasAnID(t *testing.T) {
	w := inStore(t, workstate.Options{})
	_, err := workstate.Open(bg, w.db, w.id, newSession(t), &workstate.Registry{}, workstate.Options{})
	wantCode(t, err, tga.StateLockAcquireFailed)
}

// TestStateSurvivesWithoutItsTypes: slices and resources that nobody registers are kept.
func TestStateSurvivesWithoutItsTypes(t *testing.T) {
	w := inStore(t, workstate.Options{})
	w.do("good", `{"text":"a","tokens":2}`, tga.StatusSuccess)
	want := w.seen()
	w.state.Close()
	bare, err := workstate.Open(bg, w.db, w.id, workstate.NewSession(), &workstate.Registry{}, workstate.Options{})
	must(t, err)
	must(t, bare.Update(bg, "", func(_ context.Context, tx *workstate.Tx) error {
		type note struct{ Text string }
		return workstate.Slice[note](tx.Session()).Append(note{"x"})
	}))
	bare.Close()
	w.onStore(func(s runtime.Store) runtime.Store { return s })
	w.want(want)
}

// TestSnapshotsCostWhatChanged: hundreds of calls that each change a little of a large
// state store little each.
func TestSnapshotsCostWhatChanged(t *testing.T) {
	w := inStore(t, workstate.Options{Ring: 1000})
	type row struct{ N int }
	must(t, w.state.Update(bg, "fill", func(_ context.Context, tx *workstate.Tx) error {
		files, err := workstate.Use[*memfs.FS](tx)
		must(t, err)
		kv, err := workstate.Use[*workstate.KV](tx)
		must(t, err)
		var rows []row
		for i := range 20_000 {
			rows = append(rows, row{i})
			kv.Set(fmt.Sprint(i), []byte("value"))
		}
		for i := range 200 {
			must(t, files.MkdirAll(fmt.Sprint("d", i), 0o755), files.WriteFile(fmt.Sprintf("d%d/f", i), make([]byte, 1000), 0o644))
		}
		return workstate.Slice[row](tx.Session()).Append(rows...)
	}))
	w.tools["little"] = workstate.Func(func(ctx context.Context, e edit) (any, error) {
		tx := workstate.FromContext(ctx)
		files, err := workstate.Use[*memfs.FS](tx)
		must(t, err)
		kv, err := workstate.Use[*workstate.KV](tx)
		must(t, err)
		kv.Set(e.Text, []byte(e.Text))
		return nil, errors.Join(files.WriteFile("d7/"+e.Text, []byte(e.Text), 0o644), workstate.Slice[row](tx.Session()).Append(row{-1}))
	})
	for i := range 100 {
		w.do("little", fmt.Sprintf(`{"text":"t%d"}`, i), tga.StatusSuccess)
	}
	list := w.state.List()
	var whole, rest int64
	for _, c := range list {
		if c.Kind == "update" {
			whole = c.Bytes
		} else {
			rest += c.Bytes
		}
	}
	mean := rest / 100
	t.Logf("%d bytes for the whole state, %d for a call that changes a little", whole, mean)
	if mean > whole/20 || mean > 64<<10 {
		t.Errorf("a small change costs %d bytes of %d", mean, whole)
	}
}

// TestCollectKeepsWhatIsReferredTo: after the ring moved on, collection drops nodes, and
// every boundary, fork and head that is kept is whole.
func TestCollectKeepsWhatIsReferredTo(t *testing.T) {
	w := inStore(t, workstate.Options{Ring: 3})
	for i := range 2 {
		w.do("good", fmt.Sprintf(`{"text":"t%d"}`, i), tga.StatusSuccess)
	}
	p := newParts(t)
	fork, err := w.state.Fork(bg, w.state.List()[1].ID, workstate.NewSession(), p.registry, workstate.Options{})
	must(t, err)
	want := fork.Digest()
	for i := 2; i < 8; i++ {
		w.do("good", fmt.Sprintf(`{"text":"t%d"}`, i), tga.StatusSuccess)
	}
	var snaps []string
	read := func() (out []string) {
		for _, c := range w.state.List() {
			snap, err := w.state.PreSnapshot(bg, c.ID)
			must(t, err)
			raw, err := snap.ToJSON()
			must(t, err)
			out = append(out, string(raw))
		}
		return out
	}
	w.reopen()
	snaps = read()
	w.tools["inside"] = workstate.Func(func(context.Context, struct{}) (any, error) {
		_, err := w.state.Collect(bg)
		return nil, err
	})
	if _, res, err := w.call(bg, "inside", `{}`); err != nil || res.ErrorCode != tga.StateLockAcquireFailed {
		t.Errorf("collection inside a call: %s %v", res.ErrorCode, err)
	}
	w.reopen()
	done, err := w.state.Collect(bg)
	must(t, err)
	if done.Live == 0 {
		t.Errorf("%+v", done)
	}
	w.reopen()
	if again, err := w.state.Collect(bg); err != nil || again.Dropped != 0 {
		t.Errorf("a second collection dropped %d (%v)", again.Dropped, err)
	}
	after := read()
	if !slices.Equal(after[:2], snaps[1:]) {
		t.Error("a boundary reads otherwise after the collection")
	}
	fork, err = w.state.OpenFork(bg, 1, workstate.NewSession(), newParts(t).registry, workstate.Options{})
	must(t, err)
	if fork.Digest() != want {
		t.Error("the fork is another")
	}
	blobs := 0
	for _, err := range w.db.Attachments(bg, chain.AttachBlob, nil) {
		must(t, err)
		blobs++
	}
	if blobs != done.Live {
		t.Errorf("%d nodes in the store, %d of them live", blobs, done.Live)
	}
}

// TestDamagedNodeIsFound: a node whose bytes do not match its digest is not used.
func TestDamagedNodeIsFound(t *testing.T) {
	w := inStore(t, workstate.Options{})
	w.do("good", `{"text":"a"}`, tga.StatusSuccess)
	w.state.Close()
	lease, err := w.db.Acquire(bg, newID())
	must(t, err)
	damaged := 0
	for a, err := range w.db.Attachments(bg, chain.AttachBlob, nil) {
		must(t, err)
		// Replace the content of a one-letter file by another letter: only the digest reveals it.
		if n := len(a.Value); n == 3 && a.Value[n-1] == 'a' {
			a.Value[n-1]++
			_, err = w.db.Append(bg, lease, chain.Batch{Attachments: []chain.Attachment{a}})
			must(t, err)
			damaged++
		}
	}
	if damaged != 1 {
		t.Fatalf("%d nodes damaged", damaged)
	}
	_, err = workstate.Open(bg, w.db, w.id, newSession(t), newParts(t).registry, workstate.Options{})
	wantCode(t, err, tga.StateChecksumMismatch)
	w.state, err = nil, nil
	must(t, w.db.Close())
	w.db = nil
}

// losing is a dispatcher around Transact that loses what Transact attached.
type losing struct{ runtime.Dispatcher }

func (l losing) Dispatch(ctx context.Context, c runtime.Call) (runtime.Reply, error) {
	r, err := l.Dispatcher.Dispatch(ctx, c)
	r.Attachments = nil
	return r, err
}

// TestAnswerWithoutItsBoundaryIsTakenBack: if an effect is recorded without the state after
// it, the state from before the call stays, in memory and on disk.
func TestAnswerWithoutItsBoundaryIsTakenBack(t *testing.T) {
	w := inStore(t, workstate.Options{})
	var err error
	w.rt, err = runtime.New(w.state.Store(), losing{w.sent}, runtime.AllowAll, runtime.Options{})
	must(t, err)
	w.do("good", `{"text":"a"}`, tga.StatusSuccess)
	w.want(untouched)
	w.reopen()
	w.want(untouched)
	if list := w.state.List(); len(list) != 1 || list[0].Open || list[0].Success {
		t.Errorf("boundaries %+v", list)
	}
}

// TestInspectLooksAndChangesNothing: a state that is in use can be inspected, and does not change.
func TestInspectLooksAndChangesNothing(t *testing.T) {
	w := inStore(t, workstate.Options{})
	w.do("good", `{"text":"a"}`, tga.StatusSuccess)
	id := w.do("good", `{"text":"b"}`, tga.StatusSuccess)
	_, err := w.state.Fork(bg, id, workstate.NewSession(), newParts(t).registry, workstate.Options{})
	must(t, err)
	found, err := workstate.States(bg, w.db)
	must(t, err)
	if len(found) != 2 || found[0].ID != w.id || found[0].Boundaries != 2 || found[0].Root != w.state.Digest() || found[1].Number != 1 || found[1].Forked != id {
		t.Errorf("found %+v", found)
	}
	s, err := workstate.Inspect(bg, w.db, w.id, 0, workstate.Options{})
	must(t, err)
	defer s.Close()
	if s.Digest() != w.state.Digest() || len(s.List()) != 2 {
		t.Errorf("sees %v", s.List())
	}
	plan, err := s.PlanRollback(bg, id, workstate.RestoreOptions{})
	must(t, err)
	if len(plan.Undone) != 1 || len(plan.Restored) == 0 {
		t.Errorf("plan %+v", plan)
	}
	_, err = plan.Do(bg)
	wantCode(t, err, tga.PermissionDenied)
	wantCode(t, s.Update(bg, "", func(context.Context, *workstate.Tx) error { return nil }), tga.PermissionDenied)
	_, err = s.Collect(bg)
	wantCode(t, err, tga.PermissionDenied)
	_, err = s.Fork(bg, id, workstate.NewSession(), &workstate.Registry{}, workstate.Options{})
	wantCode(t, err, tga.PermissionDenied)
	_, err = s.OpenFork(bg, 1, workstate.NewSession(), &workstate.Registry{}, workstate.Options{})
	wantCode(t, err, tga.PermissionDenied)
	_, err = workstate.Inspect(bg, w.db, newID(), 0, workstate.Options{})
	wantCode(t, err, tga.NotFound)
	w.want(after("b", 2, 2, workstate.Usage{Calls: 2}))
}

// TestManySmallNodes: a transaction whose nodes are more than one append of a store may have is durable all the same.
func TestManySmallNodes(t *testing.T) {
	w := inStore(t, workstate.Options{})
	const keys = 120_000
	must(t, w.state.Update(bg, "fill", func(_ context.Context, tx *workstate.Tx) error {
		kv, err := workstate.Use[*workstate.KV](tx)
		for i := 0; i < keys && err == nil; i++ {
			kv.Set(fmt.Sprint("key ", i), []byte{1})
		}
		return err
	}))
	for range 2 {
		must(t, w.state.View(bg, func(tx *workstate.Tx) error {
			kv, err := workstate.Use[*workstate.KV](tx)
			if err == nil && kv.Len() != keys {
				t.Errorf("%d keys, want %d", kv.Len(), keys)
			}
			return err
		}))
		w.reopen()
	}
}

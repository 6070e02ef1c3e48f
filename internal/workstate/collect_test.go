package workstate_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/tgad/tgad/internal/workstate"
	"github.com/tgad/tgad/internal/workstate/memfs"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// observed is a store that calls a function after each read of a node, and one before each append.
type observed struct {
	runtime.Store
	read   func() error
	append func(chain.Batch) error
}

func (s *observed) Attachment(ctx context.Context, kind chain.AttachmentKind, key []byte) ([]byte, error) {
	b, err := s.Store.Attachment(ctx, kind, key)
	if s.read != nil {
		err = errors.Join(err, s.read())
	}
	return b, err
}

func (s *observed) Append(ctx context.Context, l chain.Lease, b chain.Batch) (chain.Appended, error) {
	if s.append != nil {
		if err := s.append(b); err != nil {
			return chain.Appended{}, err
		}
	}
	return s.Store.Append(ctx, l, b)
}

// observe opens the state again on an observed store.
func (w *world) observe() *observed {
	w.Helper()
	o := &observed{}
	w.onStore(func(s runtime.Store) runtime.Store {
		o.Store = s
		return o
	})
	return o
}

// moveOn makes calls until the ring has none of the boundaries from before, and collects.
func (w *world) moveOn() {
	w.Helper()
	for i := range w.opts.Ring {
		w.do("good", fmt.Sprintf(`{"text":"on%d"}`, i), tga.StatusSuccess)
	}
	if _, err := w.state.Collect(bg); err != nil {
		wantCode(w, err, tga.StateLockAcquireFailed)
	}
}

// TestCollectionWaitsForWhoReadsABoundary: a boundary leaves the ring, and its nodes are to be
// collected, while it is read. A restore of what was read is whole after a restart.
func TestCollectionWaitsForWhoReadsABoundary(t *testing.T) {
	reads := map[string]func(s *workstate.State, id string) (*workstate.CompositeSnapshot, error){
		"PreSnapshot": func(s *workstate.State, id string) (*workstate.CompositeSnapshot, error) {
			return s.PreSnapshot(bg, id)
		},
		"PostSnapshot": func(s *workstate.State, id string) (*workstate.CompositeSnapshot, error) {
			return s.PostSnapshot(bg, id)
		},
		"PlanRollback": func(s *workstate.State, id string) (*workstate.CompositeSnapshot, error) {
			snap, err := s.PreSnapshot(bg, id)
			if err == nil {
				_, err = s.PlanRollback(bg, id, workstate.RestoreOptions{})
			}
			return snap, err
		},
	}
	for name, read := range reads {
		t.Run(name, func(t *testing.T) {
			w := inStore(t, workstate.Options{Ring: 3})
			w.do("good", `{"text":"a"}`, tga.StatusSuccess)
			id := w.do("good", `{"text":"b"}`, tga.StatusSuccess)
			o := w.observe()
			count := 0
			o.read = func() error { count++; return nil }
			_, err := read(w.state, id)
			must(t, err)
			o.read = func() error {
				if count--; count == 0 { // the last node is read
					o.read = nil
					w.moveOn()
				}
				return nil
			}
			snap, err := read(w.state, id)
			must(t, err)
			if count != 0 {
				t.Fatalf("%d reads are missing", count)
			}
			_, err = w.state.Collect(bg)
			must(t, err)
			_, err = w.state.Restore(bg, snap, workstate.RestoreOptions{}, "")
			must(t, err)
			want := w.seen()
			w.reopen()
			w.want(want)
		})
	}
}

// TestForksMadeAtOnceAreApart: forks that are begun at the same time are different states.
func TestForksMadeAtOnceAreApart(t *testing.T) {
	both(t, workstate.Options{}, func(t *testing.T, w *world) {
		id := w.do("good", `{"text":"a"}`, tga.StatusSuccess)
		const forks = 8
		made := make([]*workstate.State, forks)
		var wg sync.WaitGroup
		for i := range forks {
			p := newParts(t)
			wg.Go(func() {
				fork, err := w.state.Fork(bg, id, workstate.NewSession(), p.registry, workstate.Options{})
				must(t, err)
				made[i] = fork
			})
		}
		wg.Wait()
		numbers := map[uint32]bool{w.state.Number(): true}
		for _, fork := range made {
			numbers[fork.Number()] = true
		}
		listed, err := w.state.Forks(bg)
		must(t, err)
		if len(numbers) != forks+1 || len(listed) != forks+1 {
			t.Errorf("%d forks have the numbers %v; the family lists %v", forks, numbers, listed)
		}
	})
}

// TestCollectionWaitsForAFork: the boundary that a fork begins at leaves the ring, and its nodes
// are to be collected, before the fork is in the store.
func TestCollectionWaitsForAFork(t *testing.T) {
	w := inStore(t, workstate.Options{Ring: 3})
	w.do("good", `{"text":"a"}`, tga.StatusSuccess)
	id := w.do("good", `{"text":"b"}`, tga.StatusSuccess)
	o := w.observe()
	o.append = func(chain.Batch) error { // of the fork's head
		o.append = nil
		w.moveOn()
		return nil
	}
	fork, err := w.state.Fork(bg, id, workstate.NewSession(), newParts(t).registry, workstate.Options{})
	must(t, err)
	want := fork.Digest()
	w.reopen()
	fork, err = w.state.OpenFork(bg, fork.Number(), workstate.NewSession(), newParts(t).registry, workstate.Options{})
	must(t, err)
	if fork.Digest() != want {
		t.Error("the fork has another content")
	}
}

// TestForkIsOpenOnce: a family has each of its states open once, and a fork that cannot be opened
// is not open.
func TestForkIsOpenOnce(t *testing.T) {
	both(t, workstate.Options{}, func(t *testing.T, w *world) {
		id := w.do("good", `{"text":"a"}`, tga.StatusSuccess)
		fork, err := w.state.Fork(bg, id, workstate.NewSession(), newParts(t).registry, workstate.Options{})
		must(t, err)
		for _, number := range []uint32{0, fork.Number()} {
			_, err = w.state.OpenFork(bg, number, workstate.NewSession(), newParts(t).registry, workstate.Options{})
			wantCode(t, err, tga.StateLockAcquireFailed)
		}
		if w.dir == "" {
			return
		}
		o := w.observe()
		o.read = func() error { return tga.Errorf(tga.StoreUnavailable, "the disk fails") }
		_, err = w.state.OpenFork(bg, 1, workstate.NewSession(), newParts(t).registry, workstate.Options{})
		wantCode(t, err, tga.StoreUnavailable)
		o.read = nil
		_, err = w.state.Collect(bg)
		must(t, err)
		_, err = w.state.OpenFork(bg, 1, workstate.NewSession(), newParts(t).registry, workstate.Options{})
		must(t, err)
	})
}

// TestCollectionThatFailsHalfwayLosesNothing: the store refuses the second of two batches of
// dropped nodes. Content that comes back afterwards is whole after a restart.
func TestCollectionThatFailsHalfwayLosesNothing(t *testing.T) {
	w := inStore(t, workstate.Options{Ring: 3})
	const dirs, files = 60, 100 // more nodes than a batch drops
	change := func(f func(*memfs.FS, string) error) {
		t.Helper()
		must(t, w.state.Update(bg, "", func(_ context.Context, tx *workstate.Tx) error {
			fs, err := workstate.Use[*memfs.FS](tx)
			for d := range dirs {
				err = errors.Join(err, f(fs, fmt.Sprint("d", d)))
			}
			return err
		}))
	}
	make := func(fs *memfs.FS, d string) error {
		err := fs.MkdirAll(d, 0o755)
		for i := range files {
			name := fmt.Sprintf("%s/f%d", d, i)
			err = errors.Join(err, fs.WriteFile(name, []byte(name), 0o644))
		}
		return err
	}
	o := w.observe()
	change(make)
	want := w.state.Digest()
	change((*memfs.FS).RemoveAll)
	for range w.opts.Ring { // the files leave the ring, before the state collects by itself
		change(func(*memfs.FS, string) error { return nil })
	}
	batches := 0
	o.append = func(chain.Batch) error {
		if batches++; batches == 2 {
			return tga.Errorf(tga.LimitExceeded, "too much")
		}
		return nil
	}
	done, err := w.state.Collect(bg)
	wantCode(t, err, tga.LimitExceeded)
	if done.Dropped == 0 {
		t.Error("the first batch dropped nothing")
	}
	o.append = nil
	change(make)
	if w.state.Digest() != want {
		t.Error("the content is another")
	}
	w.reopen()
	if w.state.Digest() != want {
		t.Error("the content is another after a restart")
	}
}

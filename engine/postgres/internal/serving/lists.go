package serving

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/tgad/tgad/engine/postgres"
	"github.com/tgad/tgad/internal/daemon"
	"github.com/tgad/tgad/internal/search"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

var _, _ daemon.Listing = served{}, all{}

// Lists implements [daemon.Listing].
func (s served) Lists() search.Lists { return s.Fleet.Lists() }

// Lists implements [daemon.Listing].
func (a all) Lists() search.Lists {
	return &allLists{of: a, lists: map[*postgres.Store]*postgres.Lists{}}
}

// Read implements [daemon.Listing].
func (a all) Read(ctx context.Context, ids []tga.ID, each func(*chain.Trace)) error {
	of := map[*postgres.Store][]tga.ID{}
	for _, id := range ids {
		s, err := a.In(ctx, id)
		if err != nil {
			return err
		}
		of[s] = append(of[s], id)
	}
	for s, ids := range of {
		if err := s.Fleet().Read(ctx, ids, each); err != nil {
			return err
		}
	}
	return nil
}

// RemoveLists implements [daemon.Listing].
func (a all) RemoveLists(ctx context.Context) error {
	stores := a.Stores()
	errs := make([]error, len(stores))
	var asked sync.WaitGroup
	for i, s := range stores {
		asked.Go(func() { errs[i] = s.Fleet().RemoveLists(ctx) })
	}
	asked.Wait()
	return errors.Join(errs...)
}

// newLook is the time between two looks for stores that were opened since.
const newLook = time.Second

// allLists is the lists of every store of a fleet as one.
type allLists struct {
	of all

	mu    sync.Mutex
	lists map[*postgres.Store]*postgres.Lists
	kept  sync.WaitGroup
}

// each returns the lists of the open stores. If run is not nil, it starts run for each store that was opened since the last call.
func (a *allLists) each(run func(*postgres.Lists)) (list []*postgres.Lists, stores []*postgres.Store) {
	a.mu.Lock()
	defer a.mu.Unlock()
	stores = a.of.Stores()
	for _, s := range stores {
		l := a.lists[s]
		if l == nil && run != nil {
			l = s.Fleet().Lists()
			a.lists[s] = l
			a.kept.Go(func() { run(l) })
		}
		if l == nil { // the store was just opened
			l = s.Fleet().Lists()
		}
		list = append(list, l)
	}
	return list, stores
}

// Run implements [search.Lists].
func (a *allLists) Run(ctx context.Context) {
	defer a.kept.Wait()
	for ctx.Err() == nil {
		a.each(func(l *postgres.Lists) { l.Run(ctx) })
		select {
		case <-time.After(newLook):
		case <-ctx.Done():
		}
	}
}

// Close implements [search.Lists].
func (a *allLists) Close() error { return nil }

// Behind implements [search.Lists].
func (a *allLists) Behind() (sum uint64) {
	lists, _ := a.each(nil)
	for _, l := range lists {
		sum += l.Behind()
	}
	return sum
}

// Find implements [search.Lists]. If one store does not answer, it returns an error, because a page without the traces of that store
// would be wrong.
func (a *allLists) Find(ctx context.Context, q search.Query) (page []search.Mark, err error) {
	if _, missing := a.of.Every(); missing != nil {
		return nil, missing
	}
	lists, stores := a.each(nil)
	pages, errs := make([][]search.Mark, len(lists)), make([]error, len(lists))
	var asked sync.WaitGroup
	for i, l := range lists {
		asked.Go(func() { pages[i], errs[i] = l.Find(ctx, q) })
	}
	asked.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, tga.Errorf(tga.StoreUnavailable, "the lists of some stores of the fleet: %w", err)
	}
	for i, s := range stores {
		for _, m := range pages[i] {
			a.of.Met(s, m.Trace)
		}
	}
	page = slices.SortedFunc(slices.Values(slices.Concat(pages...)), search.Mark.Compare)
	return page[:min(len(page), q.Limit)], nil
}

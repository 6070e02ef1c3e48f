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
)

var _, _ daemon.Listing = served{}, all{}

// Lists implements [daemon.Listing].
func (s served) Lists() search.Lists { return s.Fleet.Lists() }

// Lists implements [daemon.Listing].
func (a all) Lists() search.Lists {
	return &allLists{of: a, lists: map[*postgres.Store]*postgres.Lists{}}
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

// newLook is how often the lists of stores that are new are taken up.
const newLook = time.Second

// allLists is the lists of every store of a fleet as one.
type allLists struct {
	of all

	mu    sync.Mutex
	lists map[*postgres.Store]*postgres.Lists
	kept  sync.WaitGroup
}

// each returns the lists of the stores that are open. With run, those that are new are kept from now on.
func (a *allLists) each(run func(*postgres.Lists)) (list []*postgres.Lists) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.of.Stores() {
		l := a.lists[s]
		if l == nil && run != nil {
			l = s.Fleet().Lists()
			a.lists[s] = l
			a.kept.Go(func() { run(l) })
		}
		if l == nil { // it was opened in this moment
			l = s.Fleet().Lists()
		}
		list = append(list, l)
	}
	return list
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
	for _, l := range a.each(nil) {
		sum += l.Behind()
	}
	return sum
}

// Find implements [search.Lists]. A page that lacks what one store has would be no page: where one does not answer, none is made.
func (a *allLists) Find(ctx context.Context, q search.Query) (page []search.Mark, err error) {
	lists := a.each(nil)
	pages, errs := make([][]search.Mark, len(lists)), make([]error, len(lists))
	var asked sync.WaitGroup
	for i, l := range lists {
		asked.Go(func() { pages[i], errs[i] = l.Find(ctx, q) })
	}
	asked.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, tga.Errorf(tga.StoreUnavailable, "the lists of some stores of the fleet: %w", err)
	}
	page = slices.SortedFunc(slices.Values(slices.Concat(pages...)), search.Mark.Compare)
	return page[:min(len(page), q.Limit)], nil
}

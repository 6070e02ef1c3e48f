package daemon

import (
	"context"
	"sync"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/assemble"
	"github.com/tgad/tgad/internal/search"
)

// openLists opens the index of lists, if the configuration asks for one. From then on an erasure also
// removes its traces from the index.
func (d *Daemon) openLists(ctx context.Context, o Options) error {
	switch {
	case d.atRest:
	case d.can.listing != nil && o.Config.Store.ListIndex:
		d.lists = d.can.listing.Lists()
	case d.can.archive != nil && o.Data != "":
		x, err := assemble.Lists(ctx, o.Config, o.Data, d.db, hasErasure(d.can.archive), d.log)
		if x == nil || err != nil {
			return err
		}
		d.lists, d.can.archive = x, indexed{d.can.archive, x}
		d.can.erases = d.can.archive
	}
	return nil
}

// keepLists keeps the index of lists until stop is called.
func (d *Daemon) keepLists() (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	var over sync.WaitGroup
	switch {
	case d.lists != nil:
		over.Go(func() { d.lists.Run(ctx) })
	case d.can.listing != nil && !d.atRest:
		over.Go(func() {
			if d.can.listing.RemoveLists(ctx) != nil {
				d.chores.lists.owe()
			}
		})
	}
	return func() error {
		cancel()
		over.Wait()
		if d.lists == nil {
			return nil
		}
		return d.lists.Close()
	}
}

// indexed is a store with an index of lists that only this process keeps.
type indexed struct {
	archive
	lists *search.Index
}

// Erase erases from the store and from the index.
func (s indexed) Erase(ctx context.Context, what engine.Erasure) (done engine.Erased, err error) {
	of := what.Traces
	if what.Namespace != "" || what.Subject != "" {
		of = nil // only the store knows which traces those are
	}
	err = s.lists.Erase(ctx, of, func() (err error) {
		done, err = s.archive.Erase(ctx, what)
		return err
	})
	return done, err
}

// FinishErasure continues an unfinished erasure, if there is one, and then has the index read all traces again.
func (s indexed) FinishErasure(ctx context.Context) error {
	if is, err := s.Erasing(); !is || err != nil {
		return err
	}
	return s.lists.FinishErasure(ctx, func() error { return s.archive.FinishErasure(ctx) })
}

// hasErasure says whether a store has an unfinished erasure. It says true if that cannot be read.
func hasErasure(s archive) func() bool {
	return func() bool {
		is, err := s.Erasing()
		return is || err != nil
	}
}

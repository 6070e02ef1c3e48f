package daemon

import (
	"context"
	"sync"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/assemble"
	"github.com/tgad/tgad/internal/search"
)

// openLists opens the index of lists, where the configuration asks for one. What is erased from then on
// leaves it too.
func (d *Daemon) openLists(ctx context.Context, o Options) (err error) {
	if d.atRest || d.can.archive == nil || o.Data == "" {
		return nil
	}
	if d.lists, err = assemble.Lists(ctx, o.Config, o.Data, d.db, d.log); d.lists != nil {
		d.can.archive = indexed{d.can.archive, d.lists}
	}
	return err
}

// keepLists keeps the index of lists until stop is called.
func (d *Daemon) keepLists() (stop func() error) {
	if d.lists == nil {
		return func() error { return nil }
	}
	ctx, cancel := context.WithCancel(context.Background())
	var over sync.WaitGroup
	over.Go(func() { d.lists.Run(ctx) })
	return func() error {
		cancel()
		over.Wait()
		return d.lists.Close()
	}
}

// indexed is a store whose traces are in an index of lists.
type indexed struct {
	archive
	lists *search.Index
}

// Erase erases from the store and from the index.
func (s indexed) Erase(ctx context.Context, what engine.Erasure) (done engine.Erased, err error) {
	of := what.Traces
	if what.Namespace != "" || what.Subject != "" {
		of = nil // the store finds out which they are
	}
	err = s.lists.Erase(ctx, of, func() (err error) {
		done, err = s.archive.Erase(ctx, what)
		return err
	})
	return done, err
}

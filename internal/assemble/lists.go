package assemble

import (
	"context"
	"log/slog"
	"path/filepath"

	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/internal/optional"
	"github.com/tgad/tgad/internal/search"
	"github.com/tgad/tgad/internal/search/sqlite"
	"github.com/tgad/tgad/schemas/tga"
)

// listsDir has the index of lists, in the directory of the store.
const listsDir = "lists"

// Lists returns the index of lists of the store in a directory. If the configuration asks for none, it returns nil
// and removes an index that is left there. erasing says whether the store has an unfinished erasure.
func Lists(ctx context.Context, c *config.Config, dir string, store search.Store, erasing func() bool, log *slog.Logger) (*search.Index, error) {
	if !c.Store.ListIndex {
		if err := sqlite.Remove(filepath.Join(dir, listsDir)); err != nil {
			return nil, tga.Errorf(tga.StoreUnavailable, "the index of lists that is not asked for any more: %w", err)
		}
		return nil, nil
	}
	driver, err := optional.SQLDriver()
	if err != nil {
		return nil, err
	}
	return search.New(ctx, search.Options{Table: sqlite.In(filepath.Join(dir, listsDir), driver), Store: store, Erasing: erasing, Logger: log}), nil
}

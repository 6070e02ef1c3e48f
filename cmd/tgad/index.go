package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/schemas/tga"
)

func (a *app) index() *cobra.Command {
	c := &cobra.Command{
		Use:   "index",
		Short: "Manage the index of a store",
	}
	c.AddCommand(a.indexRebuild())
	return c
}

// rebuilt is what index rebuild says.
type rebuilt struct {
	Records uint64  `json:"records"`
	Appends uint64  `json:"appends"`
	Rows    uint64  `json:"rows"`
	Seconds float64 `json:"seconds"`
}

func (a *app) indexRebuild() *cobra.Command {
	var data string
	c := &cobra.Command{
		Use:   "rebuild --data DIR",
		Short: "Delete the index and rebuild it from the log",
		Long: `rebuild removes the index of the store in DIR, which no process may have, makes it anew
from the log, and reads it back. Run it when an error says that the index is damaged. The
log has everything that the index has, so nothing is lost.

A store makes its index anew by itself when it is opened and the index is missing, cannot be
opened or is another store's. A damaged block inside it is only met by the read that needs
it; this verb is for that.

An interrupted rebuild goes on when the store is opened next. Where acknowledged records are
missing from the log, the index stays as it is, and the exit code is 3.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if data == "" {
				return cli.Usagef("--data is required: the directory of the store")
			}
			var far engine.Rebuilding
			stop := a.Watch(cmd.Context(), func(context.Context) string {
				records, of := far.Progress()
				return fmt.Sprintf("index rebuild: %d of %d records of the log", records, of)
			})
			done, err := engine.RebuildIndex(cmd.Context(), data, engine.Options{}, &far)
			stop()
			switch {
			case errors.Is(err, tga.StateChecksumMismatch):
				return &cli.Unverified{Err: err}
			case err != nil:
				return &cli.Unopened{Err: err}
			}
			if a.JSON {
				return a.Line(rebuilt{done.Records, done.Appends, done.Rows, done.Elapsed.Seconds()})
			}
			a.Printf("index rebuild: %d records of the log, %d appends, %d rows, %.1f s\n", done.Records, done.Appends, done.Rows, done.Elapsed.Seconds())
			return nil
		},
	}
	dataFlag(c, &data)
	return c
}

package cli

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/internal/assemble"
	"github.com/tgad/tgad/internal/config"
)

// Copying says which store is copied into which database.
type Copying struct {
	From, To string         // a directory, and a URL
	Config   *config.Config // for the rest of [store]
	Progress func(done, of uint64)
}

// Copied says what a copy has.
type Copied struct {
	Store   string `json:"store"` // its id
	Appends uint64 `json:"appends"`
	Traces  int    `json:"traces"`
	Entries int    `json:"entries"`
	Notes   int    `json:"notes"`
	Records int    `json:"records"`
}

// copyStore is the verb copy.
func (d Database) copyStore(s *Streams) *cobra.Command {
	var from, to, file string
	c := &cobra.Command{
		Use:   "copy --from DIR --to URL [--config FILE]",
		Short: "Copy a store from a directory into a database",
		Long: `copy copies the store in DIR into a database that tgad pg migrate has prepared. The copy
has the store's id, its permits stay good, and entries, ledger records and the order are byte
for byte the same. Nobody may have DIR open meanwhile. A copy that was broken off goes on where
it stood: run the same command again. At its end the copy is checked and compared with DIR.

Until then a daemon that opens the database finds it frozen. Before the copy may be served, the
store in DIR is frozen: a call is never sent from both.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			x := Copying{From: from, To: to}
			var err error
			x.Config, err = assemble.Given(file)
			switch {
			case err != nil:
				return err
			case from == "" || to == "":
				return Usagef("--from and --to are required: the store's directory, and the URL of the database")
			}
			if err := config.CheckStoreURL(to); err != nil {
				return Usagef("--to: %s", err)
			}
			return d.copied(cmd.Context(), s, x)
		},
	}
	c.Flags().StringVar(&from, "from", os.Getenv("TGAD_DATA"), "the store's `directory` (or $TGAD_DATA)")
	c.Flags().StringVar(&to, "to", "", "the `URL` of the database, without a password")
	c.Flags().StringVar(&file, "config", "", "configuration `file` with the rest of [store]: shard, password_file")
	return c
}

func (d Database) copied(ctx context.Context, s *Streams, x Copying) error {
	var far atomic.Pointer[string]
	x.Progress = func(done, of uint64) {
		text := fmt.Sprintf("copied %d of %d appends", done, of)
		far.Store(&text)
	}
	stop := s.Watch(ctx, func(context.Context) string {
		if text := far.Load(); text != nil {
			return *text
		}
		return ""
	})
	done, err := d.Copy(ctx, x)
	stop()
	if err != nil {
		return err
	}
	if s.JSON {
		return s.Line(done)
	}
	s.Printf("copied store %s: %d traces, %d entries, %d notes, %d ledger records, %d appends; compared, and %s is frozen\n",
		done.Store, done.Traces, done.Entries, done.Notes, done.Records, done.Appends, x.From)
	return nil
}

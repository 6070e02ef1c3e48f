package cli

import (
	"context"
	"errors"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/internal/assemble"
	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/internal/daemon"
	"github.com/tgad/tgad/schemas/tga"
)

// verify is the verb verify for a store in a database. It reads the database itself and asks no daemon.
func (d Database) verify(s *Streams) *cobra.Command {
	var url, file string
	c := &cobra.Command{
		Use:   "verify --store URL [--config FILE]",
		Short: "Verify a store in a database; exits 3 if it was altered or damaged",
		Long: `verify reads the whole store beside the daemons that serve it: every digest and link, the ledger,
the order, and what is kept of its evidence: each tile, each checkpoint and each signature. No row of
the log is written. FILE has the rest of [store]: password_file, shard, namespace.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			conf, err := assemble.Given(file)
			if err != nil {
				return err
			}
			if url == "" {
				url = conf.Store.URL
			}
			if url == "" {
				return Usagef("--store is required: the URL of the store")
			}
			if err := config.CheckStoreURL(url); err != nil {
				return Usagef("--store: %s", err)
			}
			v, err := verifyDatabase(cmd.Context(), d.Open, daemon.Options{URL: url, Config: conf, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				return err
			}
			return s.Verdict(v)
		},
	}
	c.Flags().StringVar(&url, "store", "", "the store's `URL` in a database, without a password")
	c.Flags().StringVar(&file, "config", "", "configuration `file` with the rest of [store]")
	return c
}

func verifyDatabase(ctx context.Context, open OpenStore, o daemon.Options) (v Verdict, err error) {
	v = Verdict{What: "store", Path: o.URL}
	store, err := open(ctx, o)
	if err != nil {
		return v, v.found(&Unopened{err})
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if why := store.Stats().Frozen; why != "" {
		v.fault(Failure{Code: tga.StateChecksumMismatch, Message: "the store is frozen: " + why})
	}
	report, err := store.Check(ctx)
	if err != nil {
		return v, v.found(err)
	}
	v.take(report)
	return v, nil
}

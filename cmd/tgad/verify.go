package main

import (
	"context"
	"errors"
	"os"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/internal/daemon"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
)

func (a *app) verify() *cobra.Command {
	var url string
	c := &cobra.Command{
		Use:   "verify [DIR | FILE | TRACE]",
		Short: "Verify the log against its digests; exits 3 if it was altered or damaged",
		Long: `verify recomputes every digest and link, and names the trace, the sequence number and
both digests of what disagrees:

  DIR    a store, with what it keeps of its evidence. One that is open is checked by the daemon
         that has it.
  FILE   a sealed segment or an export; neither needs a store or a daemon.
  TRACE  one trace of the daemon's store.

Without an argument it is the store that --data names, else the daemon's. With --store
postgres://… it is a store in a database, whether or not a daemon serves it: the program
tgad-postgres does it. Nothing is written or repaired. What is sealed under a key that cannot
be had is not verified, and verify says of how much that is so; that a key ring lacks keys is
a fault.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			if url != "" {
				if len(args) > 0 {
					return cli.Usagef("--store and %s: name one of them", args[0])
				}
				if err := config.CheckStoreURL(url); err != nil {
					return cli.Usagef("--store: %s", err)
				}
				return cli.Postgres.Exec("verify --store postgres://…", os.Args[1:])
			}
			if dir := a.store(); len(args) == 0 && dir != "" {
				if a.data != "" && a.socketNamed() {
					return errTwoPlaces
				}
				args = []string{dir}
			}
			if len(args) == 0 {
				return a.verifyOpen(ctx, tga.ID{})
			}
			if id, err := tga.ParseID(args[0]); err == nil {
				return a.verifyOpen(ctx, id)
			}
			conf, err := a.loaded()
			if err != nil {
				return err
			}
			v, err := a.VerifyPath(ctx, args[0], conf)
			if errors.Is(err, tga.StateLockAcquireFailed) {
				return a.verifyHeld(ctx, args[0], err)
			}
			if err != nil {
				return err
			}
			return a.Verdict(v)
		},
	}
	c.Flags().StringVar(&url, "store", "", "the `URL` of a store in a database, without a password")
	return c
}

func (a *app) verifyOpen(ctx context.Context, trace tga.ID) error {
	return a.ask(ctx, func(ctx context.Context, c *client.Client) error {
		stop := a.Watch(ctx, cli.Working(c, "verify"))
		v, err := cli.VerifyOpen(ctx, c, trace)
		stop()
		if err != nil {
			return err
		}
		return a.Verdict(v)
	})
}

// verifyHeld verifies a store that a process has open. It asks through the socket that the
// store names. If the user named a socket, it asks there, provided that the process that has
// the store listens there: another daemon would answer about another store.
func (a *app) verifyHeld(ctx context.Context, dir string, locked error) error {
	if !a.socketNamed() {
		a.data = dir
		return a.verifyOpen(ctx, tga.ID{})
	}
	if at, ok := daemon.SocketOf(dir); ok && cli.SameFile(at, a.socket) {
		return a.verifyOpen(ctx, tga.ID{})
	}
	return tga.Errorf(tga.StateLockAcquireFailed,
		"%s is open, and not by the daemon at %s: name its socket with --socket, or verify a backup: %w", dir, a.socket, locked)
}

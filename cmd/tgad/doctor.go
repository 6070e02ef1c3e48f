package main

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/internal/daemon"
	"github.com/tgad/tgad/internal/doctor"
	"github.com/tgad/tgad/schemas/tga"
)

func (a *app) doctor() *cobra.Command {
	var data string
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Look for problems of the machine, the daemon and the store",
		Long: `doctor looks at the socket, the permissions, the disk and the store, and measures how
long the disk takes to make a write durable. Unless --socket names a daemon, it asks the one
that has the store of --data. It changes nothing but a scratch file. It exits 1 if something
is wrong, or if it could not look at everything within a minute.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			ctx, cancel := context.WithTimeoutCause(cmd.Context(), time.Minute, tga.Errorf(tga.StoreUnavailable, "a minute is over: the checks that are not listed were not made"))
			defer cancel()
			if data != "" && !a.socketNamed() && (cmd.Flags().Changed("data") || os.Getenv("TGAD_SOCKET") == "") {
				if socket, ok := daemon.SocketOf(data); ok {
					a.socket = socket
				}
			}
			c := a.dial()
			defer func() { err = errors.Join(err, c.Close()) }()
			bad := false
			for f := range doctor.Examine(ctx, c, a.socket, data) {
				bad = bad || f.Verdict == doctor.Bad
				if a.JSON {
					if err := a.Line(f); err != nil {
						return err
					}
					continue
				}
				a.Printf("%-5s %-12s %s\n", f.Verdict, f.Check, cli.Clean(f.Detail))
				if f.Remedy != "" {
					a.Printf("%s\n", cli.Wrap(f.Remedy, "                   → ", 96))
				}
			}
			if ctx.Err() != nil { // what was not looked at is not found to be good
				return context.Cause(ctx)
			}
			if bad {
				return cli.Silent(cli.ExitError)
			}
			return nil
		},
	}
	dataFlag(c, &data)
	return c
}

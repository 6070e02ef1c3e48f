package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/runtime/client"
)

func readiness(a *app) *cobra.Command {
	var live bool
	c := &cobra.Command{
		Use:   "ready",
		Short: "Exit 0 if the daemon is ready for calls: a probe for a container",
		Long: `ready asks the daemon what /readyz says, and exits 0 if every unfinished call has been
checked and calls are accepted; otherwise it exits 1 and prints why. It is a probe for a
container, whose own probes cannot ask a unix socket.

With --live it asks /livez, which fails only if a restart could help.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				if live {
					return c.Live(ctx)
				}
				return c.Ready(ctx)
			})
		},
	}
	c.Flags().BoolVar(&live, "live", false, "ask whether a restart could help, not whether calls are accepted")
	return c
}

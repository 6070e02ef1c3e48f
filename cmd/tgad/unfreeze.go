package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/runtime/client"
)

func (a *app) unfreeze() *cobra.Command {
	var accept, endQuarantine bool
	c := &cobra.Command{
		Use:   "unfreeze --accept-loss | --end-quarantine",
		Short: "Let a frozen store take calls again",
		Long: `unfreeze opens a store that is frozen because its log may not be all that was
acknowledged: restored from a backup, or damaged. What was lost cannot be known, so
every call begun before is treated as one that may have run, and is not sent again
unless its tool only reads. The decision is recorded, with your name.

The keys that were used in the lost part are not known either: until you have looked,
and say so with --end-quarantine, a write call under a key that the log does not have
is refused.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if accept && endQuarantine {
				return cli.Usagef("--accept-loss comes first, --end-quarantine once you have looked")
			}
			if !accept && !endQuarantine {
				return cli.Usagef("--accept-loss is required: calls that the lost part of the log held may be sent a second time by their callers")
			}
			return a.ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				if endQuarantine {
					if err := c.EndQuarantine(ctx); err != nil {
						return err
					}
					return a.done("unfreeze", "the quarantine is ended")
				}
				if err := c.Unfreeze(ctx, accept); err != nil {
					return err
				}
				return a.done("unfreeze", "the store takes calls")
			})
		},
	}
	c.Flags().BoolVar(&accept, "accept-loss", false, "I know that acknowledged calls may be missing")
	c.Flags().BoolVar(&endQuarantine, "end-quarantine", false, "I have looked for calls that the log does not have")
	return c
}

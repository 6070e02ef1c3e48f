package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/runtime/client"
)

func (a *app) abandon() *cobra.Command {
	var reason string
	c := &cobra.Command{
		Use:   "abandon TRACE --reason TEXT",
		Short: "Give up a call in doubt; its key is never sent again",
		Long: `abandon ends a call in doubt as FAILED with EFFECT_IN_DOUBT: whether it ran stays
unknown, and its key is never sent again.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := cli.ParseID(args[0])
			if err != nil {
				return err
			}
			if reason == "" {
				return cli.Usagef("--reason is required")
			}
			return a.ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				return a.settled(c.Abandon(ctx, id, reason))
			})
		},
	}
	c.Flags().StringVar(&reason, "reason", "", "why, at most 200 characters")
	return c
}

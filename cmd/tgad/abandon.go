package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/wire"
)

func (a *app) abandon() *cobra.Command {
	var reason string
	var many doubts
	c := &cobra.Command{
		Use:   "abandon TRACE --reason TEXT",
		Short: "Give up a call in doubt; its key is never sent again",
		Long: `abandon ends a call in doubt as FAILED with EFFECT_IN_DOUBT: whether it ran stays
unknown, and its key is never sent again.

An approved call that was not sent, for example because its executor never came back,
ends as FAILED with POLICY_VIOLATION. Its key stays free.

` + many.help(),
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if reason == "" {
				return cli.Usagef("--reason is required")
			}
			return many.each(cmd.Context(), a, args, func(ctx context.Context, c *client.Client, t wire.OpenTrace) (func() (runtime.Result, error), error) {
				return func() (runtime.Result, error) { return c.Abandon(ctx, t.TraceID, reason) }, nil
			})
		},
	}
	many.flags(c.Flags())
	c.Flags().StringVar(&reason, "reason", "", "why, at most 200 characters")
	return c
}

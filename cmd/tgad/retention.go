package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/wire"
)

func retain(a *app) *cobra.Command {
	var what wire.RetentionRequest
	c := &cobra.Command{
		Use:   "retention [--dry-run]",
		Short: "Erase and seal what the retention rules say, now",
		Long: `retention carries the [retention] rules of the daemon's configuration out at once. The daemon
does it by itself too, every day unless the file says otherwise. With --dry-run it only
says what is due.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				done, err := client.Retain(ctx, c, what)
				if err != nil {
					return err
				}
				if a.JSON {
					return a.message(done)
				}
				for _, r := range done.Rules {
					switch {
					case what.DryRun:
						a.Printf("rule %d: %d traces are due\n", r.Rule, r.Due)
					case r.Archived != "":
						a.Printf("rule %d: %d traces were due, %d erased; %s has them\n", r.Rule, r.Due, r.Erased, cli.Clean(r.Archived))
					default:
						a.Printf("rule %d: %d traces were due, %d erased\n", r.Rule, r.Due, r.Erased)
					}
				}
				if done.Sealed > 0 {
					a.Printf("sealed %d traces\n", done.Sealed)
				}
				if done.Unreadable > 0 {
					a.Printf("%d traces cannot be read and were left: tgad verify names them\n", done.Unreadable)
				}
				if done.More {
					a.Printf("there is more: one run erases at most so much\n")
				}
				return nil
			})
		},
	}
	c.Flags().BoolVar(&what.DryRun, "dry-run", false, "only say what is due")
	return c
}

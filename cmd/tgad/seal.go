package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
)

func (a *app) seal() *cobra.Command {
	var age time.Duration
	c := &cobra.Command{
		Use:   "seal",
		Short: "Move finished traces into sealed segments",
		Long: `seal moves traces that are at their end into compressed, self-verifying segments
inside the store. They stay readable, and their keys stay used.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				done, err := c.Seal(ctx, tga.MillisOf(time.Now().Add(-age)))
				if err != nil {
					return err
				}
				if a.JSON {
					return a.message(done)
				}
				a.Printf("sealed %d traces in %d segments, %d bytes\n", done.Traces, done.Segments, done.Bytes)
				return nil
			})
		},
	}
	c.Flags().DurationVar(&age, "older-than", 0, "only traces that ended at least this long ago")
	return c
}

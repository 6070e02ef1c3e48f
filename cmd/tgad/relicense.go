package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/internal/story"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

func relicense(a *app) *cobra.Command {
	var m wire.RelicenseRequest
	c := &cobra.Command{
		Use:   "relicense TRACE... --reason TEXT",
		Short: "Let a tool's new licence decide about calls in doubt that are named",
		Long: `A call in doubt is sent again only if the licence of its attempt and the present one both
allow it. So a licence that you change sends no old doubt. relicense says of the calls
that you name that the present licence counts alone: the log gets who, why and which
licence, and then the call is sent again, or its tool is asked about it. Nothing but this
verb does that.

--dry-run says what would follow for each, and changes nothing. A call for which the
present licence changes nothing is refused.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := parseIDs(args)
			if err != nil {
				return err
			}
			if m.Reason == "" {
				return cli.Usagef("--reason is required")
			}
			return a.ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				return relicenseEach(ctx, a, c, ids, m)
			})
		},
	}
	c.Flags().StringVar(&m.Reason, "reason", "", "why, at most 500 characters; it is recorded")
	c.Flags().BoolVar(&m.DryRun, "dry-run", false, "say what would follow, and change nothing")
	return c
}

// relicenseEach relicenses each named call. If one is refused, it prints why and goes on with the others.
func relicenseEach(ctx context.Context, a *app, c *client.Client, ids []tga.ID, m wire.RelicenseRequest) error {
	failed := 0
	for _, id := range ids {
		done, err := c.Relicense(ctx, id, m)
		switch {
		case err != nil && (len(ids) == 1 || ctx.Err() != nil):
			return err
		case err != nil:
			failed++
			if err := a.Aside(fmt.Sprintf("trace %s: ", id), err); err != nil {
				return err
			}
		case a.JSON:
			if err := a.message(done); err != nil {
				return err
			}
		case m.DryRun:
			a.Printf("trace %s: %s when it was attempted, %s now: %s\n", id, cli.Clean(done.Was), cli.Clean(done.Now), story.Following[done.Next])
		default:
			a.Printf("trace %s %s seq %d\n", id, done.Call.State, done.Call.Seq)
		}
	}
	if failed > 0 {
		return tga.Errorf(tga.StateInvalidTransition, "%d of %d calls did not go on: see above", failed, len(ids))
	}
	return nil
}

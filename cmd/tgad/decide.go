package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

func (a *app) approve() *cobra.Command {
	return a.decide("approve", "Approve a request, which then goes on, or a record", true)
}

func (a *app) deny() *cobra.Command {
	return a.decide("deny", "Deny a request, or reject a record; one denial denies", false)
}

func (a *app) decide(verb, short string, approve bool) *cobra.Command {
	var rationale, about string
	c := &cobra.Command{
		Use:   verb + " TRACE --rationale TEXT",
		Short: short,
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := cli.ParseID(args[0])
			if err != nil {
				return err
			}
			if rationale == "" {
				return cli.Usagef("--rationale is required: it is kept in the log permanently")
			}
			vote := wire.DecideRequest{Approve: approve, Rationale: rationale}
			if about != "" {
				if vote.About, err = tga.ParseDigest(about); err != nil {
					return cli.Usagef("--about: %w", err)
				}
			}
			return a.ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				res, err := c.Decide(ctx, id, vote)
				if err == nil && (!approve || !res.State.Terminal()) {
					// A denial is what the person asked for, so it is no error. An approved
					// call that is left to its own executor is no error either.
					if a.JSON {
						return a.message(callMessage(res))
					}
					a.Printf("%s\n", resultLine(res))
					return nil
				}
				return a.result(res, err)
			})
		},
	}
	c.Flags().StringVar(&rationale, "rationale", "", "why, in 10 to 1000 characters")
	c.Flags().StringVar(&about, "about", "", "the `digest` of the question that you were shown, as approvals lists it; needed once the question has changed")
	return c
}

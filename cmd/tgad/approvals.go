package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/runtime/client"
)

func (a *app) approvals() *cobra.Command {
	return &cobra.Command{
		Use:   "approvals",
		Short: "List the requests that wait for people",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				list, err := c.Approvals(ctx)
				if err != nil {
					return err
				}
				var rows [][]string
				for _, p := range list {
					if a.JSON {
						if err := a.message(p); err != nil {
							return err
						}
						continue
					}
					expires := "never"
					if p.Expires != 0 {
						expires = p.Expires.String()
					}
					rows = append(rows, []string{p.TraceID.String(), p.Since.String(), expires, fmt.Sprintf("%d of %d", approvals(p.Votes), p.Required), p.Why})
				}
				if a.JSON || len(rows) == 0 {
					return nil
				}
				return a.Table([]string{"TRACE", "SINCE", "EXPIRES", "APPROVED", "WHY"}, rows)
			})
		},
	}
}

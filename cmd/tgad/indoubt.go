package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/runtime/client"
)

func (a *app) inDoubt() *cobra.Command {
	return &cobra.Command{
		Use:   "in-doubt",
		Short: "List the calls that may have run",
		Long: `in-doubt lists the calls that may have been sent and have no recorded effect. Settle
each with resolve, when it is known what happened, or abandon.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				list, err := c.InDoubt(ctx)
				if err != nil {
					return err
				}
				var rows [][]string
				for _, t := range list {
					if a.JSON {
						if err := a.message(t); err != nil {
							return err
						}
						continue
					}
					rows = append(rows, []string{t.TraceID.String(), t.Since.String(), fmt.Sprint(t.Attempts), tool(t.ToolServer, t.ToolName), keyColumn(t.IdempotencyKey)})
				}
				if a.JSON || len(rows) == 0 {
					return nil
				}
				return a.Table([]string{"TRACE", "SINCE", "ATTEMPTS", "TOOL", "KEY"}, rows)
			})
		},
	}
}

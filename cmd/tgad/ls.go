package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/runtime/client"
)

func (a *app) ls() *cobra.Command {
	var q client.TracesQuery
	c := &cobra.Command{
		Use:   "ls",
		Short: "List the open traces, or all traces",
		Long: `ls lists the traces that are not at their end, oldest first, with the time since which
each is in its state. With --all it lists every trace, finished and archived ones too.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				list, err := tracesOf(ctx, c, q)
				if err != nil {
					return err
				}
				return a.traces(list)
			})
		},
	}
	c.Flags().BoolVar(&q.All, "all", false, "finished traces too")
	c.Flags().StringVar(&q.State, "state", "", "only traces in this state")
	c.Flags().StringVar(&q.Namespace, "namespace", "", "only traces of this namespace")
	return c
}

// tracesOf reads a list of traces. With an error comes what was read before.
func tracesOf(ctx context.Context, c *client.Client, q client.TracesQuery) (list []client.OpenTrace, err error) {
	for t, err := range c.Traces(ctx, q) {
		if err != nil {
			return list, err
		}
		list = append(list, t)
	}
	return list, nil
}

func (a *app) traces(list []client.OpenTrace) error {
	var rows [][]string
	for _, t := range list {
		if a.JSON {
			if err := a.message(t); err != nil {
				return err
			}
			continue
		}
		note := standing(t.Problem)
		if t.Held {
			note = "running"
		}
		rows = append(rows, []string{t.TraceID.String(), t.Since.String(), t.State, tool(t.ToolServer, t.ToolName), keyColumn(t.IdempotencyKey), note})
	}
	if a.JSON || len(rows) == 0 {
		return nil
	}
	return a.Table([]string{"TRACE", "SINCE", "STATE", "TOOL", "KEY", ""}, rows)
}

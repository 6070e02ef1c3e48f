package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/wire"
)

func (a *app) ls() *cobra.Command {
	var q wire.TracesQuery
	var since, until string
	most := 0
	c := &cobra.Command{
		Use:   "ls",
		Short: "List the open traces, or all traces",
		Long: `ls lists the traces that are not at their end, oldest first, with the time since which
each is in its state. With --all it lists every trace, finished and archived ones too. A filter
takes the whole value: --tool char does not find charge. Only --text finds a part.

With an index of lists ([store] list_index), --newest lists the newest traces first, and tgad reads
only what it prints. All other lists read the whole store.`,
		Example: `  tgad ls --all --tool charge --state FAILED
  tgad ls --all --newest --since 24h --limit 20`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			now := time.Now()
			var errs [2]error
			q.Since, errs[0] = cli.ParseTime("--since", since, now)
			q.Until, errs[1] = cli.ParseTime("--until", until, now)
			if err := errors.Join(errs[:]...); err != nil {
				return err
			}
			if most < 0 {
				return cli.Usagef("--limit %d: want 0, for all, or more", most)
			}
			return a.ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				list, err := tracesOf(ctx, c, q, most)
				if err != nil {
					return err
				}
				return a.traces(list)
			})
		},
	}
	f := c.Flags()
	f.BoolVar(&q.All, "all", false, "finished traces too")
	f.BoolVar(&q.Newest, "newest", false, "the newest first, by when a trace came into its state")
	f.IntVar(&most, "limit", 0, "no more than `N` traces; 0 is all")
	f.StringVar(&q.State, "state", "", "only traces in this state")
	f.StringVar(&q.Class, "class", "", "only traces with this outcome class")
	f.StringVar(&q.Server, "server", "", "only calls of this tool server")
	f.StringVar(&q.Tool, "tool", "", "only calls of this tool")
	f.StringVar(&q.Key, "key", "", "only calls with this idempotency key")
	f.StringVar(&q.Text, "text", "", "only calls whose arguments contain this `text`")
	f.StringVar(&q.Namespace, "namespace", "", "only traces of this namespace")
	f.StringVar(&since, "since", "", "only traces that came into their state at this `time` or later; 2h means two hours ago")
	f.StringVar(&until, "until", "", "only traces that came into their state before this `time`")
	return c
}

// tracesOf reads a list of at most most traces; 0 means all. With an error it also returns what it read before.
func tracesOf(ctx context.Context, c *client.Client, q wire.TracesQuery, most int) (list []wire.OpenTrace, err error) {
	for t, err := range c.Traces(ctx, q) {
		if err != nil {
			return list, err
		}
		if list = append(list, t); len(list) == most {
			break
		}
	}
	return list, nil
}

func (a *app) traces(list []wire.OpenTrace) error {
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

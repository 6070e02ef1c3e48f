package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/wire"
)

func (a *app) inDoubt() *cobra.Command {
	return &cobra.Command{
		Use:   "in-doubt",
		Short: "List the calls that may have run",
		Long: `in-doubt lists the calls that may have been sent and have no recorded effect, and that
no process is executing now (a call whose executor has a fresh permit is not listed). It
shows when the last attempt was and why it has no answer, the licence, how often the tool server was
asked and what it said, when it is asked again, and what would settle the call:

  finish   the answer of the executor that has the permit
  begin    a new attempt by its executor
  recover  the call is sent again
  probe    the tool server is asked
  resolve  you know what happened
  abandon  nobody ever will`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				list, err := c.InDoubt(ctx)
				if err != nil {
					return err
				}
				return doubtTable(a, list)
			})
		},
	}
}

// doubtTable prints calls in doubt. If there are none, it prints nothing.
func doubtTable(a *app, list []wire.OpenTrace) error {
	var rows [][]string
	for _, t := range list {
		if a.JSON {
			if err := a.message(t); err != nil {
				return err
			}
			continue
		}
		rows = append(rows, doubtRow(t))
	}
	if a.JSON || len(rows) == 0 {
		return nil
	}
	return a.Table([]string{"TRACE", "SINCE", "ATTEMPTS", "CAUSE", "LICENCE", "ASKED", "ANSWER", "NEXT", "SETTLED BY", "TOOL", "KEY", "EVIDENCE"}, rows)
}

func doubtRow(t wire.OpenTrace) []string {
	d := t.Doubt
	if d == nil {
		d = &wire.Doubt{Since: t.Since}
	}
	next, evidence := "", ""
	if d.Next != 0 {
		next = d.Next.String()
	}
	if !d.EvidenceDigest.IsZero() {
		evidence = d.EvidenceDigest.String()
	}
	return []string{
		t.TraceID.String(), d.Since.String(), fmt.Sprint(t.Attempts), cli.Shorten(cli.Clean(d.Cause), 60), d.Licence, fmt.Sprint(d.Probes), d.Answer, next,
		strings.Join(d.Settles, ","), tool(t.ToolServer, t.ToolName), keyColumn(t.IdempotencyKey), evidence,
	}
}

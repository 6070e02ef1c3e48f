package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/wire"
)

// tellPeople is tgad notify.
func tellPeople(a *app) *cobra.Command {
	var test bool
	c := &cobra.Command{
		Use:   "notify",
		Short: "Show the receivers of notices, or send them a test notice",
		Long: `notify lists the receivers of the daemon's configuration ([[notify]]): how many notices each
took since the daemon began, when it took the newest, and for how long it has not taken the
one that it is to take.

--test has the daemon give each of them a notice that says it is a test, and says what came
of it. It exits 1 if one did not take it, or if there is none.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				said, err := client.Notify(ctx, c, test)
				if err != nil {
					return err
				}
				return tellers(a, said.Receivers, test)
			})
		},
	}
	c.Flags().BoolVar(&test, "test", false, "give each receiver a notice that says it is a test")
	return c
}

// tellers prints the receivers of notices, one a row.
func tellers(a *app, all []wire.NotifyReceiver, test bool) error {
	head, bad := []string{"RECEIVER", "TYPE", "TAKEN", "FAILED", "LAST", "LATE", "TROUBLE"}, test && len(all) == 0
	if test {
		head = append(head, "TEST")
	}
	var rows [][]string
	for _, r := range all {
		bad = bad || r.Failed != ""
		if a.JSON {
			if err := a.message(r); err != nil {
				return err
			}
			continue
		}
		last, late := "never", ""
		if r.Last != 0 {
			last = r.Last.String()
		}
		if r.LateMS > 0 {
			late = (time.Duration(r.LateMS) * time.Millisecond).Round(time.Second).String()
		}
		row := []string{r.ID, r.Type, fmt.Sprint(r.Taken), fmt.Sprint(r.Failures), last, late, cli.Clean(r.Trouble)}
		if came := "taken"; test {
			if r.Failed != "" {
				came = "not taken: " + cli.Clean(r.Failed)
			}
			row = append(row, came)
		}
		rows = append(rows, row)
	}
	switch {
	case len(all) == 0 && !a.JSON:
		a.Printf("no receivers: the daemon's configuration has no [[notify]]\n")
	case len(rows) > 0:
		if err := a.Table(head, rows); err != nil {
			return err
		}
	}
	if bad {
		return cli.Silent(cli.ExitError)
	}
	return nil
}

package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/wire"
)

func (a *app) recover() *cobra.Command {
	return &cobra.Command{
		Use:   "recover [TRACE]",
		Short: "Continue open traces from where they stopped",
		Long: `recover takes a trace on from where a crash, a time-out or a pending approval left
it, and prints like call. Without a trace it does so for every open trace that nobody
runs, and lists what became of each; it exits 4 if any is in doubt.

The daemon does this by itself when it starts.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := parseIDs(args)
			if err != nil {
				return err
			}
			return a.ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				if len(ids) == 1 {
					return a.result(c.Recover(ctx, ids[0]))
				}
				all, err := c.RecoverAll(ctx)
				if err != nil {
					return err
				}
				return a.recovered(all)
			})
		},
	}
}

func (a *app) recovered(all []wire.RecoveredTrace) error {
	var rows [][]string
	worst := cli.ExitOK
	for _, t := range all {
		if t.Problem != nil {
			if code := cli.ExitCode(t.Problem.Err()); worst == cli.ExitOK || code == cli.ExitInDoubt {
				worst = code
			}
		}
		if a.JSON {
			if err := a.message(t); err != nil {
				return err
			}
			continue
		}
		rows = append(rows, []string{t.TraceID.String(), t.Window, t.Call.State, standing(t.Problem), tool(t.ToolServer, t.ToolName), keyColumn(t.IdempotencyKey)})
	}
	if !a.JSON && len(rows) > 0 {
		if err := a.Table([]string{"TRACE", "WINDOW", "NOW", "WHY", "TOOL", "KEY"}, rows); err != nil {
			return err
		}
	}
	if worst != cli.ExitOK {
		return cli.Silent(worst)
	}
	return nil
}

package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

func (a *app) compensate() *cobra.Command {
	return &cobra.Command{
		Use:   "compensate TRACE",
		Short: "Undo the effect of a call",
		Long: `compensate undoes the recorded effect of a trace by the call that the configuration
names as its inverse, and prints like call. It is a governed call of its own, made once:
asked again, or after a crash, it goes on with the same one.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := cli.ParseID(args[0])
			if err != nil {
				return err
			}
			return a.ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				return a.result(c.Compensate(ctx, id))
			})
		},
	}
}

func (a *app) rollbackPlan() *cobra.Command {
	c := &cobra.Command{
		Use:   "rollback-plan TRACE...",
		Short: "Show what undoing the effects of some traces would do",
		Long: `rollback-plan shows, the newest effect first, which of the traces compensate can undo
and by which call, and what stands whatever is done. It changes nothing. A daemon answers by
its own configuration; where no process has the store, --config names that.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := parseIDs(args)
			if err != nil {
				return err
			}
			return a.ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				steps, err := c.RollbackPlan(ctx, ids)
				if err != nil {
					return err
				}
				return a.plan(steps)
			})
		},
	}
	c.Flags().StringVar(&a.config, "config", "", "the daemon's configuration `file` (TOML), for a store that no process has")
	return c
}

func (a *app) plan(steps []wire.RollbackStep) error {
	var rows [][]string
	for _, s := range steps {
		if a.JSON {
			if err := a.message(s); err != nil {
				return err
			}
			continue
		}
		undo, settled := s.Why, ""
		if s.Inverse != nil {
			undo = "by " + tool(s.Inverse.ToolServer, s.Inverse.ToolName) + " " + cli.Shorten(string(s.Inverse.Args), 60)
		}
		if s.Settled != 0 {
			settled = s.Settled.String()
		}
		rows = append(rows, []string{s.TraceID.String(), settled, s.OutcomeClass, tool(s.ToolServer, s.ToolName), yesNo(s.CanUndo), undo})
	}
	if a.JSON {
		return nil
	}
	return a.Table([]string{"TRACE", "SETTLED", "OUTCOME", "TOOL", "UNDO", "HOW OR WHY NOT"}, rows)
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func (a *app) printEvidence() *cobra.Command {
	var trace string
	c := &cobra.Command{
		Use:   "evidence DIGEST",
		Short: "Print a stored piece of evidence",
		Long: `evidence prints the exact bytes that lie under a digest: what a tool server or the
world answered when it was asked. A peer that is bound to a namespace names a trace of
its own whose log names the digest.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			digest, err := tga.ParseDigest(args[0])
			if err != nil {
				return cli.Usage(err)
			}
			var id tga.ID
			if trace != "" {
				if id, err = cli.ParseID(trace); err != nil {
					return err
				}
			}
			return a.ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				raw, err := c.Evidence(ctx, digest, id)
				if err != nil {
					return err
				}
				return a.Bytes(raw)
			})
		},
	}
	c.Flags().StringVar(&trace, "trace", "", "a trace whose log names the digest")
	return c
}

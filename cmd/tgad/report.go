package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/internal/ui"
	"github.com/tgad/tgad/runtime/client"
)

func report(a *app) *cobra.Command {
	var name string
	c := &cobra.Command{
		Use:   "report TRACE",
		Short: "Write what is known of a call as one HTML file",
		Long: `report writes the page of a call as one file that needs nothing beside itself: its picture,
its entries and notes in their order with their arguments and answers, and a button that
computes every digest and link of the chain in the reader's browser. The file loads nothing
from anywhere, and nothing that a tool answered runs in it.

It shows arguments and answers as the log has them. For proofs that others can check
against signed checkpoints, see tgad evidence export.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := cli.ParseID(args[0])
			if err != nil {
				return err
			}
			return a.ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				said, err := c.Trace(ctx, id)
				if err != nil {
					return err
				}
				page, err := ui.Report(said, documents(ctx, c, id), cli.BuildVersion().Version)
				if err != nil {
					return cli.Found(err)
				}
				return a.toFile(ctx, name, func(w io.Writer) error {
					_, err := w.Write(page)
					return err
				})
			})
		},
	}
	c.Flags().StringVarP(&name, "output", "o", "", "write to a `file`, which must not exist, instead of stdout")
	return c
}

package main

import (
	"context"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/runtime/client"
)

func (a *app) backup() *cobra.Command {
	return &cobra.Command{
		Use:   "backup DIR",
		Short: "Copy the store while it runs",
		Long: `backup copies the store into DIR, which must not exist, while the daemon goes on. The
daemon writes it, so DIR is a directory that the daemon may make. Check the copy with
tgad verify DIR.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			// The daemon has another working directory.
			dir, err := filepath.Abs(args[0])
			if err != nil {
				return err
			}
			return a.ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				stop := a.Watch(ctx, cli.Working(c, "backup"))
				err := c.Backup(ctx, dir)
				stop()
				if err != nil {
					return err
				}
				return a.done("backup", dir)
			})
		},
	}
}

// done prints that an administrative verb did what it was asked.
func (a *app) done(verb, what string) error {
	if a.JSON {
		return a.Line(struct {
			OK   bool   `json:"ok"`
			Verb string `json:"verb"`
			What string `json:"what"`
		}{true, verb, what})
	}
	a.Printf("%s: %s\n", verb, what)
	return nil
}

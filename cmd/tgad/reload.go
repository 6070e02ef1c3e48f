package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/runtime/client"
)

func reload(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "reload",
		Short: "Have the daemon read its configuration again",
		Long: `reload has the daemon read the file of its --config again. Where the file is right,
new calls take it, all of it at once; calls that are with a tool server come to their ends
there. Where it is not, or where it changes a key that takes a restart, nothing changes: the
old configuration holds, and the error says why. docs/CONFIG.md says of each key which it is.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				done, err := client.Reload(ctx, c)
				switch {
				case err != nil:
					return err
				case a.JSON:
					return a.message(done)
				case len(done.Changed) == 0:
					a.Printf("the configuration is what it was\n")
				default:
					a.Printf("the new configuration holds; changed: %s\n", cli.Clean(strings.Join(done.Changed, ", ")))
				}
				return nil
			})
		},
	}
}

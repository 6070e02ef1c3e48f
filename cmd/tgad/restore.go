package main

import (
	"github.com/spf13/cobra"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/cli"
)

func (a *app) restore() *cobra.Command {
	var data string
	c := &cobra.Command{
		Use:   "restore BACKUP --data DIR",
		Short: "Make a store from a backup; it opens frozen",
		Long: `restore makes the store DIR, which must not exist, from a backup. It gets an id of its
own and is frozen: it can be read and checked, and sends nothing. Calls that were made
after the backup are not in it; tgad unfreeze --accept-loss says that you know that.`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if data == "" {
				return cli.Usagef("--data is required: the directory of the new store")
			}
			if err := engine.Restore(args[0], data, engine.Options{}); err != nil {
				return err
			}
			return a.done("restore", data+" (frozen)")
		},
	}
	dataFlag(c, &data)
	return c
}

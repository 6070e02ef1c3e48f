package main

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"

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
		RunE: func(cmd *cobra.Command, args []string) error {
			if data == "" {
				return cli.Usagef("--data is required: the directory of the new store")
			}
			stop := a.Watch(cmd.Context(), func(context.Context) string {
				return fmt.Sprintf("restore: %d MiB copied", bytesIn(data+".partial")>>20)
			})
			defer stop()
			if err := engine.Restore(cmd.Context(), args[0], data, engine.Options{}); err != nil {
				return err
			}
			return a.done("restore", data+" (frozen)")
		},
	}
	dataFlag(c, &data)
	return c
}

// bytesIn is how much a directory holds, as far as it can be seen.
func bytesIn(dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error { // for a line of progress
		if err == nil && e.Type().IsRegular() {
			if info, err := e.Info(); err == nil {
				n += info.Size()
			}
		}
		return nil
	})
	return n
}

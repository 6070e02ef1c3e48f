package main

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/schemas/tga"
)

func (a *app) restore() *cobra.Command {
	var data, at string
	c := &cobra.Command{
		Use:   "restore BACKUP --data DIR [--at TIME | --at GROUP]",
		Short: "Make a store from a backup; the store opens frozen",
		Long: `restore makes the store DIR, which must not exist, from a backup. It gets an id of its
own and is frozen: it can be read and checked, and sends nothing. Calls that were made
after the backup are not in it; tgad unfreeze --accept-loss says that you know that.

--at restores the store as it was earlier: at a time, such as 2026-01-15T19:00:00Z, with
every append that was committed by then; or at a group, the number of a record of the log.
What was archived before the backup was made may have left the log since: an error names
the earliest group.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if data == "" {
				return cli.Usagef("--data is required: the directory of the new store")
			}
			point, err := pointOf(at)
			if err != nil {
				return err
			}
			stop := a.Watch(cmd.Context(), func(context.Context) string {
				return fmt.Sprintf("restore: %d MiB copied", bytesIn(data+".partial")>>20)
			})
			defer stop()
			if err := engine.RestoreAt(cmd.Context(), args[0], data, point, engine.Options{}); err != nil {
				return err
			}
			return a.done("restore", data+" (frozen)")
		},
	}
	dataFlag(c, &data)
	c.Flags().StringVar(&at, "at", "", "`time` (RFC 3339) or number of the group at which the log is to end")
	return c
}

// pointOf reads --at; "" is the end.
func pointOf(at string) (p engine.Point, err error) {
	if at == "" {
		return p, nil
	}
	if n, err := strconv.ParseUint(at, 10, 64); err == nil && n > 0 {
		return engine.Point{Group: n}, nil
	}
	t, err := time.Parse(time.RFC3339Nano, at)
	if err != nil || tga.MillisOf(t) <= 0 {
		return p, cli.Usagef("--at %q: want a time such as 2026-01-15T19:00:00Z, or the number of a group", at)
	}
	return engine.Point{Time: tga.MillisOf(t)}, nil
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

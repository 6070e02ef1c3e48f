package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/access"
	"github.com/tgad/tgad/internal/assemble"
	"github.com/tgad/tgad/internal/backup/bucket"
	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/schemas/tga"
)

func (a *app) restore() *cobra.Command {
	var data, at, file string
	c := &cobra.Command{
		Use:   "restore BACKUP --data DIR [--at TIME | --at GROUP]",
		Short: "Make a store from a backup; the store opens frozen",
		Long: `restore makes the store DIR, which must not exist, from a backup. It gets an id of its
own and is frozen: it can be read and checked, and sends nothing. Calls that were made
after the backup are not in it; tgad unfreeze --accept-loss says that you know that.

--at restores the store as it was earlier: at a time, such as 2026-01-15T19:00:00Z, with
every append that was committed by then; or at a group, the number of a record of the log.
What was archived before the backup was made may have left the log since: an error names
the earliest group.

BACKUP may be s3://BUCKET/PREFIX. What [backup] in the file of --config says of the service
counts, else the environment (AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL_S3, AWS_REGION). Each
object is compared with its digest; one that is gone or another one is named.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if data == "" {
				return cli.Usagef("--data is required: the directory of the new store")
			}
			point, err := pointOf(at)
			if err != nil {
				return err
			}
			return restoreFrom(cmd.Context(), a, args[0], data, file, point)
		},
	}
	dataFlag(c, &data)
	c.Flags().StringVar(&file, "config", "", "configuration `file` that says how a bucket is reached")
	c.Flags().StringVar(&at, "at", "", "`time` (RFC 3339) or number of the group at which the log is to end")
	return c
}

// restoreFrom restores from a directory. A backup in a bucket is first fetched into a temporary
// directory beside the new store.
func restoreFrom(ctx context.Context, a *app, from, data, file string, at engine.Point) (err error) {
	var fetched atomic.Pointer[string] // the directory beside
	stop := a.Watch(ctx, func(context.Context) string {
		if copied := bytesIn(data + ".partial"); copied > 0 || fetched.Load() == nil {
			return fmt.Sprintf("restore: %d MiB copied", copied>>20)
		}
		return fmt.Sprintf("restore: %d MiB fetched", bytesIn(*fetched.Load())>>20)
	})
	defer stop()
	if bucket.Is(from) {
		parent := filepath.Dir(filepath.Clean(data))
		if err := os.MkdirAll(parent, access.DirMode); err != nil {
			return err
		}
		dir, makeErr := os.MkdirTemp(parent, ".tgad-restore-")
		if makeErr != nil {
			return makeErr
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
		fetched.Store(&dir)
		if err := fetch(ctx, from, dir, file); err != nil {
			return err
		}
		from = dir
	}
	if err := engine.RestoreAt(ctx, from, data, at, engine.Options{}); err != nil {
		return err
	}
	return a.done("restore", data+" (frozen)")
}

// fetch copies the backup in a bucket into a directory.
func fetch(ctx context.Context, address, dir, file string) error {
	c, err := assemble.Given(file)
	if err != nil {
		return err
	}
	objects, err := assemble.Bucket(c, address)
	if err == nil {
		err = bucket.Pull(ctx, address, objects, dir)
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, tga.StateChecksumMismatch):
		return &cli.Unverified{Err: err}
	}
	return err
}

// pointOf reads --at. "" means the end of the log.
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

// bytesIn returns the total size of the files in a directory, as far as they can be read.
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

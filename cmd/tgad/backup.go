package main

import (
	"context"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/internal/backup/bucket"
	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/runtime/client"
)

func (a *app) backup() *cobra.Command {
	var to string
	c := &cobra.Command{
		Use:   "backup --to DIR|s3://BUCKET/PREFIX",
		Short: "Back the running store up to a directory; run it again to copy only what is new",
		Long: `backup copies the store into DIR while the daemon goes on. The daemon writes it, so DIR is
a directory that the daemon may make.

Where DIR does not exist, the whole store is copied and checked. Where DIR holds a backup
of this store, only what is new is copied and read back. The backup that was there can be
restored until the new one is whole, whenever the work is stopped.

DIR takes the backups of one store: those of another one, or of one that was restored to an
earlier time, are refused. Files that are not written any more are hard links where DIR is on
the store's own disk: copy DIR to another disk. Check a backup with tgad verify DIR.

--to s3://BUCKET/PREFIX keeps the backup in a bucket. The daemon sends it, with what [backup] in
its configuration says of the service, or its environment (AWS_ACCESS_KEY_ID,
AWS_ENDPOINT_URL_S3, AWS_REGION).`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && to == "" {
				to = args[0]
			} else if len(args) == 1 || to == "" {
				return cli.Usagef("--to is required, once: the directory of the backup")
			}
			dir, err := to, error(nil)
			if bucket.Is(to) {
				_, _, err = bucket.Parse(to)
			} else {
				dir, err = filepath.Abs(to) // the daemon has another working directory
			}
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
	c.Flags().StringVar(&to, "to", "", "`directory` of the backup, or s3://BUCKET/PREFIX")
	return c
}

// done prints that an administrative verb succeeded.
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

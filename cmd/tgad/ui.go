package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/internal/ui"
	"github.com/tgad/tgad/runtime/client"
)

func webView(a *app) *cobra.Command {
	var listen string
	c := &cobra.Command{
		Use:   "ui",
		Short: "Show the store in a browser",
		Long: `ui shows what waits for people, which calls are in doubt and what happened in each call, in
a browser on this machine, and does what you decide there. It may do what you may do on the
command line, and it asks the same daemon.

It prints a link that works once. From another machine, forward the port: with
ssh -L 8321:127.0.0.1:8321 HOST and --listen 127.0.0.1:8321 the link works there too.

With --data and a store that no process has, it shows the store and changes nothing.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				l, err := ui.Listen(listen)
				if err != nil {
					return err
				}
				v := ui.New(c, ui.Options{
					ReadOnly: a.dialer != nil, Version: cli.BuildVersion().Version,
					Logger: slog.New(slog.NewTextHandler(a.Err, &slog.HandlerOptions{Level: slog.LevelWarn})),
				})
				url := fmt.Sprintf("http://%s%s", l.Addr(), v.Login())
				if !a.JSON {
					a.Printf("open %s\n", url)
				} else if err := a.Line(map[string]string{"url": url}); err != nil {
					return errors.Join(err, l.Close())
				}
				return v.Serve(ctx, l)
			})
		},
	}
	c.Flags().StringVar(&listen, "listen", "127.0.0.1:0", "loopback `address` to listen on; port 0 is any that is free")
	return c
}

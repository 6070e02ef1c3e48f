package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/internal/logfile"
	"github.com/tgad/tgad/internal/ui"
	"github.com/tgad/tgad/runtime/client"
)

func webView(a *app) *cobra.Command {
	var listen string
	c := &cobra.Command{
		Use:   "ui [FILE]",
		Short: "Show the store, or a file of its log, in a browser",
		Long: `ui shows what waits for people, which calls are in doubt and what happened in each call, in
a browser on this machine, and does what you decide there. It may do what you may do on the
command line, and it asks the same daemon.

It prints a link that works once. From another machine, forward the port: with
ssh -L 8321:127.0.0.1:8321 HOST and --listen 127.0.0.1:8321 the link works there too.

With --data and a store that no process has, it shows the store and changes nothing. With
FILE it shows the calls of a sealed segment, an export or an evidence file, which needs
neither a store nor a daemon. It verifies the file first, and says what is wrong with it.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				if a.data != "" || a.socketNamed() {
					return cli.Usagef("name a FILE, or a store by --data or --socket, not both")
				}
				return showFile(cmd.Context(), a, args[0], listen)
			}
			return a.ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				return serveView(ctx, a, listen, c, ui.Options{ReadOnly: a.dialer != nil})
			})
		},
	}
	c.Flags().StringVar(&listen, "listen", "127.0.0.1:0", "loopback `address` to listen on; port 0 is any that is free")
	return c
}

// showFile serves the view of a file.
func showFile(ctx context.Context, a *app, path, listen string) (err error) {
	f, err := logfile.Open(ctx, path, func(r *logfile.Reader) (stop func()) {
		return a.Watch(ctx, func(context.Context) string { return r.Progress("ui") })
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return serveView(ctx, a, listen, f, ui.Options{About: &ui.About{
		Words:  fmt.Sprintf("%s (%s): %d calls, %d entries, %d notes.", f.Path, f.Kind, f.Found.Traces, f.Found.Entries, f.Found.Notes),
		Proved: f.Proved, NotProved: f.NotProved, Fault: f.Fault,
	}})
}

// serveView prints the link of a view and serves it until ctx ends.
func serveView(ctx context.Context, a *app, listen string, log ui.Log, o ui.Options) error {
	l, err := ui.Listen(listen)
	if err != nil {
		return err
	}
	o.Version, o.Logger = cli.BuildVersion().Version, a.Lines(slog.LevelWarn, false)
	v := ui.New(log, o)
	url := fmt.Sprintf("http://%s%s", l.Addr(), v.Login())
	if !a.JSON {
		a.Printf("open %s\n", url)
	} else if err := a.Line(map[string]string{"url": url}); err != nil {
		return errors.Join(err, l.Close())
	}
	return v.Serve(ctx, l)
}

package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/internal/assemble"
	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/internal/daemon"
	"github.com/tgad/tgad/schemas/tga"
)

func (a *app) serve() *cobra.Command {
	var data, file string
	var create bool
	var wait time.Duration
	var level slog.Level
	c := &cobra.Command{
		Use:   "serve --data DIR [--config FILE]",
		Short: "Run the daemon",
		Long: `serve opens the store in DIR and answers on the socket until it gets SIGINT or SIGTERM;
then it lets the calls under way come to their ends. It logs to stderr, as JSON with
--json. SIGHUP is ignored: a new configuration takes a restart. Where DIR does not exist,
a new store is made there; an empty directory, which may be a disk that is not mounted, is
refused: see tgad init. Without a configuration it knows no tool server and denies every
request.

It runs on one more processor than the machine has, because a goroutine that waits for
the disk keeps its own; $GOMAXPROCS overrides that.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if data == "" {
				return cli.Usagef("--data is required: the store's directory")
			}
			o := daemon.Options{Data: data, Create: create, Socket: a.socket, Version: buildVersion().Version}
			if file != "" {
				var err error
				if o.Config, err = assemble.Load(file); err != nil {
					return err
				}
			}
			handler := &slog.HandlerOptions{Level: level}
			if a.JSON {
				o.Logger = slog.New(slog.NewJSONHandler(a.Err, handler))
			} else {
				o.Logger = slog.New(slog.NewTextHandler(a.Err, handler))
			}
			defer outliveHangup(o.Logger)()
			ready := false
			o.Ready = func() { ready = true }
			err := whenFree(cmd.Context(), wait, func() error { return daemon.Run(cmd.Context(), o) })
			if err != nil && !ready {
				return &cli.Unopened{Err: err}
			}
			return err
		},
	}
	dataFlag(c, &data)
	c.Flags().StringVar(&file, "config", "", "configuration `file` (TOML)")
	c.Flags().BoolVar(&create, "create", false, "make a new store also where DIR is there and empty; not for a unit file, see tgad init")
	c.Flags().DurationVar(&wait, "lock-wait", time.Second, "how long to wait for a store that another process has")
	c.Flags().TextVar(&level, "log-level", slog.LevelInfo, "debug, info, warn or error")
	return c
}

// whenFree does what needs the store, and for a while waits for whoever has it. A process
// that is killed while it starts a tool server leaves its lock to the child until that
// has become the tool server: without the wait, a restart would then fail now and then.
func whenFree(ctx context.Context, wait time.Duration, f func() error) error {
	until := time.Now().Add(wait)
	for {
		err := f()
		if !errors.Is(err, tga.StateLockAcquireFailed) || time.Now().After(until) {
			return err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return err
		}
	}
}

package cli

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/internal/assemble"
	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/internal/daemon"
	"github.com/tgad/tgad/schemas/tga"
)

// OpenStore opens a store in a database for a daemon. It is nil in a program that links no database: there
// the verb serve starts the program that links one.
type OpenStore = func(context.Context, daemon.Options) (daemon.Store, error)

// serving are the flags of serve.
type serving struct {
	streams *Streams
	socket  *string
	open    OpenStore

	data, url, file string
	dataNamed       bool
	create          bool
	wait            time.Duration
	level           slog.Level
}

// Serve is the verb serve.
func Serve(s *Streams, socket *string, open OpenStore) *cobra.Command {
	v := serving{streams: s, socket: socket, open: open}
	c := &cobra.Command{
		Use:   "serve (--data DIR | --store URL) [--config FILE]",
		Short: "Run the daemon",
		Long: `serve opens the store in DIR and answers on the socket until it gets SIGINT or SIGTERM;
then it lets the calls under way come to their ends. It logs to stderr, as JSON with
--json. On SIGHUP it reads FILE again, as on tgad reload. Where DIR does not exist,
a new store is made there; an empty directory, which may be a disk that is not mounted, is
refused: see tgad init. Without a configuration it knows no tool server and denies every
request.

With --store postgres://… the store is in a database, and any number of daemons serve it:
see docs/SCALE.md. The program tgad-postgres does it, which lies beside tgad.

It runs on one more processor than the machine has, because a goroutine that waits for
the disk keeps its own; $GOMAXPROCS overrides that.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v.dataNamed = cmd.Flags().Changed("data")
			return v.run(cmd.Context())
		},
	}
	f := c.Flags()
	f.StringVar(&v.data, "data", os.Getenv("TGAD_DATA"), "the store's directory (or $TGAD_DATA)")
	f.StringVar(&v.url, "store", "", "the store's `URL` in a database, without a password; in place of [store] url")
	f.StringVar(&v.file, "config", "", "configuration `file` (TOML)")
	f.BoolVar(&v.create, "create", false, "make a new store also where DIR is there and empty; not for a unit file, see tgad init")
	f.DurationVar(&v.wait, "lock-wait", time.Second, "how long to wait for a store that another process has")
	f.TextVar(&v.level, "log-level", slog.LevelInfo, "debug, info, warn or error")
	return c
}

func (v *serving) run(ctx context.Context) error {
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP) // before the file is read: whoever changes it may signal at once
	defer signal.Stop(hangup)
	defer OutliveReaders()()
	o := daemon.Options{Create: v.create, Socket: *v.socket, Version: BuildVersion().Version, Hangup: hangup}
	if v.file != "" {
		var err error
		if o.Config, err = assemble.Load(v.file); err != nil {
			return err
		}
		o.Reload = func() (*config.Config, error) { return assemble.Load(v.file) }
	}
	if err := v.place(&o); err != nil {
		return err
	}
	if o.URL != "" && v.open == nil {
		return Postgres.Exec("serve --store postgres://…", os.Args[1:])
	}
	o.Logger = v.streams.Lines(v.level, v.streams.JSON)
	ready := false
	o.Ready = func() { ready = true }
	err := WhenFree(ctx, v.wait, func() error { return daemon.Run(ctx, o) })
	if err != nil && !ready {
		return &Unopened{Err: err}
	}
	return err
}

// place fills in where the store is: in a directory or in a database. It refuses both at once.
func (v *serving) place(o *daemon.Options) error {
	c := o.Config
	if v.url != "" {
		if err := config.CheckStoreURL(v.url); err != nil {
			return Usagef("--store: %s", err)
		}
		o.URL = v.url
	} else if c != nil {
		o.URL = c.Store.URL
	}
	switch {
	case o.URL != "" && v.dataNamed:
		return Usagef("--data and the URL of a store: name one of them")
	case o.URL != "" && v.create:
		return Usagef("--create is for a store in a directory: tgad pg migrate makes the tables of a database")
	case o.URL != "":
		o.Open = v.open
		return nil
	case v.data == "":
		return Usagef("--data is required: the store's directory")
	case c != nil && c.Store.OfDatabase() != "":
		return tga.Errorf(tga.ValidationError, "[store] %s is of a store in a database, and the file has no url", c.Store.OfDatabase())
	}
	o.Data = v.data
	return nil
}

// WhenFree calls f, and calls it again for a while as long as another process has the store. A
// process that is killed while it starts a tool server leaves its lock with the child until
// the child executes the tool server's program. Without the wait a restart would fail now
// and then.
func WhenFree(ctx context.Context, wait time.Duration, f func() error) error {
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

package main

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/internal/assemble"
	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/internal/daemon"
	"github.com/tgad/tgad/internal/daemon/embed"
	"github.com/tgad/tgad/schemas/tga"
)

// need is what a verb needs of a store.
type need uint8

const (
	needDaemon need = iota // a daemon with its configuration: the verb sends or continues calls
	needLog                // the log alone: no process needs to have the store open
	needWriter             // the right to write: the verb records something and sends nothing
)

// of gives a verb the --data flag, which names the directory of its store. If a daemon has the
// store, the verb asks that daemon. If no process has it, n decides what happens: see visit.
func (a *app) of(n need, c *cobra.Command) *cobra.Command {
	text := "the store in this `directory`, whether or not a process has it (or $TGAD_DATA, where no socket is named)"
	if n == needDaemon {
		text = "the daemon that has the store in this `directory` (or $TGAD_DATA, where no socket is named)"
	}
	c.Flags().StringVar(&a.data, "data", "", text)
	if c.Flags().Lookup("config") == nil {
		c.Flags().StringVar(&a.config, "config", "", "configuration `file` (TOML) that names the key ring, for a sealed store that no process has")
	}
	run := c.RunE
	c.RunE = func(cmd *cobra.Command, args []string) error {
		a.need = n
		return run(cmd, args)
	}
	if complete := c.ValidArgsFunction; complete != nil {
		c.ValidArgsFunction = func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
			a.need = needLog
			return complete(cmd, args, begun)
		}
	}
	return c
}

// store returns the directory that --data names or, if no socket is named, $TGAD_DATA. ""
// means that the verb asks the daemon at the socket.
func (a *app) store() string {
	if a.data == "" && !a.socketNamed() && os.Getenv("TGAD_SOCKET") == "" {
		return os.Getenv("TGAD_DATA")
	}
	return a.data
}

// lockPatience is how long to wait for a locked store whose holder names no socket: the holder
// is still opening it, or is another verb that reads it.
const lockPatience = 10 * time.Second

// visit finds out who answers about the store: the daemon that has it or, if no process has
// it, this process. leave ends what visit began.
func (a *app) visit(ctx context.Context) (leave func() error, err error) {
	stay := func() error { return nil }
	a.dialer = nil
	dir := a.store()
	if dir == "" {
		return stay, nil
	}
	if a.data != "" && a.socketNamed() {
		return nil, errTwoPlaces
	}
	conf, err := a.loaded()
	if err != nil {
		return nil, err
	}
	for until := time.Now().Add(lockPatience); ; {
		r, err := daemon.OpenReader(dir, cli.BuildVersion().Version, conf)
		switch {
		case err == nil && a.need == needLog:
			a.socket, a.dialer = dir, r.Dial
			return r.Close, nil
		case err == nil:
			if err := r.Close(); err != nil {
				return nil, err
			}
			return a.alone(ctx, dir, conf)
		case !errors.Is(err, tga.StateLockAcquireFailed):
			return nil, &cli.Unopened{Err: err}
		}
		if socket, ok := daemon.SocketOf(dir); ok {
			a.socket = socket
			return stay, nil
		}
		if time.Now().After(until) {
			return nil, tga.Errorf(tga.StateLockAcquireFailed, "another process has the store in %s, and it answers at no socket: %w", dir, err)
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// loaded reads the file that --config names; nil if none is named.
func (a *app) loaded() (*config.Config, error) {
	if a.config == "" {
		return nil, nil
	}
	return assemble.Load(a.config)
}

// alone serves a verb that needs more than reading, when no process has the store. It refuses
// one that needs a daemon; for one that writes, this process opens the store.
func (a *app) alone(ctx context.Context, dir string, conf *config.Config) (leave func() error, err error) {
	if a.need == needDaemon {
		return nil, tga.Errorf(tga.StoreUnavailable, "no process has the store in %s, and this takes one: start tgad serve --data %s", dir, cli.ShellWord(dir))
	}
	e, err := embed.Visit(ctx, dir, conf)
	if err != nil {
		return nil, err
	}
	a.socket = e.Socket
	return func() error { e.Close(); return nil }, nil
}

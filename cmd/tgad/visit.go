package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/internal/mcpshim"
)

// storeFlag gives a verb that asks a daemon the --data flag: the store of a shim, whose daemon
// it finds where one runs, and else is itself for as long as it takes.
func (a *app) storeFlag(c *cobra.Command) *cobra.Command {
	c.Flags().StringVar(&a.data, "data", "", "ask about the store in this `directory`, whether or not a process has it (or $TGAD_DATA, where no socket is named)")
	return c
}

// store is the directory that --data names, else $TGAD_DATA where no socket is named; "" for
// a daemon.
func (a *app) store() string {
	if a.data == "" && !a.socketNamed && os.Getenv("TGAD_SOCKET") == "" {
		return os.Getenv("TGAD_DATA")
	}
	return a.data
}

// visit has a daemon for that store, of another process or of this one, and makes its socket
// the one that is asked.
func (a *app) visit(ctx context.Context) (leave func(), err error) {
	dir := a.store()
	if dir == "" {
		return func() {}, nil
	}
	e, err := mcpshim.Visit(ctx, dir)
	if err != nil {
		return nil, err
	}
	a.socket = e.Socket
	return e.Close, nil
}

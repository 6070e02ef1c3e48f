package main

import (
	"context"
	"fmt"
	"net"
	"os"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/internal/cli"
)

// app is what the verbs share: the streams, and the flags of every verb.
type app struct {
	cli.Streams
	socket string
	data   string                                  // --data: the store that a verb is about
	need   need                                    // of the verb that runs
	config string                                  // --config of a verb that reads the log: the daemon's configuration
	dialer func(context.Context) (net.Conn, error) // where no daemon is asked but this process

	socketNamed func() bool // whether --socket was given
}

var errTwoPlaces = cli.Usagef("--data and --socket: name the store's directory or its daemon's socket, not both")

// command returns the whole command tree.
func (a *app) command() *cobra.Command {
	var version bool
	root := &cobra.Command{
		Use:   "tgad",
		Short: "Crash-safe tool calls for AI agents",
		Long: `tgad makes each tool call durable before it is sent, sends it at most once per
idempotency key, unless you declared the tool safe to repeat, and can prove afterwards
what happened.

Exit codes: 0 ok, 1 error, 2 usage, 3 verification failed, 4 a call is in doubt,
5 the store or the trace cannot be had (another holds it, or its files fail),
130 interrupted before it was done.`,
	}
	// cobra's own version flag prints through text/template. With that package linked, the linker
	// keeps every exported method of every type, which is a tenth of the binary.
	root.Flags().BoolVarP(&version, "version", "v", false, "version for tgad")
	root.RunE = func(c *cobra.Command, _ []string) error {
		if !version {
			return c.Help()
		}
		_, err := fmt.Fprintln(a.Out, cli.BuildVersion())
		return err
	}
	root.PersistentFlags().BoolVar(&a.JSON, "json", false, "print one JSON object a line")
	root.PersistentFlags().BoolVar(&a.Progress, "progress", false, "show how far long work is, on stderr; a terminal shows it without")
	root.PersistentFlags().StringVar(&a.socket, "socket", cli.DefaultSocket(), "the daemon's socket (or $TGAD_SOCKET)")
	a.socketNamed = func() bool { return root.PersistentFlags().Changed("socket") }
	root.AddGroup(
		&cobra.Group{ID: groupRun, Title: "Run:"},
		&cobra.Group{ID: groupLook, Title: "Look:"},
		&cobra.Group{ID: groupDecide, Title: "Decide:"},
		&cobra.Group{ID: groupKeep, Title: "Keep:"},
	)
	for _, g := range []struct {
		id    string
		verbs []*cobra.Command
	}{
		{groupRun, []*cobra.Command{a.init(), cli.Serve(&a.Streams, &a.socket, nil), a.of(needDaemon, a.call()), a.of(needDaemon, a.traceArgs(false, openOnes, a.recover())), cli.MCP(&a.Streams, &a.socket), cli.Gateway(&a.Streams, &a.socket), a.agent(), elsewhere(cli.Lab, "demo", "Kill processes in the middle of calls, and count the charges"), elsewhere(cli.Lab, "torture", "Crash stores made for the purpose, and count losses and double sends")}},
		{groupLook, []*cobra.Command{
			a.of(needLog, a.ls()), a.of(needLog, a.traceArgs(false, everyOne, a.show())), a.of(needLog, a.traceArgs(false, everyOne, report(a))), a.of(needLog, a.traceArgs(false, everyOne, a.tail())), a.of(needLog, a.inDoubt()), a.of(needLog, a.approvals()), a.of(needLog, webView(a)), a.of(needDaemon, topView(a)),
			a.evidence(), a.of(needDaemon, proving{a}.monitor()), proving{a}.witness(), a.of(needLog, a.traceArgs(false, everyOne, proving{a}.receipt())), a.of(needLog, a.traceArgs(true, everyOne, a.rollbackPlan())), a.doctor(), configVerb(a), a.of(needDaemon, readiness(a)), a.explain(), a.version(),
		}},
		{groupDecide, []*cobra.Command{
			a.of(needWriter, a.traceArgs(false, asked, a.approve())), a.of(needWriter, a.traceArgs(false, asked, a.deny())), a.of(needWriter, a.traceArgs(false, doubtful, a.resolve())), a.of(needWriter, a.traceArgs(false, doubtful, a.abandon())),
			a.of(needDaemon, a.traceArgs(true, doubtful, relicense(a))),
			a.of(needDaemon, a.traceArgs(false, everyOne, a.compensate())), a.state(), cli.Workspace(&a.Streams, a.agreed),
		}},
		{groupKeep, []*cobra.Command{
			a.of(needLog, a.traceArgs(false, everyOne, a.verify())), a.of(needLog, a.traceArgs(true, everyOne, a.export())), a.of(needWriter, a.seal()), a.of(needWriter, a.erase()), keyrings{a}.verb(), a.of(needWriter, a.backup()), a.restore(), cli.Import(&a.Streams), a.index(),
			a.of(needDaemon, retain(a)), a.of(needWriter, a.unfreeze()), a.of(needDaemon, reload(a)), a.of(needDaemon, tellPeople(a)), a.capability(), elsewhere(cli.Postgres, "pg", "Look after the tables of a store in PostgreSQL"),
			elsewhere(cli.Postgres, "copy", "Copy a store from a directory into a database"),
		}},
	} {
		for _, v := range g.verbs {
			v.GroupID = g.id
			root.AddCommand(v)
		}
	}
	root.AddCommand(cli.Commands(&a.Streams))
	a.Prepare(root)
	if err := completeFlags(root); err != nil {
		panic(err) // a flag of the table is of no verb
	}
	return root
}

const (
	groupRun    = "run"
	groupLook   = "look"
	groupDecide = "decide"
	groupKeep   = "keep"
)

// dataFlag gives a verb the --data flag, with $TGAD_DATA as its default.
func dataFlag(c *cobra.Command, dir *string) {
	c.Flags().StringVar(dir, "data", os.Getenv("TGAD_DATA"), "the store's directory (or $TGAD_DATA)")
}

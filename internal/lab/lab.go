// Package lab is the program tgad-lab. It has what tests and demonstrates tgad but is not
// part of it: the demonstration, with its tool servers and callers, and the crash tests. The
// verbs demo and torture of tgad start this program, so tgad does not link it.
package lab

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/internal/crashtest/suite"
)

// Main runs the program. In a child process of the crash tests it does not read the command
// line, but runs the child's task.
func Main() {
	suite.RunChild()
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	defer context.AfterFunc(ctx, stop)() // a second signal ends the process at once
	s := &cli.Streams{In: stdin, Out: stdout, Err: stderr}
	root := &cobra.Command{Use: "tgad-lab", Short: "Try tgad: the demonstration and the crash tests"}
	root.PersistentFlags().BoolVar(&s.JSON, "json", false, "print one JSON object a line")
	root.AddCommand(demoVerb(s), tortureVerb(s), cli.Commands(s))
	root.AddCommand(hidden(s)...)
	root.AddCommand(adapterVerb())
	s.Prepare(root)
	return s.Execute(ctx, root, args)
}

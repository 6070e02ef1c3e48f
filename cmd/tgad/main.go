// Command tgad keeps and runs governed tool calls: the daemon, its client, and the
// tools that check a log without either.
//
// The command is thin: each verb turns flags into calls of a package and prints the
// result. With --json it prints one JSON object a line, for programs. Errors go to
// stderr, and the exit code says which kind of error it is (see package cli).
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/tgad/tgad/internal/access"
	"github.com/tgad/tgad/internal/cli"
)

func main() {
	access.KeepOwner()
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run executes one command line and returns the exit code.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The first signal asks for a clean end; a second one ends the process at once.
	defer context.AfterFunc(ctx, stop)()
	a := &app{Streams: cli.Streams{In: stdin, Out: stdout, Err: stderr}}
	return a.Execute(ctx, a.command(), args)
}

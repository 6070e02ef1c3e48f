package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

func (a *app) erase() *cobra.Command {
	var what wire.EraseRequest
	var traces, turns []string
	var yes bool
	c := &cobra.Command{
		Use:   "erase --trace TRACE... | --turn TURN... | --kept SERVER... | --subject SUBJECT [--namespace NAMESPACE] --reason REASON",
		Short: "Destroy what finished traces carry, and keep what proves them",
		Long: `erase destroys the artifacts and documents of finished traces: arguments, answers, evidence.
Their entries, notes and digests stay, so the log, checkpoints, receipts and bundles verify as
before. A note says who erased them, when, and why.

In a store with a key ring the data key is destroyed, so every copy of the store and every
backup forgets too. In one without, only this disk does.

With --turn the whole invocation that a turn of an agent belongs to is erased: the journals of its
turns, those of the agents that it handed work to, and all their questions and calls. With --kept
what remote executors keep about a tool server is erased.

A trace of a subject that cannot be read is left and named, and the exit code is 1.

Not erased: ids, times, idempotency keys, names of tool servers and tools, notes with their
reasons, and the state of agents. docs/OPERATIONS.md has the list.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if what.Traces, err = parseIDs(traces); err != nil {
				return err
			}
			named, err := parseIDs(turns)
			if err != nil {
				return err
			}
			switch {
			case (len(traces)+len(turns)+len(what.Kept) > 0) == (what.Subject != ""):
				return cli.Usagef("name what is to be erased with --trace, --turn or --kept, or a subject with --subject")
			case what.Namespace != "" && what.Subject == "" && len(what.Kept) == 0:
				return cli.Usagef("--namespace is of a --subject, or of --kept")
			case what.Reason == "":
				return cli.Usagef("--reason is required. It stays in the log")
			case !yes && !a.agreed("What is erased cannot be brought back. Erase it?"):
				return cli.Usagef("not erased: answer y, or use --yes")
			}
			return a.ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				if err := invocations(ctx, c, named, &what); err != nil {
					return err
				}
				done, err := c.Erase(ctx, what)
				if err != nil {
					return err
				}
				return sayErased(a, done)
			})
		},
	}
	f := c.Flags()
	f.StringArrayVar(&traces, "trace", nil, "a `TRACE` that has ended; may be repeated")
	f.StringArrayVar(&turns, "turn", nil, "a `TURN` of an agent: its whole invocation, which has ended; may be repeated")
	f.StringArrayVar(&what.Kept, "kept", nil, "a tool `SERVER`: what executors keep about it; may be repeated")
	f.StringVar(&what.Subject, "subject", "", "every trace whose request names this subject (meta.subject)")
	f.StringVar(&what.Namespace, "namespace", "", "of the subject, and of what is kept; absent = default")
	f.StringVar(&what.Reason, "reason", "", "why; it stays in the log")
	f.BoolVar(&yes, "yes", false, "do not ask")
	return c
}

// invocations adds the turns and the calls of the invocations that turns name.
func invocations(ctx context.Context, c *client.Client, named []tga.ID, what *wire.EraseRequest) error {
	for _, id := range named {
		turns, traces, err := turn.Parts(ctx, c, id, func(ctx context.Context, id tga.ID) (bool, error) {
			_, err := c.Trace(ctx, id)
			if errors.Is(err, tga.NotFound) {
				return false, nil
			}
			return err == nil, err
		})
		if err != nil {
			return err
		}
		what.Turns, what.Traces = append(what.Turns, turns...), append(what.Traces, traces...)
	}
	return nil
}

// sayErased says what an erasure did. The exit code says whether something is left.
func sayErased(a *app, done wire.Erased) error {
	left := error(nil)
	if done.Left > 0 {
		left = cli.Silent(cli.ExitError)
	}
	if a.JSON {
		if err := a.message(done); err != nil {
			return err
		}
		return left
	}
	a.Printf("erased %d traces, destroyed %d keys\n", done.Traces, done.Keys)
	for _, line := range []struct {
		n    int
		text string
	}{
		{done.Turns, "%d turns of agents were erased\n"},
		{done.Kept, "what was kept about %d tool servers was erased\n"},
		{done.Already, "%d traces or turns were erased before\n"},
		{done.Shared, "%d traces have the key of a subject, which stays: copies of the store and backups still have what they carried. Erase the subject to destroy it\n"},
		{done.Unsealed, "%d traces were not sealed: copies of the store and backups still have what they carried\n"},
		{done.Left, "%d traces cannot be read, and are left as they are:\n"},
	} {
		if line.n > 0 {
			a.Printf(line.text, line.n)
		}
	}
	for _, u := range done.Unread {
		a.Printf("  %s %s: %s\n", u.TraceID, u.Code, u.Detail)
	}
	return left
}

package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/wire"
)

func (a *app) erase() *cobra.Command {
	var what wire.EraseRequest
	var traces []string
	var yes bool
	c := &cobra.Command{
		Use:   "erase --trace TRACE... | --subject SUBJECT [--namespace NAMESPACE] --reason REASON",
		Short: "Destroy what finished traces carry, and keep what proves them",
		Long: `erase destroys the artifacts and documents of finished traces: arguments, answers, evidence.
Their entries, notes and digests stay, so the log, checkpoints, receipts and bundles verify as
before. A note says who erased them, when, and why.

In a store with a key ring the data key is destroyed, so every copy of the store and every
backup forgets too. In one without, only this disk does.

Not erased: ids, times, idempotency keys, names of tool servers and tools, notes with their
reasons, and what a turn of an agent kept of it. docs/OPERATIONS.md has the list.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if what.Traces, err = parseIDs(traces); err != nil {
				return err
			}
			switch {
			case (len(traces) > 0) == (what.Subject != ""):
				return cli.Usagef("name traces with --trace, or a subject with --subject")
			case what.Namespace != "" && what.Subject == "":
				return cli.Usagef("--namespace is of a --subject")
			case what.Reason == "":
				return cli.Usagef("--reason is required. It stays in the log")
			case !yes && !a.agreed("What is erased cannot be brought back. Erase it?"):
				return cli.Usagef("not erased: answer y, or use --yes")
			}
			return a.ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				done, err := c.Erase(ctx, what)
				if err != nil {
					return err
				}
				if a.JSON {
					return a.message(done)
				}
				a.Printf("erased %d traces, destroyed %d keys\n", done.Traces, done.Keys)
				if done.Already > 0 {
					a.Printf("%d traces were erased before\n", done.Already)
				}
				if done.Shared > 0 {
					a.Printf("%d traces have the key of a subject, which stays: copies of the store and backups still have what they carried. Erase the subject to destroy it\n", done.Shared)
				}
				if done.Unsealed > 0 {
					a.Printf("%d traces were not sealed: copies of the store and backups still have what they carried\n", done.Unsealed)
				}
				return nil
			})
		},
	}
	f := c.Flags()
	f.StringArrayVar(&traces, "trace", nil, "a `TRACE` that has ended; may be repeated")
	f.StringVar(&what.Subject, "subject", "", "every trace whose request names this subject (meta.subject)")
	f.StringVar(&what.Namespace, "namespace", "", "of the subject; absent = default")
	f.StringVar(&what.Reason, "reason", "", "why; it stays in the log")
	f.BoolVar(&yes, "yes", false, "do not ask")
	return c
}

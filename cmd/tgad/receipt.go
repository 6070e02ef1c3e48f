package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/internal/evidence/checkpoint"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
)

func (a proving) receipt() *cobra.Command {
	var wait time.Duration
	c := &cobra.Command{
		Use:   "receipt TRACE",
		Short: "Print where a trace stands in the signed tree of the store",
		Long: `receipt prints the appends of a trace by their places in the order of the store, and
the newest signed checkpoint that covers them. With --json it has the proof of each.
The daemon signs a checkpoint every few seconds: --wait waits for one that covers
the whole trace.

Whoever holds a receipt can show later that the store had the trace then: tgad evidence
verify checks what --json prints. For a file that says what happened too, see tgad
evidence export.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := parseIDs(args)
			if err != nil {
				return err
			}
			return a.ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				r, err := waitForReceipt(ctx, c, ids[0], wait)
				if err != nil {
					return err
				}
				return a.show(r)
			})
		},
	}
	c.Flags().DurationVar(&wait, "wait", 0, "wait so long for a checkpoint that covers the whole trace")
	return c
}

// waitForReceipt asks until nothing of a receipt is pending or the time is over.
func waitForReceipt(ctx context.Context, c *client.Client, id tga.ID, wait time.Duration) (client.Receipt, error) {
	for end := time.Now().Add(wait); ; {
		r, err := c.Proofs().Receipt(ctx, id)
		if err != nil || r.Pending == 0 || !time.Now().Before(end) {
			return r, err
		}
		select {
		case <-time.After(min(200*time.Millisecond, time.Until(end))):
		case <-ctx.Done():
			return r, ctx.Err()
		}
	}
}

func (a proving) show(r client.Receipt) error {
	if a.JSON {
		return a.Line(r)
	}
	state, covered := "no checkpoint covers it yet", int64(0)
	if r.Checkpoint != "" {
		c, err := checkpoint.Unverified([]byte(r.Checkpoint))
		if err != nil {
			return err
		}
		covered = c.Size
		state = fmt.Sprintf("in the checkpoint of %d appends of %s, head %v", c.Size, c.Origin, c.Head)
	}
	for _, l := range r.Leaves {
		said := state
		if r.Checkpoint != "" && l.Index > covered {
			said = "pending: it came after the newest checkpoint"
		}
		a.Printf("append %d  %s\n", l.Index, cli.Clean(said))
	}
	a.Printf("key %s\n", cli.Clean(r.Key))
	return nil
}

package main

import (
	"context"
	"fmt"
	"os"
	"os/user"
	"slices"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/internal/agent"
	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/schemas/tga"
)

// decider returns the name of who types a command: $USER or, if that is not set (as in services and
// containers), the user's name or number in the system.
func decider() string {
	if name := os.Getenv("USER"); name != "" {
		return name
	}
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return fmt.Sprintf("uid %d", os.Getuid())
}

func (v *agentVerbs) decide() *cobra.Command {
	var who, action, value, note string
	c := &cobra.Command{
		Use:   "decide MANIFEST TURN --action ACTION --who NAME",
		Short: "Answer what a turn waits for; then run resume",
		Long: `decide answers what a parked turn waits for. TURN is its id, or that of the call that it
waits for. About the turn itself:

  retry     try again once, or pass the limit this time; refused if the effect stands
  skip      go on without
  fallback  take --value for the answer
  abort     end the turn

About the call that it waits for, with a --note:

  approve, deny  the request waits for an approval; an approved call is made now
  ran            the call in doubt was executed and succeeded; --value is its answer
  failed         it was executed, or refused, and failed for good
  not-run        it was certainly not executed: resume makes a new attempt
  abandon        nobody will know: it is never sent again, and the model is told so

Where a daemon has had the store in between, tgad approve, deny, resolve and abandon on
the call do the same.`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := tga.ParseID(args[1])
			if err != nil {
				return cli.Usage(err)
			}
			var given []byte
			if value != "" {
				given = []byte(value)
			}
			settles := slices.Contains(turn.SettleActions, turn.SettleAction(action))
			if settles && note == "" {
				return cli.Usagef("--note is required: it stands in the log for as long as the log does")
			}
			return v.hosting(cmd.Context(), args[0], func(ctx context.Context, h *agent.Host) error {
				if id, err = h.TurnOf(ctx, id); err != nil {
					return err
				}
				if !settles {
					return h.Decide(ctx, id, turn.Decision{Who: who, Action: turn.Strategy(action), Value: given, Note: note})
				}
				return v.settled(h.Settle(ctx, id, turn.Settlement{Who: who, Action: turn.SettleAction(action), Result: given, Note: note}))
			})
		},
	}
	c.Flags().StringVar(&action, "action", "", "retry, skip, fallback, abort; of a call approve, deny, ran, failed, not-run, abandon")
	c.Flags().StringVar(&value, "value", "", "with fallback and ran: the answer, as JSON")
	c.Flags().StringVar(&who, "who", decider(), "who decides (or $USER)")
	c.Flags().StringVar(&note, "note", "", "why: the rationale of a vote, the evidence of what is known")
	return c
}

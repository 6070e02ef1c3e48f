package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// completionTime bounds how long a shell waits for a list of traces; what was found by then is
// offered. mostOffered bounds the list; the newest traces are kept.
const (
	completionTime = time.Second
	mostOffered    = 200
)

// lists returns the traces that may be arguments of a verb.
type lists func(context.Context, *client.Client) ([]wire.OpenTrace, error)

// traceArgs makes the shell complete a verb's arguments to trace ids, each shown with its state
// and its tool. Unless many is true, only the first argument is completed.
func (a *app) traceArgs(many bool, list lists, c *cobra.Command) *cobra.Command {
	none := cobra.ShellCompDirectiveNoFileComp
	if c.Name() == "verify" {
		none = cobra.ShellCompDirectiveDefault // a file will do too
	}
	c.ValidArgsFunction = func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 && !many {
			return nil, none
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
		defer cancel()
		var found []wire.OpenTrace
		err := a.ask(ctx, func(ctx context.Context, c *client.Client) (err error) {
			found, err = list(ctx, c)
			return err
		})
		if err != nil && len(found) == 0 {
			return nil, none // a shell has no place for why
		}
		var offers []string
		for _, t := range found {
			id := t.TraceID.String()
			if strings.HasPrefix(id, begun) && !slices.Contains(args, id) {
				offers = append(offers, id+"\t"+cli.Clean(t.State+" "+tool(t.ToolServer, t.ToolName)))
			}
		}
		return offers[max(0, len(offers)-mostOffered):], none
	}
	return c
}

// everyOne lists all traces, as far as time permits.
func everyOne(ctx context.Context, c *client.Client) ([]wire.OpenTrace, error) {
	return tracesOf(ctx, c, wire.TracesQuery{All: true}, 0)
}

func openOnes(ctx context.Context, c *client.Client) ([]wire.OpenTrace, error) {
	return tracesOf(ctx, c, wire.TracesQuery{}, 0)
}

func doubtful(ctx context.Context, c *client.Client) ([]wire.OpenTrace, error) {
	return c.InDoubt(ctx)
}

// asked lists the traces that wait for a person's decision.
func asked(ctx context.Context, c *client.Client) (list []wire.OpenTrace, err error) {
	waits, err := c.Approvals(ctx)
	for _, w := range waits {
		a, err := c.Request(ctx, w.TraceID)
		if err != nil {
			return list, err
		}
		list = append(list, wire.OpenTrace{TraceID: w.TraceID, State: w.Kind, ToolServer: a.Request.Proposal.ToolServer, ToolName: a.Request.Proposal.ToolName})
	}
	return list, err
}

// flagWords are the flags that take one of a few words.
var flagWords = map[string][]string{
	"ls --state":        states(),
	"ls --class":        {"success", "side_effect_committed", "retryable_failure", "permanent_failure", "compensatable_failure", "compensated", "not_sent"},
	"resolve --outcome": {"ran", "failed", "not-run"},
	"resolve --class":   {"success", "side_effect_committed", "retryable_failure", "permanent_failure", "compensatable_failure"},
	"call --risk":       {tga.RiskRead, tga.RiskWrite, tga.RiskHigh},
	"serve --log-level": {"debug", "info", "warn", "error"},
}

func states() (words []string) {
	for s := tga.Pending; s <= tga.Denied; s++ {
		words = append(words, s.String())
	}
	return words
}

// completeFlags gives the flags of flagWords their words.
func completeFlags(root *cobra.Command) error {
	for name, words := range flagWords {
		verb, flag, _ := strings.Cut(name, " --")
		c, _, err := root.Find([]string{verb})
		if err == nil {
			err = c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

package main

import (
	"context"
	"encoding/json"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
)

func (a *app) tail() *cobra.Command {
	var follow bool
	var after string
	c := &cobra.Command{
		Use:   "tail [TRACE]",
		Short: "Print the log as it grows",
		Long: `tail prints the entries and notes of the store in the order they became durable,
without a gap; of one trace where it is named. With -f it goes on with what comes.

Each line of --json has a cursor: --after goes on from there.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := parseIDs(args)
			if err != nil {
				return err
			}
			if len(ids) > 0 && after != "" {
				return cli.Usagef("--after is a cursor of the whole log")
			}
			return a.ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				var err error
				if len(ids) > 0 {
					err = a.tailTrace(ctx, c, ids[0], follow)
				} else {
					err = a.tailLog(ctx, c, after, follow)
				}
				if follow && ctx.Err() != nil {
					return nil // an interrupt is how following ends
				}
				return err
			})
		},
	}
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on with what comes")
	c.Flags().StringVar(&after, "after", "", "start after this cursor")
	return c
}

func (a *app) tailLog(ctx context.Context, c *client.Client, after string, follow bool) error {
	for line, err := range c.Log(ctx, after, follow) {
		if err != nil {
			return err
		}
		if a.JSON {
			if err := a.message(line); err != nil {
				return err
			}
			continue
		}
		for _, e := range line.Entries {
			if err := a.tailEntry(e); err != nil {
				return err
			}
		}
		for _, raw := range line.Notes {
			n, err := tga.DecodeNote(raw)
			if err != nil {
				return err
			}
			a.Printf("%s  %s  n%-3d %-10s  note %s by %s\n", n.TS, n.TraceID, n.Number, "", n.Kind, cli.Clean(n.Who))
		}
	}
	return nil
}

func (a *app) tailTrace(ctx context.Context, c *client.Client, id tga.ID, follow bool) error {
	for e, err := range c.Entries(ctx, id, 0, follow) {
		if err != nil {
			return err
		}
		if a.JSON {
			err = a.message(e)
		} else {
			err = a.tailEntry(e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (a *app) tailEntry(e client.Entry) error {
	le, err := tga.DecodeLogEntry(e.Entry)
	if err != nil {
		return err
	}
	what := le.Type.String()
	var artifact struct {
		Decision string `json:"decision"`
		Outcome  struct {
			Status string `json:"status"`
		} `json:"outcome"`
	}
	if json.Unmarshal(e.Artifact, &artifact) == nil { // erased or not: the line is of the entry
		what += " " + artifact.Decision + artifact.Outcome.Status
	}
	a.Printf("%s  %s  %-4d %-10s  %s\n", le.TS, le.TraceID, le.Seq, le.To, what)
	return nil
}

package main

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/internal/audit"
	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

func (a *app) tail() *cobra.Command {
	var follow bool
	var after, format string
	c := &cobra.Command{
		Use:   "tail [TRACE]",
		Short: "Print the log as it grows",
		Long: `tail prints the entries and notes of the store in the order they became durable,
without a gap; of one trace where it is named. With -f it goes on with what comes.

Each line of --json has a cursor: --after goes on from there. --format prints a record of each
entry and note, with who made it, for an audit system: see docs/TELEMETRY.md.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := parseIDs(args)
			if err != nil {
				return err
			}
			if len(ids) > 0 && after != "" {
				return cli.Usagef("--after is a cursor of the whole log")
			}
			if format != "" && (len(ids) > 0 || a.JSON) {
				return cli.Usagef("--format is of the whole log, and a form of its own beside --json")
			}
			if err := audit.Known(format); format != "" && err != nil {
				return cli.Usagef("--%v", err)
			}
			return a.ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				t := tailing{a, c, follow}
				var err error
				switch {
				case len(ids) > 0:
					err = t.trace(ctx, ids[0])
				case format != "":
					err = t.records(ctx, after, format)
				default:
					err = t.log(ctx, after)
				}
				if follow && ctx.Err() != nil {
					return nil // an interrupt is how following ends
				}
				return err
			})
		},
	}
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on with what comes")
	c.Flags().StringVar(&after, "after", "", "start after this cursor; newest is the end of the log as it is now")
	c.Flags().StringVar(&format, "format", "", "records for audit systems: "+strings.Join(audit.Formats, ", "))
	return c
}

// tailing prints the log, or one trace, as a daemon sends it.
type tailing struct {
	*app
	c      *client.Client
	follow bool
}

func (t tailing) log(ctx context.Context, after string) error {
	for line, err := range t.c.Log(ctx, after, t.follow) {
		if err != nil {
			return err
		}
		if t.JSON {
			if err := t.message(line); err != nil {
				return err
			}
			continue
		}
		for _, e := range line.Entries {
			if err := t.entry(e); err != nil {
				return err
			}
		}
		for _, raw := range line.Notes {
			n, err := tga.DecodeNote(raw)
			if err != nil {
				return err
			}
			t.Printf("%s  %s  n%-3d %-10s  note %s by %s\n", n.TS, n.TraceID, n.Number, "", n.Kind, cli.Clean(n.Who))
		}
		if err := t.Lost(); err != nil {
			return err
		}
	}
	return nil
}

// records prints the log in a format for audit systems.
func (t tailing) records(ctx context.Context, after, format string) error {
	reader, version := audit.NewReader(t.c.Trace), cli.BuildVersion().Version
	for line, err := range t.c.Log(ctx, after, t.follow) {
		if err != nil {
			return err
		}
		all, err := reader.Records(ctx, line)
		if err != nil {
			return err
		}
		for i := range all {
			if err := audit.Write(t.Out, format, version, &all[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t tailing) trace(ctx context.Context, id tga.ID) error {
	for e, err := range t.c.Entries(ctx, id, 0, t.follow) {
		if err != nil {
			return err
		}
		if t.JSON {
			err = t.message(e)
		} else {
			err = t.entry(e)
		}
		if err != nil {
			return err
		}
		if err := t.Lost(); err != nil {
			return err
		}
	}
	return nil
}

func (t tailing) entry(e wire.Entry) error {
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
	t.Printf("%s  %s  %-4d %-10s  %s\n", le.TS, le.TraceID, le.Seq, le.To, what)
	return nil
}

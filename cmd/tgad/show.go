package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/internal/picture"
	"github.com/tgad/tgad/internal/story"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

func (a *app) show() *cobra.Command {
	var svg bool
	c := &cobra.Command{
		Use:   "show TRACE",
		Short: "Show a trace as a timeline",
		Long: `show prints a trace as a timeline: its entries and notes, what they say, and the
first digits of their digests. Every digest and link is checked on the way. With --json
it is one object that has all of it, with --svg a picture of the call over time.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if a.JSON && svg {
				return cli.Usagef("--json and --svg: name one")
			}
			id, err := cli.ParseID(args[0])
			if err != nil {
				return err
			}
			return a.ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				said, err := c.Trace(ctx, id)
				if err != nil {
					return err
				}
				t, err := story.Fold(said, documents(ctx, c, id))
				if err != nil {
					return cli.Found(err)
				}
				switch {
				case a.JSON:
					return a.message(said)
				case svg:
					_, err := a.Out.Write(picture.Draw(story.Title(t), story.CourseOf(t)))
					return err
				}
				if err := cli.Timeline(a.Out, t); err != nil {
					return err
				}
				if p := said.Approval; p != nil {
					a.Printf("\nwaits for %d approval(s): %s\n", p.Required-approvals(p.Votes), cli.Clean(p.Why))
				}
				if said.Held {
					a.Printf("\nrunning now\n")
				}
				return nil
			})
		},
	}
	c.Flags().BoolVar(&svg, "svg", false, "print an SVG picture")
	return c
}

// documents fetches the documents of a trace.
func documents(ctx context.Context, c *client.Client, id tga.ID) story.Documents {
	return func(pointer string) ([]byte, error) {
		data, _, err := c.Document(ctx, id, pointer)
		return data, err
	}
}

func approvals(votes []wire.Vote) int {
	n := 0
	for _, v := range votes {
		if v.Approve {
			n++
		}
	}
	return n
}

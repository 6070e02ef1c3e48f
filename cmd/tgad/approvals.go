package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/wire"
)

func (a *app) approvals() *cobra.Command {
	return &cobra.Command{
		Use:   "approvals",
		Short: "List the decisions that wait for people",
		Long: `approvals lists what people are asked, each answered with approve or deny:

  decision      may the request become a call?
  confirmation  may the record be relied on although changes that it lists no longer
                stand? The evidence has what was found.

A question may change: the tool is defined anew, or other changes no longer stand. Then
it has an ABOUT, and an approval names that (approve --about): so nobody answers a
question that they were not shown.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				list, unread := c.Approvals(ctx)
				if list == nil && unread != nil {
					return unread
				}
				var rows [][]string
				changed := false // some vote has to name its question
				for _, p := range list {
					if a.JSON {
						if err := a.message(p); err != nil {
							return err
						}
						continue
					}
					request, err := c.Request(ctx, p.TraceID)
					if ctx.Err() != nil {
						return ctx.Err()
					}
					if err != nil {
						unread = errors.Join(unread, fmt.Errorf("trace %s: %w", p.TraceID, err))
						continue
					}
					asked := request.Request.Proposal
					expires := "never"
					if p.Expires != 0 {
						expires = p.Expires.String()
					}
					evidence := ""
					if !p.EvidenceDigest.IsZero() {
						evidence = p.EvidenceDigest.String()
					}
					rows = append(rows, []string{
						p.TraceID.String(), p.Kind, p.Since.String(), expires, fmt.Sprintf("%d of %d", approvals(p.Votes), p.Required),
						tool(asked.ToolServer, asked.ToolName), cli.Shorten(string(asked.Args), 80), cli.Shorten(request.Request.Intent, 80), p.Why, evidence, about(p),
					})
					changed = changed || p.Changed
				}
				if a.JSON || len(rows) == 0 {
					return unread
				}
				head := []string{"TRACE", "KIND", "SINCE", "EXPIRES", "APPROVED", "TOOL", "ARGUMENTS", "INTENT", "WHY", "EVIDENCE", "ABOUT"}
				if !changed {
					head = head[:len(head)-1]
					for i := range rows {
						rows[i] = rows[i][:len(head)]
					}
				}
				return errors.Join(a.Table(head, rows), unread)
			})
		},
	}
}

// about returns the digest that an approval must name, or "" if it need not name one.
func about(p wire.Approval) string {
	if !p.Changed {
		return ""
	}
	return p.About.String()
}

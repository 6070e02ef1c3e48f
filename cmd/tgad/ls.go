package main

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
)

func (a *app) ls() *cobra.Command {
	var q client.TracesQuery
	var all bool
	c := &cobra.Command{
		Use:   "ls",
		Short: "List the open traces, or all",
		Long: `ls lists the traces that are not at their end, oldest first. With --all it reads the
whole log and lists every trace in it.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				var list []client.OpenTrace
				var err error
				if all {
					list, err = a.everyTrace(ctx, c, q)
				} else {
					for t, e := range c.Traces(ctx, q) {
						if err = e; err != nil {
							break
						}
						list = append(list, t)
					}
				}
				if err != nil {
					return err
				}
				return a.traces(list)
			})
		},
	}
	c.Flags().BoolVar(&all, "all", false, "finished traces too")
	c.Flags().StringVar(&q.State, "state", "", "only traces in this state")
	c.Flags().StringVar(&q.Namespace, "namespace", "", "only traces of this namespace")
	return c
}

// everyTrace folds the log into one line per trace. With an error comes what was read before.
func (a *app) everyTrace(ctx context.Context, c *client.Client, q client.TracesQuery) ([]client.OpenTrace, error) {
	found := map[tga.ID]*client.OpenTrace{}
	var failed error
	for line, err := range c.Log(ctx, "", false) {
		if err != nil {
			failed = err
			break
		}
		for _, e := range line.Entries {
			t := found[line.TraceID]
			if t == nil {
				t = &client.OpenTrace{TraceID: line.TraceID, Namespace: tga.DefaultNamespace, Since: e.Committed}
				found[line.TraceID] = t
			}
			if err := foldLine(t, e); err != nil {
				return nil, err
			}
		}
	}
	var list []client.OpenTrace
	for _, id := range slices.SortedFunc(maps.Keys(found), func(x, y tga.ID) int { return slices.Compare(x[:], y[:]) }) {
		t := found[id]
		if (q.State == "" || q.State == t.State) && (q.Namespace == "" || q.Namespace == t.Namespace) {
			list = append(list, *t)
		}
	}
	return list, failed
}

// foldLine takes from an entry what a list shows. It reads and does not check; show
// and verify do.
func foldLine(t *client.OpenTrace, e client.Entry) error {
	var entry struct {
		To         string `json:"to_state"`
		ToolCallID string `json:"tool_call_id"`
		Key        string `json:"idempotency_key"`
	}
	if err := json.Unmarshal(e.Entry, &entry); err != nil {
		return tga.Errorf(tga.StateChecksumMismatch, "an entry does not read: %w", err).In(t.TraceID)
	}
	t.State = entry.To
	if entry.Key != "" {
		t.IdempotencyKey = entry.Key
	}
	if t.ToolServer != "" || len(e.Artifact) == 0 || string(e.Artifact) == "null" {
		return nil
	}
	var request struct {
		Proposal struct {
			ToolServer string `json:"tool_server"`
			ToolName   string `json:"tool_name"`
		} `json:"proposal"`
		Meta struct {
			Namespace string `json:"namespace"`
		} `json:"meta"`
	}
	if err := json.Unmarshal(e.Artifact, &request); err != nil {
		return tga.Errorf(tga.StateChecksumMismatch, "an artifact does not read: %w", err).In(t.TraceID)
	}
	t.ToolServer, t.ToolName = request.Proposal.ToolServer, request.Proposal.ToolName
	if request.Meta.Namespace != "" {
		t.Namespace = request.Meta.Namespace
	}
	return nil
}

func (a *app) traces(list []client.OpenTrace) error {
	var rows [][]string
	for _, t := range list {
		if a.JSON {
			if err := a.message(t); err != nil {
				return err
			}
			continue
		}
		note := standing(t.Problem)
		if t.Held {
			note = "running"
		}
		rows = append(rows, []string{t.TraceID.String(), t.Since.String(), t.State, tool(t.ToolServer, t.ToolName), keyColumn(t.IdempotencyKey), note})
	}
	if a.JSON || len(rows) == 0 {
		return nil
	}
	return a.Table([]string{"TRACE", "SINCE", "STATE", "TOOL", "KEY", ""}, rows)
}

package cli

import (
	"cmp"
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/internal/workspace"
	"github.com/tgad/tgad/schemas/tga"
)

// workspaces is the verb workspace.
type workspaces struct {
	*Streams
	aside  string
	agreed func(question string) bool
}

// Workspace makes the verb workspace. agreed asks a person.
func Workspace(s *Streams, agreed func(question string) bool) *cobra.Command {
	w := &workspaces{Streams: s, agreed: agreed}
	c := &cobra.Command{
		Use:   "workspace",
		Short: "Inspect and restore the snapshots of a directory that calls changed",
		Long: `workspace works on the snapshots that tgad mcp --workspace DIR, or a daemon whose [[server]]
has a workspace, takes of DIR before and after each call. Any process may go on using the
directory meanwhile. Only restore changes it, and shows its plan first.

CALL is a number as ls prints it, or the id of a trace: its newest call.`,
	}
	c.PersistentFlags().StringVar(&w.aside, "snapshots", "", "`directory` of the snapshots (default: DIR.tgad)")
	c.AddCommand(w.ls(), w.diff(), w.restore())
	return c
}

func (w *workspaces) open(ctx context.Context, dir string) (*workspace.Keeper, error) {
	return workspace.Open(ctx, workspace.Options{Dir: dir, Aside: w.aside, Known: true})
}

func (w *workspaces) ls() *cobra.Command {
	return &cobra.Command{
		Use:   "ls DIR",
		Short: "List the calls that have a snapshot, oldest first",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			k, err := w.open(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			all, err := k.List(cmd.Context())
			if err != nil {
				return err
			}
			var rows [][]string
			for _, r := range all {
				if w.JSON {
					if err := w.Line(r); err != nil {
						return err
					}
					continue
				}
				rows = append(rows, []string{strconv.FormatUint(r.Number, 10), stamp(r.Began), nameOf(r), orDash(r.Outcome), files(r), beside(all, r), r.TraceID})
			}
			if w.JSON {
				return nil
			}
			return w.Table([]string{"CALL", "TIME", "NAME", "OUTCOME", "FILES", "AT ONCE WITH", "TRACE"}, rows)
		},
	}
}

func stamp(at tga.Millis) string { return time.UnixMilli(int64(at)).UTC().Format(time.RFC3339) }

func orDash(s string) string {
	return cmp.Or(s, "-")
}

// nameOf returns the name of the call or restore that a record is about.
func nameOf(r workspace.Record) string {
	if r.Kind == workspace.KindRestore {
		return "restore of " + strconv.FormatUint(r.Of, 10)
	}
	return Shorten(r.Server+" "+r.Tool, 48)
}

// files says in one word whether a call changed the directory.
func files(r workspace.Record) string {
	switch {
	case r.After == "":
		return "not known"
	case r.After == r.Before:
		return "same"
	}
	return "changed"
}

// beside lists the calls that ran at the same time.
func beside(all []workspace.Record, r workspace.Record) string {
	var list []string
	for _, o := range workspace.Beside(all, r) {
		if len(list) == 4 {
			list = append(list, "…")
			break
		}
		list = append(list, strconv.FormatUint(o.Number, 10))
	}
	return orDash(strings.Join(list, ","))
}

func (w *workspaces) diff() *cobra.Command {
	return &cobra.Command{
		Use:   "diff DIR CALL",
		Short: "List the paths that a call changed",
		Long: `diff names the paths that a call changed, and those that others changed while it ran. Where
there is no snapshot after the call, it compares with the directory as it is now.`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			k, err := w.open(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			all, err := k.List(cmd.Context())
			if err != nil {
				return err
			}
			r, err := workspace.Find(all, args[1])
			if err != nil {
				return err
			}
			changes, now, err := k.Diff(cmd.Context(), r)
			if err != nil {
				return err
			}
			if now && !w.JSON {
				w.Printf("# there is no snapshot after call %d: compared with now\n", r.Number)
			}
			return w.changes(changes)
		},
	}
}

// find returns the flags with which another verb finds the snapshots.
func (w *workspaces) find() string {
	if w.aside == "" {
		return ""
	}
	return "--snapshots " + ShellWord(w.aside) + " "
}

func (w *workspaces) changes(list []workspace.Change) error {
	return FileChanges(w.Streams, fileChanges(list))
}

func fileChanges(list []workspace.Change) []FileChange {
	all := []FileChange{}
	for _, c := range list {
		all = append(all, FileChange{Status: string(c.Status), Path: c.Path})
	}
	return all
}

func (w *workspaces) restore() *cobra.Command {
	var plan, yes bool
	var only string
	c := &cobra.Command{
		Use:   "restore DIR CALL",
		Short: "Restore the directory to what it was before a call",
		Long: `restore prints its plan and asks, unless --yes is given; --plan prints it and changes nothing.
The plan is for the directory as it was seen: where anything in it has changed since, the
restore is refused, and a new plan is to be looked at. --if PLAN restores only if the current
plan is the one printed earlier as PLAN.

What is replaced is kept: the restore is listed too, and going back to before it undoes it.
What the calls did elsewhere stands.`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			k, err := w.open(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			p, err := k.Plan(cmd.Context(), args[1])
			if err != nil {
				return err
			}
			if only != "" && only != p.Digest {
				return tga.Errorf(tga.StateConflict, "the plan is %s by now, and not %s: %s was changed, look at the new one", p.Digest, only, k.Dir())
			}
			if err := w.showPlan(p); err != nil || plan {
				return err
			}
			if !yes && only == "" && !w.agreed("restore?") {
				return tga.Errorf(tga.PermissionDenied, "nothing was restored: answer y, or pass --yes")
			}
			r, err := k.Restore(cmd.Context(), p)
			if err != nil {
				return err
			}
			if w.JSON {
				return w.Line(map[string]any{"ok": true, "verb": "restore", "what": r.Number})
			}
			w.Printf("\nrestored; to undo it: tgad workspace restore %s%s %d\n", w.find(), ShellWord(args[0]), r.Number)
			return nil
		},
	}
	c.Flags().BoolVar(&plan, "plan", false, "print the plan and change nothing")
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	c.Flags().StringVar(&only, "if", "", "do it, but only if the plan is still `PLAN`")
	return c
}

func (w *workspaces) showPlan(p *workspace.Plan) error {
	if w.JSON {
		return w.Line(map[string]any{"plan": p.Digest, "to": p.To, "changes": fileChanges(p.Changes), "undone": p.Undone})
	}
	w.Printf("plan %s: back to before %s of %s\n", p.Digest, Clean(nameOf(p.To)), stamp(p.To.Began))
	w.Printf("\nfiles that will be added (A), deleted (D) or changed (M, T):\n")
	if err := w.changes(p.Changes); err != nil {
		return err
	}
	w.Printf("\ncalls whose changes are taken back, newest first:\n")
	for _, r := range p.Undone {
		w.Printf("%d %s %s %s\n", r.Number, stamp(r.Began), Clean(nameOf(r)), r.TraceID)
	}
	return nil
}
